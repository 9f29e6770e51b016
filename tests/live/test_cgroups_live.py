# SPDX-License-Identifier: Apache-2.0
"""Scopes on this host's kernel: a real limit, real reads of a file on disk, real kills."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pagetier.cgroups.detect import Support, detect
from pagetier.cgroups.errors import CgroupError
from pagetier.cgroups.files import write_value
from pagetier.cgroups.joining import enter_command
from pagetier.cgroups.members import kill_members, make_directory, member_pids, remove_directory
from pagetier.cgroups.mounts import parse_mounts
from pagetier.cgroups.roots import Roots
from pagetier.cgroups.scope import MemoryState, Scope, open_scope, remove_stale, stale_scopes

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("live")]

MIB = 2**20
PAGE = os.sysconf("SC_PAGE_SIZE")
FILE_BYTES = 128 * MIB
LIMIT_BYTES = 64 * MIB
TOKEN = f"test{os.getpid()}"
FOLIO_BYTES = 4 * MIB  # a large folio that does not fit leaves the peak short of the limit
FLUSH_S = 2.5  # memory.stat is brought up to date every 2 s

# Does one job per line of its input: `read PATH PASSES` or `hold BYTES`; answers `done`.
WORKER = """
import os, sys
held = []
for line in sys.stdin:
    job, *words = line.split()
    if job == "hold":
        held.append(bytearray(b"x") * int(words[0]))
    else:
        for _ in range(int(words[1])):
            file = os.open(words[0], os.O_RDONLY)
            while os.read(file, 1 << 20):
                pass
            os.close(file)
    print("done", flush=True)
"""
WORKER_COMMAND = [sys.executable, "-I", "-S", "-c", WORKER]


class Worker:
    """A program inside a scope that does one job at a time."""

    def __init__(self, scope: Scope) -> None:
        self.process = subprocess.Popen(
            scope.command(WORKER_COMMAND), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        scope.attach(self.process.pid)

    def do(self, job: str) -> str:
        """The answer; empty when the worker died of it."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{job}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.close()
        return self.process.wait(10)


@pytest.fixture
def support() -> Support:
    return detect(Roots())


@pytest.fixture
def new_scope(support: Support) -> Iterator[Callable[[], Scope]]:
    made: list[Scope] = []

    def make() -> Scope:
        scope = open_scope(support, f"pagetier-{TOKEN}-{len(made)}")
        scope.create()
        made.append(scope)
        return scope

    yield make
    for scope in made:
        scope.remove()


@pytest.fixture
def scope(new_scope: Callable[[], Scope]) -> Scope:
    return new_scope()


@pytest.fixture
def worker(scope: Scope) -> Iterator[Worker]:
    worker = Worker(scope)
    yield worker
    worker.end()


