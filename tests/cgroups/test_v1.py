# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pagetier.cgroups.base import Events, Limits
from pagetier.cgroups.errors import CgroupError, ParseError
from pagetier.cgroups.v1 import V1Scope, parse_service_bytes, parse_v1_limit

if TYPE_CHECKING:
    from tests.cgroups.conftest import FakeKernel

NAME = "pagetier-t0-1"
MIB = 2**20
SERVICE = """\
254:0 Read 111
254:0 Write 222
254:0 Sync 333
254:0 Async 0
254:0 Discard 0
254:0 Total 333
259:1 Read 777
259:1 Total 777
Total 1110
"""


@pytest.fixture
def scope(kernel: FakeKernel) -> V1Scope:
    base = kernel.v1("memory/ours")
    io_base = kernel.fill(kernel.roots.cgroup / "blkio", {"cgroup.procs": ""})
    made = V1Scope(NAME, base, kernel.roots.cgroup / "memory", kernel.roots, io_base)
    made.create()
    kernel.fill(io_base / NAME, {"cgroup.procs": ""})
    return made


def test_create_makes_both_directories_and_remove_takes_both(scope: V1Scope) -> None:
    memory, blkio = scope.directories()
    assert memory.is_dir()
    assert blkio.is_dir()
    scope.remove()
    assert not memory.exists()
    assert not blkio.exists()
    scope.remove()


def test_create_makes_all_or_nothing(kernel: FakeKernel, scope: V1Scope) -> None:
    memory, blkio = scope.directories()
    kernel.rmdir(memory)
    with pytest.raises(CgroupError, match=f"{blkio} exists already"):
        scope.create()
    assert not memory.exists()


def test_command_joins_each_hierarchy(scope: V1Scope) -> None:
    memory, blkio = scope.directories()
    command = scope.command(["prog"])
    assert command[-4:] == [f"{memory}/cgroup.procs", f"{blkio}/cgroup.procs", "--", "prog"]


def test_limit_lowered_raised_and_cleared(kernel: FakeKernel, scope: V1Scope) -> None:
    for limit in (64 * MIB, 128 * MIB, 32 * MIB, 2**44):
        scope.set_limit(limit)
        assert scope.limits() == Limits(limit, 0, True)
    assert (scope.path / "memory.swappiness").read_text() == "0\n"
    scope.clear_limit()
    assert scope.limits() == Limits(None, None, True)


def test_limit_without_swap_accounting(scope: V1Scope) -> None:
    (scope.path / "memory.memsw.limit_in_bytes").unlink()
    scope.set_limit(64 * MIB)
    assert scope.limits() == Limits(64 * MIB, None, False)
    scope.clear_limit()
    assert scope.limits() == Limits(None, None, False)


def test_limit_that_reads_back_differently_is_an_error(scope: V1Scope) -> None:
    with pytest.raises(CgroupError, match=r"reads 67108864, not the 67108865 asked for"):
        scope.set_limit(64 * MIB + 1)


