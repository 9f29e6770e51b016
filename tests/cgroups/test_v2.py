# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.cgroups import enter
from pagetier.cgroups.base import Events, Limits
from pagetier.cgroups.errors import CgroupError, ParseError
from pagetier.cgroups.v2 import V2Scope, parse_io_stat

if TYPE_CHECKING:
    from tests.cgroups.conftest import FakeKernel

NAME = "pagetier-t0-1"
MIB = 2**20


@pytest.fixture
def scope(kernel: FakeKernel) -> V2Scope:
    base = kernel.v2("a", "memory io", "memory")
    made = V2Scope(NAME, base, kernel.roots.cgroup, kernel.roots)
    made.create()
    return made


def test_create_and_remove(kernel: FakeKernel, scope: V2Scope) -> None:
    assert scope.path == kernel.roots.cgroup / "a" / NAME
    assert scope.directories() == (scope.path,)
    assert scope.exists()
    scope.remove()
    assert not scope.exists()
    scope.remove()
    assert kernel.writes == []


def test_create_refuses_what_exists(scope: V2Scope) -> None:
    with pytest.raises(CgroupError, match="exists already"):
        scope.create()


def test_create_without_the_controller_leaves_nothing(kernel: FakeKernel) -> None:
    base = kernel.v2("a", "memory", "")
    scope = V2Scope(NAME, base, kernel.roots.cgroup, kernel.roots)
    with pytest.raises(CgroupError, match=rf"echo \+memory > {base}/cgroup.subtree_control"):
        scope.create()
    assert not scope.exists()


def test_controllers_are_enabled_for_us_and_disabled_after_the_last_scope(
    kernel: FakeKernel,
) -> None:
    base = kernel.v2("", "memory io", "io", kind=None)
    first, second = (
        V2Scope(f"pagetier-t0-{n}", base, base, kernel.roots, ("memory", "io")) for n in (1, 2)
    )
    first.create()
    second.create()
    second.remove()
    assert (base / "cgroup.subtree_control").read_text() == "io memory\n"
    first.remove()
    assert (base / "cgroup.subtree_control").read_text() == "io\n"
    assert kernel.writes == [
        ("cgroup.subtree_control", "+memory"),
        ("cgroup.subtree_control", "-memory"),
    ]


def test_controllers_stay_while_another_scope_needs_them(kernel: FakeKernel) -> None:
    base = kernel.v2("", "memory", "", kind=None)
    first, second = (
        V2Scope(f"pagetier-t0-{n}", base, base, kernel.roots, ("memory",)) for n in (1, 2)
    )
    first.create()
    second.create()
    first.remove()
    assert (base / "cgroup.subtree_control").read_text() == "memory\n"


def test_command_enters_by_path_and_keeps_the_arguments(scope: V2Scope) -> None:
    command = scope.command(["prog", "--", "-x y"])
    script = str(Path(enter.__file__))
    procs = str(scope.path / "cgroup.procs")
    assert command == [sys.executable, "-I", "-S", script, procs, "--", "prog", "--", "-x y"]


def test_limit_is_set_with_swap_forbidden_and_read_back(scope: V2Scope) -> None:
    assert scope.limits() == Limits(None, None, True)
    scope.set_limit(64 * MIB)
    assert scope.limits() == Limits(64 * MIB, 0, True)
    scope.clear_limit()
    assert scope.limits() == Limits(None, None, True)


def test_limit_without_swap_accounting(scope: V2Scope) -> None:
    (scope.path / "memory.swap.max").unlink()
    scope.set_limit(64 * MIB)
    assert scope.limits() == Limits(64 * MIB, None, False)


def test_limit_that_reads_back_differently_is_an_error(scope: V2Scope) -> None:
    with pytest.raises(CgroupError, match=r"reads 67108864, not the 67108865 asked for"):
        scope.set_limit(64 * MIB + 1)