@pytest.fixture(scope="module")
def disk_file() -> Iterator[Path]:
    """Random bytes on a real file system; /tmp may be in memory."""
    with tempfile.NamedTemporaryFile(dir="/var/tmp", prefix="pagetier-test-") as file:
        for _ in range(FILE_BYTES // MIB):
            file.write(os.urandom(MIB))
        file.flush()
        os.fsync(file.fileno())
        yield Path(file.name)


def evict(path: Path) -> None:
    """Drop this one file from the page cache; what is in flight needs a second attempt."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for _ in range(3):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            time.sleep(0.05)
    finally:
        os.close(descriptor)


def settled(scope: Scope) -> MemoryState:
    time.sleep(FLUSH_S)
    return scope.memory()


def read_bytes(pid: int) -> int:
    """What this process made devices read."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["read_bytes"])


def test_reads_behind_a_wall_hit_it_and_are_counted(
    scope: Scope, worker: Worker, disk_file: Path
) -> None:
    evict(disk_file)
    scope.set_limit(LIMIT_BYTES)
    assert worker.do(f"read {disk_file} 1") == "done"
    # The shrinker of shadow entries sizes itself by the scope's pages as of the last flush of its
    # statistics (mm/workingset.c, count_shadow_nodes): in a young scope that is none, every entry
    # goes, and of 65536 refaults anything down to 0 was counted.
    settled(scope)
    assert worker.do(f"read {disk_file} 2") == "done"
    state, events = settled(scope), scope.events()
    # Passes 2 and 3 find at most a wall's worth of their pages in the cache.
    missed_bytes = FILE_BYTES - LIMIT_BYTES
    assert FILE_BYTES + 2 * missed_bytes <= read_bytes(worker.process.pid) < 3 * FILE_BYTES + MIB
    if state.peak_bytes is not None:
        assert LIMIT_BYTES - FOLIO_BYTES < state.peak_bytes <= LIMIT_BYTES
    assert LIMIT_BYTES // 2 < state.file_bytes <= LIMIT_BYTES
    assert state.current_bytes <= LIMIT_BYTES
    assert events.max is None or events.max > 0
    assert events.oom_kill == 0
    assert state.refault_file_pages is not None
    # Pass 3 misses what was evicted after the flush.
    assert missed_bytes // PAGE <= state.refault_file_pages <= 2 * FILE_BYTES // PAGE


def test_pages_that_another_charged_first_are_not_ours(
    scope: Scope, worker: Worker, disk_file: Path
) -> None:
    evict(disk_file)
    disk_file.read_bytes()
    scope.set_limit(LIMIT_BYTES)
    assert worker.do(f"read {disk_file} 1") == "done"
    state, events = settled(scope), scope.events()
    assert state.file_bytes < MIB
    assert state.current_bytes < LIMIT_BYTES // 2
    assert events.max in (0, None)


def test_hits_of_the_memory_counter_are_counted(
    scope: Scope, worker: Worker, disk_file: Path
) -> None:
    evict(disk_file)
    scope.set_limit(LIMIT_BYTES)
    both = scope.path / "memory.memsw.limit_in_bytes"
    if both.exists():
        write_value(both, str(4 * LIMIT_BYTES))
    assert worker.do(f"read {disk_file} 1") == "done"
    count = scope.events().max
    assert count is not None
    assert count > 0


def test_an_oom_kill_inside_the_wall_is_counted(scope: Scope) -> None:
    worker = Worker(scope)
    scope.set_limit(LIMIT_BYTES)
    assert scope.events().oom_kill == 0
    assert worker.do(f"hold {2 * LIMIT_BYTES}") == ""
    assert worker.process.wait(10) == -9
    assert scope.events().oom_kill == 1
    assert scope.exists()
    worker.end()


def test_anonymous_memory_is_charged_to_the_scope(scope: Scope, worker: Worker) -> None:
    assert worker.do(f"hold {20 * MIB}") == "done"
    assert 20 * MIB <= settled(scope).anon_bytes < 40 * MIB


def test_limits_up_down_and_away(scope: Scope) -> None:
    assert scope.limits().memory_bytes is None
    for limit in (64 * MIB, 128 * MIB, 32 * MIB):
        scope.set_limit(limit)
        limits = scope.limits()
        assert limits.memory_bytes == limit
        assert limits.swap_bytes == (0 if limits.swap_accounted else None)
    scope.clear_limit()
    assert scope.limits().memory_bytes is None


def test_a_limit_that_is_no_whole_page_is_refused(scope: Scope) -> None:
    with pytest.raises(CgroupError, match="no whole number of pages"):
        scope.set_limit(64 * MIB + 1)


def test_a_nested_scope_knows_the_limit_above(scope: Scope, support: Support) -> None:
    outer = scope.ancestor_limit_bytes()
    assert outer is None or outer > 0
    scope.set_limit(LIMIT_BYTES)
    assert scope.ancestor_limit_bytes() == outer


def test_remove_kills_its_own_and_no_other(new_scope: Callable[[], Scope]) -> None:
    ours, other = new_scope(), new_scope()
    inside, outside = Worker(ours), Worker(other)
    assert ours.pids() == [inside.process.pid]
    ours.remove()
    assert inside.end() == -9
    assert not any(path.exists() for path in ours.directories())
    assert outside.process.poll() is None
    assert other.pids() == [outside.process.pid]
    assert outside.end() == 0


def test_two_scopes_of_one_name_are_refused(scope: Scope, support: Support) -> None:
    twin = open_scope(support, scope.name)
    with pytest.raises(CgroupError, match="exists already"):
        twin.create()
    assert all(path.is_dir() for path in scope.directories())


def test_what_a_killed_run_left_is_removed_by_its_token(scope: Scope, support: Support) -> None:
    worker = Worker(scope)
    left = stale_scopes(support, TOKEN)
    assert set(scope.directories()) <= set(left)
    for path in scope.directories():
        with pytest.raises(CgroupError, match="not touched"):
            remove_stale(path, "other")
    assert worker.process.poll() is None
    for path in left:
        remove_stale(path, TOKEN)
    assert stale_scopes(support, TOKEN) == []
    assert worker.end() == -9


def test_attach_notices_a_process_that_is_elsewhere(scope: Scope) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        with pytest.raises(CgroupError, match=rf"process {process.pid} is in "):
            scope.attach(process.pid, timeout_s=0.1)
        process.kill()


def test_io_is_counted_or_none_but_never_an_invented_zero(
    scope: Scope, worker: Worker, disk_file: Path
) -> None:
    evict(disk_file)
    assert worker.do(f"read {disk_file} 1") == "done"
    read = scope.io()
    assert read is None or sum(read.values()) >= FILE_BYTES


def hierarchies() -> list[Path]:
    """One writable mount of each cgroup version."""
    mounts = parse_mounts(Path("/proc/self/mountinfo").read_text())
    writable = {mount.version: Path(mount.point) for mount in mounts if not mount.read_only}
    return list(writable.values())


@pytest.mark.parametrize("mount", hierarchies(), ids=str)
def test_enter_and_kill_in_each_hierarchy_that_is_mounted(mount: Path) -> None:
    cgroup = mount / f"pagetier-{TOKEN}-99"
    make_directory(cgroup)
    try:
        command = enter_command([cgroup / "cgroup.procs"], ["sleep", "60"])
        with subprocess.Popen(command) as process:
            deadline = time.monotonic() + 10
            while not member_pids(cgroup) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert member_pids(cgroup) == [process.pid]
            kill_members(cgroup)
            assert process.wait(10) == -9
    finally:
        remove_directory(cgroup)
    assert not cgroup.exists()
