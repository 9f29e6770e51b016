# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pagetier.cgroups.base import Limits
from pagetier.cgroups.errors import CgroupError
from pagetier.cgroups.systemd import SystemdScope, run_quietly

if TYPE_CHECKING:
    from tests.cgroups.conftest import FakeKernel

NAME = "pagetier-t0-1"
UNIT = f"{NAME}.scope"
MIB = 2**20


class Host:
    """A systemd host: records the manager's commands and obeys set-property."""

    def __init__(self, kernel: FakeKernel) -> None:
        self.kernel = kernel
        self.base = kernel.v2("system.slice", "memory io", "memory io")
        self.commands: list[list[str]] = []
        self.obeys = True

    def scope(self, *options: str) -> SystemdScope:
        return SystemdScope(
            NAME, self.base, self.kernel.roots.cgroup, self.kernel.roots, options, self.run
        )

    def run(self, argv: Sequence[str]) -> None:
        self.commands.append(list(argv))
        values = dict(part.split("=") for part in argv if part.startswith("Memory"))
        if self.obeys:
            files = {"MemoryMax": "memory.max", "MemorySwapMax": "memory.swap.max"}
            for name, value in values.items():
                value = "max" if value == "infinity" else value
                (self.base / UNIT / files[name]).write_text(f"{value}\n")

    def start(self, pid: int, memory_max: str = "max", swap_max: str = "max") -> Path:
        """What systemd-run does to a process."""
        (self.base / UNIT).mkdir()
        files = {"memory.max": memory_max, "memory.swap.max": swap_max}
        self.kernel.fill(self.base / UNIT, files)
        self.kernel.process(pid, f"0::/system.slice/{UNIT}\n")
        return self.base / UNIT


@pytest.fixture
def host(kernel: FakeKernel) -> Host:
    return Host(kernel)


def test_command_with_a_limit_in_plain_bytes(host: Host) -> None:
    scope = host.scope()
    scope.create()
    scope.set_limit(262_442_450_944)
    assert scope.command(["prog", "-p", "x"]) == [
        "systemd-run",
        "--scope",
        "--quiet",
        "--collect",
        f"--unit={NAME}",
        *("-p", "MemoryAccounting=yes"),
        *("-p", "IOAccounting=yes"),
        *("-p", "MemoryMax=262442450944"),
        *("-p", "MemorySwapMax=0"),
        "--",
        *("prog", "-p", "x"),
    ]
    assert host.commands == []


def test_command_without_a_limit_of_the_user_manager(host: Host) -> None:
    command = host.scope("--user").command(["prog"])
    assert command[:3] == ["systemd-run", "--user", "--scope"]
    assert not [part for part in command if part.startswith("MemoryMax")]


def test_before_the_start_there_is_no_directory(host: Host) -> None:
    scope = host.scope()
    assert scope.directories() == ()
    assert scope.pids() == []
    assert not scope.exists()
    with pytest.raises(CgroupError, match=f"{UNIT} has no directory yet"):
        scope.limits()
    scope.clear_limit()
    scope.remove()


def test_attach_takes_the_path_from_the_process(host: Host) -> None:
    scope = host.scope()
    scope.set_limit(64 * MIB)
    path = host.start(50, str(64 * MIB), "0")
    scope.attach(50)
    assert scope.path == path
    assert scope.directories() == (path,)
    assert scope.limits() == Limits(64 * MIB, 0, True)


def test_a_limit_that_systemd_dropped_silently_is_found(host: Host) -> None:
    scope = host.scope()
    scope.set_limit(64 * MIB)
    host.start(50)
    with pytest.raises(CgroupError, match="reads None, not the 67108864 asked for"):
        scope.attach(50)


def test_a_scope_without_the_controller_names_the_delegation(host: Host) -> None:
    path = host.start(50)
    (path / "memory.max").unlink()
    with pytest.raises(CgroupError, match=r"no memory.max: .* not delegated .*Delegate=memory"):
        host.scope().attach(50)


def test_limit_after_the_start_goes_through_the_manager(host: Host) -> None:
    scope = host.scope("--user")
    host.start(50)
    scope.attach(50)
    scope.set_limit(64 * MIB)
    assert scope.limits() == Limits(64 * MIB, 0, True)
    scope.clear_limit()
    assert scope.limits() == Limits(None, None, True)
    head = ["systemctl", "--user", "set-property", "--runtime", UNIT]
    assert host.commands == [
        [*head, f"MemoryMax={64 * MIB}", "MemorySwapMax=0"],
        [*head, "MemoryMax=infinity", "MemorySwapMax=infinity"],
    ]


def test_limit_that_the_manager_did_not_apply_is_an_error(host: Host) -> None:
    scope = host.scope()
    host.start(50)
    scope.attach(50)
    host.obeys = False
    with pytest.raises(CgroupError, match="reads None"):
        scope.set_limit(64 * MIB)


def test_remove_takes_what_is_left_and_accepts_what_is_gone(host: Host) -> None:
    scope = host.scope()
    path = host.start(50)
    scope.attach(50)
    scope.remove()
    assert not path.exists()
    scope.remove()


def test_a_failing_manager_is_quoted() -> None:
    script = "echo detail >&2; echo 'System has not been booted with systemd' >&2; exit 1"
    with pytest.raises(CgroupError, match=r"sh failed \(1\): System has not been booted"):
        run_quietly(["sh", "-c", script])
    with pytest.raises(CgroupError, match="no message"):
        run_quietly(["false"])
    with pytest.raises(CgroupError, match="cannot run no-such-systemctl"):
        run_quietly(["no-such-systemctl"])
    run_quietly(["true"])