def test_limit_is_tried_again_while_pages_come_free(
    kernel: FakeKernel, scope: V1Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("pagetier.cgroups.v1.time.sleep", pauses.append)
    kernel.busy_writes = 3
    scope.set_limit(64 * MIB)
    assert len(pauses) == 3
    kernel.busy_writes = 1000
    with pytest.raises(CgroupError, match="busy"):
        scope.set_limit(64 * MIB)


def test_absent_limit_file_is_an_error_not_a_missing_limit(scope: V1Scope) -> None:
    (scope.path / "memory.limit_in_bytes").unlink()
    with pytest.raises(CgroupError, match=r"cannot read .*/memory.limit_in_bytes"):
        scope.limits()


@pytest.mark.parametrize("page_bytes", [4096, 16384, 65536])
def test_no_limit_on_every_page_size(page_bytes: int) -> None:
    assert parse_v1_limit(f"{(2**63 - 1) // page_bytes * page_bytes}\n") is None
    assert parse_v1_limit(f"{2**62}\n") == 2**62


def test_memory_puts_each_hierarchical_number_in_its_field(scope: V1Scope) -> None:
    state = scope.memory()
    assert (state.current_bytes, state.peak_bytes) == (102401, 204801)
    assert (state.anon_bytes, state.file_bytes, state.kernel_bytes) == (52, 51, 33)
    assert state.refault_file_pages == 54
    assert (state.pgscan_pages, state.pgsteal_pages) == (None, None)


def test_memory_that_the_kernel_does_not_count_is_none(scope: V1Scope) -> None:
    for name in ("memory.kmem.usage_in_bytes", "memory.max_usage_in_bytes"):
        (scope.path / name).unlink()
    (scope.path / "memory.stat").write_text("cache 1\nrss 2\n")
    state = scope.memory()
    assert (state.anon_bytes, state.file_bytes) == (2, 1)
    assert (state.peak_bytes, state.kernel_bytes, state.refault_file_pages) == (None, None, None)


def test_memory_of_a_kernel_before_5_9_has_one_refault_counter(scope: V1Scope) -> None:
    (scope.path / "memory.stat").write_text("cache 1\nrss 2\nworkingset_refault 9\n")
    assert scope.memory().refault_file_pages == 9


def test_memory_without_its_main_lines_is_malformed(scope: V1Scope) -> None:
    (scope.path / "memory.stat").write_text("cache 1\n")
    with pytest.raises(ParseError, match="no rss line"):
        scope.memory()


def test_events(scope: V1Scope) -> None:
    assert scope.events() == Events(oom=None, oom_kill=45, max=644)
    (scope.path / "memory.memsw.failcnt").unlink()
    assert scope.events() == Events(oom=None, oom_kill=45, max=44)
    (scope.path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\n")
    (scope.path / "memory.failcnt").unlink()
    assert scope.events() == Events(None, None, None)


def test_no_failed_charge_is_unknown_when_the_swap_counter_fails_first(
    kernel: FakeKernel, scope: V1Scope
) -> None:
    kernel.fill(scope.path, {"memory.failcnt": "0\n", "memory.memsw.failcnt": "0\n"})
    assert scope.events().max == 0
    scope.set_limit(64 * MIB)
    assert scope.events().max is None
    kernel.fill(scope.path, {"memory.memsw.failcnt": "2\n"})
    assert scope.events().max == 2


def test_pressure_is_none(scope: V1Scope) -> None:
    assert scope.pressure() is None


def test_io_by_device(kernel: FakeKernel, scope: V1Scope) -> None:
    _, blkio = scope.directories()
    assert scope.io() is None
    kernel.fill(blkio, {"blkio.throttle.io_service_bytes": "254:0 Read 5\nTotal 5\n"})
    assert scope.io() == {"254:0": 5}
    kernel.fill(blkio, {"blkio.throttle.io_service_bytes_recursive": SERVICE})
    assert scope.io() == {"254:0": 111, "259:1": 777}


def test_io_that_no_device_accounts_is_none_not_zero(kernel: FakeKernel, scope: V1Scope) -> None:
    _, blkio = scope.directories()
    kernel.fill(blkio, {"blkio.throttle.io_service_bytes_recursive": "Total 0\n"})
    assert scope.io() is None


@pytest.mark.parametrize("line", ["254:0 Read", "254:0 Read 1 2", "254:0 Read x"])
def test_malformed_io_names_its_line(line: str) -> None:
    with pytest.raises(ParseError, match="f:2"):
        parse_service_bytes(f"Total 0\n{line}\n", "f")


def test_without_blkio_there_is_one_directory_and_no_io(kernel: FakeKernel) -> None:
    base = kernel.v1("memory/ours")
    scope = V1Scope(NAME, base, kernel.roots.cgroup / "memory", kernel.roots)
    scope.create()
    assert scope.directories() == (base / NAME,)
    assert scope.io() is None
    scope.remove()
    assert not scope.exists()


def test_ancestor_limit_is_the_smallest_above_and_not_our_own(
    kernel: FakeKernel, scope: V1Scope
) -> None:
    assert scope.ancestor_limit_bytes() is None
    scope.set_limit(MIB)
    assert scope.ancestor_limit_bytes() is None
    kernel.v1("memory", limit_in_bytes=9 * MIB)
    assert scope.ancestor_limit_bytes() == 9 * MIB
    kernel.v1("memory/ours", limit_in_bytes=8 * MIB)
    assert scope.ancestor_limit_bytes() == 8 * MIB


def test_ancestor_limit_above_our_mount_point_is_known_from_stat(
    kernel: FakeKernel, scope: V1Scope
) -> None:
    stat = kernel.roots.cgroup / "memory/ours/memory.stat"
    stat.write_text(f"cache 1\nrss 2\nhierarchical_memory_limit {7 * MIB}\n")
    assert scope.ancestor_limit_bytes() == 7 * MIB


def test_attach_checks_each_hierarchy(kernel: FakeKernel, scope: V1Scope) -> None:
    kernel.process(50, f"7:blkio:/{NAME}\n4:memory:/ours/{NAME}\n0::/\n")
    scope.attach(50)
    kernel.process(51, f"7:blkio:/\n4:memory:/ours/{NAME}\n0::/\n")
    with pytest.raises(CgroupError, match=f"process 51 is in /, not in {NAME}"):
        scope.attach(51, timeout_s=0.02)
