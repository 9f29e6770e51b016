# SPDX-License-Identifier: Apache-2.0
"""The arena: what it locks, how it is loaded, what it serves, and that nothing of it stays."""

import errno
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.native.arena import Arena, Preload, region_bytes, slot_bytes
from pagetier.native.errors import ArenaError, ReplayCancelled, ReplayError
from pagetier.native.reader import EXTENT_DTYPE, ExtentTable, Reader
from pagetier.native.residency import page_bytes, resident_pages

SEED = 20261129
PAGE = page_bytes()

PoolMaker = Callable[[int, int], Any]
PlanMaker = Callable[..., Any]
LockReader = Callable[[], int]


def mapped_bytes() -> int:
    line = Path("/proc/self/statm").read_text().split()[0]
    return int(line) * PAGE


# ---- Sizes ----


@given(st.lists(st.integers(0, 3 * PAGE), min_size=1, max_size=6))
def test_slots_are_whole_cache_lines_and_the_region_whole_pages(lengths: list[int]) -> None:
    halves = [(length // 3, length - length // 3) for length in lengths]
    extents = [(0, 0, part) for pair in halves for part in pair]
    starts = np.arange(0, len(extents) + 1, 2).astype(np.uint64)
    table = ExtentTable(("none",), np.array(extents, EXTENT_DTYPE), starts)
    slots = [-(-length // 64) * 64 for length in lengths]
    assert slot_bytes(table).tolist() == slots
    chosen = list(range(0, len(lengths), 2))
    total = sum(slots[expert] for expert in chosen)
    assert region_bytes(table, chosen) == -(-total // PAGE) * PAGE


def test_the_region_is_locked_as_announced(make_pool: PoolMaker, vm_lck: LockReader) -> None:
    pool = make_pool(5, 100_001)
    locked, mapped = vm_lck(), mapped_bytes()
    seen: list[int] = []
    with Arena(pool.table, [4, 0], vm_lck_bytes=vm_lck, on_progress=seen.append) as arena:
        assert arena.region_bytes == region_bytes(pool.table, [4, 0])
        assert vm_lck() - locked == arena.region_bytes
        assert arena.experts.tolist() == [4, 0]
        assert arena.preloaded is None
        assert seen[-1] == arena.region_bytes
    assert vm_lck() == locked
    assert mapped_bytes() < mapped + arena_slack()
    arena.close()
    with pytest.raises(ValueError, match="closed"):
        _ = arena.region_bytes


def arena_slack() -> int:
    """What a thread of Python leaves mapped."""
    return 300 << 20


def smaps_flags(region: int) -> list[str]:
    """VmFlags of the mapping of just this size that is locked."""
    text = Path("/proc/self/smaps").read_text().splitlines()
    for i, line in enumerate(text):
        if line.startswith("Size:") and int(line.split()[1]) * 1024 == region:
            flags = next(rest for rest in text[i:] if rest.startswith("VmFlags:")).split()[1:]
            if "lo" in flags:
                return flags
    raise AssertionError("no such mapping")


def test_the_region_is_no_part_of_a_core_dump(make_pool: PoolMaker, vm_lck: LockReader) -> None:
    pool = make_pool(3, 1_234_567)
    with Arena(pool.table, [0, 1, 2], vm_lck_bytes=vm_lck) as arena:
        assert {"dd", "nh", "wr"} <= set(smaps_flags(arena.region_bytes))
        arena.preload()
        assert "wr" not in smaps_flags(arena.region_bytes)
    with Arena(pool.table, [0, 1, 2], vm_lck_bytes=vm_lck, huge_pages="on") as arena:
        assert {"dd", "hg"} <= set(smaps_flags(arena.region_bytes))


# ---- Loading ----


def device_read_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes")))


def test_loading_goes_past_the_page_cache(make_pool: PoolMaker, vm_lck: LockReader) -> None:
    pool = make_pool(4, 3_000_001)
    pool.evict()
    before = device_read_bytes()
    with Arena(pool.table, [1, 3], vm_lck_bytes=vm_lck) as arena:
        loaded = arena.preload()
        assert arena.preloaded is loaded
        with pytest.raises(RuntimeError, match="loaded already"):
            arena.preload()
    assert (loaded.way, loaded.bytes, loaded.admitted_bytes) == ("direct", 6_000_002, 0)
    assert loaded.ns > 0
    assert pool.resident_pages() == 0
    assert device_read_bytes() - before == loaded.bytes + loaded.over_read_bytes
    assert 0 < loaded.over_read_bytes < 2 * 4096 * 2


def test_what_was_in_the_cache_stays(make_pool: PoolMaker, vm_lck: LockReader) -> None:
    pool = make_pool(2, 40 * PAGE)
    pool.evict()
    fd = os.open(pool.table.paths[0], os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    os.pread(fd, 3 * PAGE, 10 * PAGE)
    with Arena(pool.table, [0, 1], vm_lck_bytes=vm_lck) as arena:
        arena.preload()
    assert [page for page in range(40) if resident_pages(fd, page * PAGE, 1)] == [10, 11, 12]
    assert pool.resident_pages() == 3
    os.close(fd)


def test_the_way_of_a_preload() -> None:
    assert Preload(1, 10, 10, 0, 0).way == "direct"
    assert Preload(1, 10, 0, 0, 0).way == "buffered"
    assert Preload(1, 0, 0, 0, 0).way == "direct"


# ---- Serving ----


def test_experts_of_the_arena_are_read_from_it(
    make_pool: PoolMaker, plan: PlanMaker, vm_lck: LockReader
) -> None:
    pool = make_pool(6, 50_001)
    records = [[0, 1, 2], [3, 4], [1, 1, 5], [], [4, 0, 3]]
    reads = plan(records, [1, 2, 2])
    held = {1, 4, 5}
    pool.evict()
    with (
        Arena(pool.table, sorted(held), vm_lck_bytes=vm_lck) as arena,
        # The files of what is held may be gone: it is not read from them.
        Reader(pool.table, arena=loaded(arena), advice="random", threads=3) as reader,
    ):
        for expert in held:
            os.truncate(pool.table.paths[expert], 0)
        first = reader.replay(reads, verify_every=1, content_seed=SEED)
        second = reader.replay(reads, verify_every=1, content_seed=SEED)
    iterations = [records[0], records[1] + records[2], records[3] + records[4]]
    hits = [sum(expert in held for expert in reads) for reads in iterations]
    for result in (first, second):
        assert result.iteration_arena_reads is not None and result.iteration_arena_bytes is not None
        assert result.iteration_arena_reads.tolist() == hits
        assert result.iteration_arena_bytes.tolist() == [n * 50_001 for n in hits]
        assert result.iteration_reads.tolist() == [len(reads) for reads in iterations]
        assert result.iteration_bytes.tolist() == [len(reads) * 50_001 for reads in iterations]
        assert result.verified_reads == 11
    pages = -(-50_001 // PAGE) * PAGE
    assert first.iteration_first_bytes is not None and second.iteration_resident_bytes is not None
    assert first.iteration_first_bytes.tolist() == [2 * pages, pages, 0]
    assert second.iteration_resident_bytes.tolist() == [2 * pages, pages, 2 * pages]


def loaded(arena: Arena) -> Arena:
    arena.preload()
    return arena


def test_an_arena_makes_no_expert_read_before(
    make_pool: PoolMaker, plan: PlanMaker, vm_lck: LockReader
) -> None:
    """Its hits are neither first nor repeat reads of the pool."""
    pool = make_pool(2, 5000)
    pool.evict()
    with (
        Arena(pool.table, [0, 1], vm_lck_bytes=vm_lck) as arena,
        Reader(pool.table, arena=loaded(arena)) as reader,
    ):
        result = reader.replay(plan([[0, 1]] * 3))
    assert result.iteration_first_bytes is not None and result.iteration_repeat_bytes is not None
    assert result.iteration_first_bytes.sum() + result.iteration_repeat_bytes.sum() == 0
    assert pool.resident_pages() == 0


def test_the_same_content_with_and_without_an_arena(
    make_pool: PoolMaker, plan: PlanMaker, vm_lck: LockReader
) -> None:
    pool = make_pool(4, 70_001)
    reads = plan([[0, 1, 2, 3]] * 5)
    with Reader(pool.table) as reader:
        plain = reader.replay(reads, hash_content=True)
    assert plain.iteration_arena_reads is None and plain.iteration_arena_bytes is None
    for mode in ("pread", "direct"):
        with (
            Arena(pool.table, [2, 0], vm_lck_bytes=vm_lck) as arena,
            Reader(pool.table, arena=loaded(arena), mode=mode) as reader,
        ):
            assert reader.replay(reads, hash_content=True).content_hash == plain.content_hash


def test_a_reader_wants_a_loaded_arena_of_its_own_table(
    make_pool: PoolMaker, vm_lck: LockReader
) -> None:
    pool = make_pool(3, 5000)
    other = ExtentTable(pool.table.paths, pool.table.extents[:2], pool.table.expert_start[:3])
    with Arena(pool.table, [0], vm_lck_bytes=vm_lck) as arena:
        with pytest.raises(ValueError, match="preload it"):
            Reader(pool.table, arena=arena)
        arena.preload()
        with pytest.raises(ValueError, match="another table"):
            Reader(other, arena=arena)
        # Equal is enough.
        copy = ExtentTable(pool.table.paths, pool.table.extents.copy(), pool.table.expert_start)
        Reader(copy, arena=arena).close()


def test_an_arena_in_use_cannot_be_closed(make_pool: PoolMaker, vm_lck: LockReader) -> None:
    pool = make_pool(1, 5000)
    arena = Arena(pool.table, [0], vm_lck_bytes=vm_lck)
    reader = Reader(pool.table, arena=loaded(arena))
    with pytest.raises(RuntimeError, match="close the reader first"):
        arena.close()
    reader.close()
    arena.close()


def test_a_reader_that_fails_gives_the_arena_back(make_pool: PoolMaker, vm_lck: LockReader) -> None:
    pool = make_pool(2, 5000)
    with Arena(pool.table, [0], vm_lck_bytes=vm_lck) as arena:
        arena.preload()
        os.unlink(pool.table.paths[1])
        with pytest.raises(ReplayError):
            Reader(pool.table, arena=arena)


# ---- Failures ----


def test_a_lock_that_the_kernel_counts_otherwise(make_pool: PoolMaker, vm_lck: LockReader) -> None:
    pool = make_pool(1, 50_000)
    before = vm_lck()
    with pytest.raises(ArenaError, match="VmLck went from 7 to 7") as raised:
        Arena(pool.table, [0], vm_lck_bytes=lambda: 7)
    assert (raised.value.errno, raised.value.call) == (errno.ENOMEM, "VmLck")
    with pytest.raises(ArenaError, match="from None"):
        Arena(pool.table, [0], vm_lck_bytes=lambda: None)
    assert vm_lck() == before


LIMITED = """
import os, resource, sys
import numpy as np
from pagetier.native.arena import Arena
from pagetier.native.errors import ArenaError
from pagetier.native.reader import EXTENT_DTYPE, ExtentTable

def locked():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmLck"))) * 1024

limit, *experts = map(int, sys.argv[2:])
resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
length = 3 << 20
table = ExtentTable(
    (sys.argv[1],), np.array([(0, 0, length)] * 3, EXTENT_DTYPE), np.arange(4).astype(np.uint64)
)
try:
    with Arena(table, experts, vm_lck_bytes=locked) as arena:
        print("locked", locked() == arena.region_bytes)
except ArenaError as error:
    print(error.call, error.errno, error.offset, str(limit) in str(error), "ulimit" in str(error))
print(locked())
"""


def test_the_limit_of_locked_memory_is_named(
    run_python: Callable[..., str], disk_path: Path
) -> None:
    limit = 7 << 20  # the hard limit of many hosts is 8 MiB
    output = run_python(LIMITED, str(disk_path / "none"), str(limit), "0", "1", "2")
    assert output.splitlines() == [f"mlock {errno.ENOMEM} 0 True True", "0"]
    output = run_python(LIMITED, str(disk_path / "none"), str(limit), "0", "2")
    assert output.splitlines() == ["locked True", "0"]


@pytest.mark.parametrize(
    ("experts", "message"),
    [([0, 3], r"experts\[1\]"), ([2, 1, 2], r"experts\[2\]"), ([-1], "experts holds values")],
)
def test_experts_that_do_not_fit(
    make_pool: PoolMaker, vm_lck: LockReader, experts: list[int], message: str
) -> None:
    pool = make_pool(3, 5000)
    with pytest.raises(ValueError, match=message):
        Arena(pool.table, experts, vm_lck_bytes=vm_lck)


def test_unknown_huge_pages(make_pool: PoolMaker, vm_lck: LockReader) -> None:
    pool = make_pool(1, 5000)
    huge: Any = "always"
    with pytest.raises(ValueError, match="huge_pages must be one of off, on"):
        Arena(pool.table, [0], vm_lck_bytes=vm_lck, huge_pages=huge)


def test_a_missing_file_is_named(make_pool: PoolMaker, vm_lck: LockReader) -> None:
    pool = make_pool(3, 5000)
    os.unlink(pool.table.paths[1])
    with Arena(pool.table, [0, 1], vm_lck_bytes=vm_lck) as arena:
        with pytest.raises(ReplayError, match=r"No such file.*1\.bin") as raised:
            arena.preload()
        assert arena.preloaded is None
    assert raised.value.filename == pool.table.paths[1]


def test_an_empty_arena_locks_nothing(
    make_pool: PoolMaker, plan: PlanMaker, vm_lck: LockReader
) -> None:
    pool = make_pool(2, 5000)
    with (
        Arena(pool.table, [], vm_lck_bytes=vm_lck) as arena,
        Reader(pool.table, arena=loaded(arena)) as reader,
    ):
        assert arena.region_bytes == 0
        result = reader.replay(plan([[0, 1]]))
    assert result.iteration_arena_reads is not None
    assert result.iteration_arena_reads.tolist() == [0]


# ---- Ctrl-C, cancel ----


@pytest.fixture
def large_table(disk_path: Path) -> ExtentTable:
    """160 MiB, over and over of one sparse file of 16 MiB."""
    path = disk_path / "large"
    with path.open("wb") as file:
        file.truncate(16 << 20)
    extents = np.array([(0, 0, 16 << 20)] * 10, EXTENT_DTYPE)
    return ExtentTable((str(path),), extents, np.arange(11, dtype=np.uint64))


def interrupt(done_bytes: int) -> None:
    if done_bytes:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)  # where the signal arrives


def test_ctrl_c_while_locking(large_table: ExtentTable, vm_lck: LockReader) -> None:
    before = vm_lck()
    with pytest.raises(KeyboardInterrupt):
        Arena(
            large_table,
            range(10),
            vm_lck_bytes=vm_lck,
            on_progress=interrupt,
            progress_interval_s=0.001,
        )
    assert vm_lck() == before


def test_ctrl_c_while_loading(large_table: ExtentTable, vm_lck: LockReader) -> None:
    before = vm_lck()
    with (
        pytest.raises(KeyboardInterrupt),
        Arena(large_table, range(10), vm_lck_bytes=vm_lck) as arena,
    ):
        arena.preload(on_progress=interrupt, progress_interval_s=0.001)
    assert vm_lck() == before
    assert arena.preloaded is None


def test_cancel_from_another_thread(large_table: ExtentTable, vm_lck: LockReader) -> None:
    with Arena(large_table, range(10), vm_lck_bytes=vm_lck) as arena:
        done: list[int] = []

        def cancel(read_bytes: int) -> None:
            if not done:
                thread = threading.Thread(target=arena.cancel)
                thread.start()
                thread.join()
            done.append(read_bytes)

        with pytest.raises(ReplayCancelled):
            arena.preload(on_progress=cancel, progress_interval_s=0.001)
        assert done[-1] < 160 << 20
        with pytest.raises(ReplayCancelled):
            arena.preload()