def test_swap_limit_that_does_not_take_is_an_error(
    kernel: FakeKernel, scope: V2Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ignore_swap(path: Path, value: str) -> None:
        if path.name != "memory.swap.max":
            kernel.write(path, value)

    monkeypatch.setattr("pagetier.cgroups.v2.write_value", ignore_swap)
    with pytest.raises(CgroupError, match=r"swap limit of .* reads None, not 0"):
        scope.set_limit(64 * MIB)


def test_absent_limit_file_is_an_error_not_a_missing_limit(scope: V2Scope) -> None:
    (scope.path / "memory.max").unlink()
    with pytest.raises(CgroupError, match=r"cannot read .*/memory.max"):
        scope.limits()


def test_memory_puts_each_number_in_its_field(scope: V2Scope) -> None:
    state = scope.memory()
    assert (state.current_bytes, state.peak_bytes) == (102400, 204800)
    assert (state.anon_bytes, state.file_bytes, state.kernel_bytes) == (11, 12, 13)
    assert state.refault_file_pages == 15
    assert (state.pgscan_pages, state.pgsteal_pages) == (16, 17)
    assert state.raw["slab"] == 99


def test_memory_of_an_older_kernel(scope: V2Scope) -> None:
    (scope.path / "memory.peak").unlink()
    (scope.path / "memory.stat").write_text(
        "anon 1\nfile 2\nkernel_stack 30\nslab 400\nslab_reclaimable 7\nworkingset_refault 5\n"
    )
    state = scope.memory()
    assert state.peak_bytes is None
    assert state.kernel_bytes == 430
    assert state.refault_file_pages == 5
    assert (state.pgscan_pages, state.pgsteal_pages) == (None, None)


def test_memory_that_the_kernel_does_not_count_is_none(scope: V2Scope) -> None:
    (scope.path / "memory.stat").write_text("anon 1\nfile 2\n")
    state = scope.memory()
    assert (state.kernel_bytes, state.refault_file_pages) == (None, None)


@pytest.mark.parametrize("name", ["anon", "file"])
def test_memory_without_its_main_lines_is_malformed(scope: V2Scope, name: str) -> None:
    (scope.path / "memory.stat").write_text("anon 1\nfile 2\n".replace(name, "other"))
    with pytest.raises(ParseError, match=f"no {name} line"):
        scope.memory()


def test_events(scope: V2Scope) -> None:
    assert scope.events() == Events(oom=4, oom_kill=5, max=3)
    (scope.path / "memory.events").write_text("low 0\n")
    assert scope.events() == Events(None, None, None)


def test_pressure(scope: V2Scope) -> None:
    pressure = scope.pressure()
    assert pressure is not None
    assert pressure.some is not None
    assert pressure.some.total_us == 21
    (scope.path / "memory.pressure").unlink()
    assert scope.pressure() is None


def test_io_is_none_without_the_controller(scope: V2Scope) -> None:
    assert scope.io() is None
    (scope.path / "io.stat").write_text("")
    assert scope.io() == {}
    (scope.path / "io.stat").write_text(
        "254:0 rbytes=111 wbytes=222 rios=3 wios=4 dbytes=5 dios=6\n7:0 \n259:1 rbytes=777\n"
    )
    assert scope.io() == {"254:0": 111, "259:1": 777}


def test_malformed_io_names_its_line() -> None:
    with pytest.raises(ParseError, match=r"io.stat:2"):
        parse_io_stat("254:0 rbytes=1\n254:1 rbytes=x\n")


devices = st.tuples(st.integers(0, 4095), st.integers(0, 2**20 - 1)).map(lambda d: f"{d[0]}:{d[1]}")


@given(st.dictionaries(devices, st.integers(0, 2**64 - 1)))
def test_io_round_trip(expected: dict[str, int]) -> None:
    text = "".join(f"{dev} rbytes={n} wbytes={n + 1} rios=1\n" for dev, n in expected.items())
    assert parse_io_stat(text) == expected


def test_pids(scope: V2Scope) -> None:
    (scope.path / "cgroup.procs").write_text("12\n345\n")
    assert scope.pids() == [12, 345]


def test_ancestor_limit_is_the_smallest_above_and_not_our_own(
    kernel: FakeKernel, scope: V2Scope
) -> None:
    scope.set_limit(MIB)
    kernel.fill(kernel.roots.cgroup / "a", {"memory.max": f"{9 * MIB}\n", "memory.high": "max\n"})
    assert scope.ancestor_limit_bytes() == 9 * MIB
    kernel.fill(kernel.roots.cgroup / "a", {"memory.high": f"{8 * MIB}\n"})
    assert scope.ancestor_limit_bytes() == 8 * MIB
    kernel.fill(kernel.roots.cgroup, {"memory.max": f"{7 * MIB}\n"})
    assert scope.ancestor_limit_bytes() == 7 * MIB
    kernel.fill(kernel.roots.cgroup.parent, {"memory.max": "1\n"})
    assert scope.ancestor_limit_bytes() == 7 * MIB


def test_no_ancestor_limit_is_none(scope: V2Scope) -> None:
    assert scope.ancestor_limit_bytes() is None


def test_attach_waits_for_the_process_to_be_inside(kernel: FakeKernel, scope: V2Scope) -> None:
    kernel.process(50, f"0::/a/{NAME}\n")
    scope.attach(50)
    kernel.process(51, "0::/a\n")
    with pytest.raises(CgroupError, match=rf"process 51 is in /a, not in {NAME}"):
        scope.attach(51, timeout_s=0.02)


def test_attach_to_a_dead_process(kernel: FakeKernel, scope: V2Scope) -> None:
    with pytest.raises(CgroupError, match="process 52 ended before"):
        scope.attach(52)
    kernel.process(53, "0::/\n", state="Z")
    with pytest.raises(CgroupError, match="process 53 ended before"):
        scope.attach(53)


@pytest.mark.parametrize("name", ["pagetier", "pagetier-a-", "pagetier-a-1/x", "../a", "x-a-1"])
def test_names_without_our_marker_are_refused(kernel: FakeKernel, name: str) -> None:
    with pytest.raises(CgroupError, match="is not `pagetier-<token>-<n>`"):
        V2Scope(name, Path("/a"), Path("/"), kernel.roots)
