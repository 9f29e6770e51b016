# SPDX-License-Identifier: Apache-2.0
"""The prefetch worker: every hint accounted for, every byte by who brought it."""

import errno
import itertools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pagetier.native.arena import Arena
from pagetier.native.errors import ReplayCancelled
from pagetier.native.hints import DEFAULT_CHUNK_BYTES, HintDelivery
from pagetier.native.passes import HintCounts, PassResult
from pagetier.native.reader import EXTENT_DTYPE, Barrier, Mode, Progress, Reader
from pagetier.native.residency import page_bytes

SEED = 20261129
PAGE = page_bytes()
ANOTHER: Any = "readahead"
DELIVERIES = [
    HintDelivery(),
    HintDelivery(chunk_bytes=0),
    HintDelivery("blocking"),
    HintDelivery("blocking", 0),
]

PoolMaker = Callable[[int, int], Any]
PlanMaker = Callable[..., Any]


def counts_of(result: PassResult) -> HintCounts:
    assert result.hints is not None
    return result.hints


def known(array: NDArray[np.int64] | None) -> NDArray[np.int64]:
    assert array is not None
    return array


def rounded(length: int) -> int:
    return -(-length // PAGE) * PAGE


def check_sums(counts: HintCounts) -> None:
    parts = counts.overwritten + counts.completed + counts.failed
    assert counts.submitted.tolist() == parts.tolist()
    fates = (counts.used_bytes, counts.evicted_bytes, counts.lost_bytes)
    total = sum(int(known(fate).sum()) for fate in fates)
    assert int(known(counts.brought_bytes).sum()) == total + (counts.unused_bytes or 0)


# ---- Every hint ----


@pytest.mark.parametrize("delivery", DELIVERIES, ids=str)
@pytest.mark.parametrize("mode", ["pread", "mmap", "populate", "dontcache", "drop-behind"])
def test_every_hint_is_accounted_for(
    make_pool: PoolMaker,
    plan: PlanMaker,
    hint_list: PlanMaker,
    delivery: HintDelivery,
    mode: Mode,
) -> None:
    pool = make_pool(6, 300_001)
    records = [[i % 6, (i + 1) % 6] for i in range(40)]
    hints = hint_list([*records[1:], []])
    pool.evict()
    with Reader(pool.table, mode=mode, hints=delivery, threads=3) as reader:
        for _ in range(2):
            result = reader.replay(
                plan(records, [10] * 4), hints=hints, verify_every=1, content_seed=SEED
            )
            counts = counts_of(result)
            check_sums(counts)
            assert counts.submitted.tolist() == [10, 10, 10, 9]
            assert counts.first_failure is None and counts.failed.sum() == 0
            assert counts.completed.sum() > 0
            per_hint = 2 * rounded(300_001)
            assert counts.hinted_bytes.tolist() == (counts.completed * per_hint).tolist()
            assert result.verified_reads == 80
            assert counts.busy_ns > 0


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_plan_submits_the_hints_of_the_records_that_start(
    make_pool: PoolMaker, plan: PlanMaker, hint_list: PlanMaker, data: st.DataObject
) -> None:
    experts = st.lists(st.integers(0, 3), max_size=3)
    records = data.draw(st.lists(experts, min_size=1, max_size=12))
    hinted = data.draw(st.lists(experts, min_size=len(records), max_size=len(records)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=3)))
    widths = np.diff([0, *cuts, len(records)]).tolist()
    barrier = data.draw(st.sampled_from(get_args(Barrier)))
    pool = make_pool(4, 5000)
    with Reader(pool.table, hints=HintDelivery(), barrier=barrier, threads=2) as reader:
        counts = counts_of(reader.replay(plan(records, widths), hints=hint_list(hinted)))
    started = [bool(reads) and bool(hint) for reads, hint in zip(records, hinted, strict=True)]
    bounds = [0, *cuts, len(records)]
    expected = [sum(started[a:b]) for a, b in itertools.pairwise(bounds)]
    assert counts.submitted.tolist() == expected
    check_sums(counts)


# ---- Every byte ----


def hint_all_at_first(plan: PlanMaker, hint_list: PlanMaker, num_experts: int) -> Any:
    """The first record reads expert 0 and hints the others, which nobody reads in this pass."""
    return plan([[0]]), hint_list([list(range(1, num_experts))])


@pytest.mark.parametrize("mode", ["pread", "mmap"])
@pytest.mark.parametrize("delivery", DELIVERIES, ids=str)
def test_what_a_hint_brought_is_used_by_the_reads_that_follow(
    make_pool: PoolMaker,
    plan: PlanMaker,
    hint_list: PlanMaker,
    mode: Mode,
    delivery: HintDelivery,
) -> None:
    length = 40 * PAGE + 1
    pool = make_pool(5, length)
    pool.evict()
    first, hints = hint_all_at_first(plan, hint_list, 5)
    with Reader(pool.table, mode=mode, hints=delivery, advice="random") as reader:
        assert reader.residency == "cachestat"
        result = reader.replay(first, hints=hints)
        later = reader.replay(plan([[0, 1, 2, 3, 4]]), hints=hint_list([[]]))
    counts = counts_of(result)
    assert counts.completed.tolist() == [1]
    assert counts.hinted_bytes.tolist() == [4 * rounded(length)]
    assert known(counts.resident_before_bytes).tolist() == [0]
    assert known(counts.resident_after_bytes).tolist() == [4 * rounded(length)]
    assert known(counts.brought_bytes).tolist() == [4 * rounded(length)]
    assert known(counts.raced_bytes).tolist() == [0]
    assert counts.unused_bytes == 4 * rounded(length)
    assert known(later.iteration_first_bytes).tolist() == [0]
    assert known(later.iteration_resident_bytes).tolist() == [5 * rounded(length)]
    assert pool.resident_pages() == 5 * rounded(length) // PAGE


@pytest.mark.parametrize("advice", ["default", "random"])
def test_reads_and_hints_share_out_every_page(
    make_pool: PoolMaker, plan: PlanMaker, hint_list: PlanMaker, advice: Any
) -> None:
    """Nobody evicts: each page came once, by a read that found it absent or by a hint."""
    length = 1_000_001
    pool = make_pool(12, length)
    records = [[2 * i, 2 * i + 1] for i in range(6)]
    pool.evict()
    with Reader(pool.table, hints=HintDelivery(), advice=advice, threads=2) as reader:
        result = reader.replay(plan(records * 3), hints=hint_list([*records[1:], [], *[[]] * 12]))
    counts = counts_of(result)
    demand = int(known(result.iteration_first_bytes).sum())
    assert known(result.iteration_repeat_bytes).sum() == 0
    brought, raced = (
        int(known(column).sum()) for column in (counts.brought_bytes, counts.raced_bytes)
    )
    assert demand + brought <= 12 * rounded(length) <= demand + brought + raced
    # All of it is read again, so that nothing stays unused.
    assert counts.unused_bytes == 0
    assert known(counts.used_bytes).sum() == brought
    check_sums(counts)


def test_pages_that_are_evicted_before_they_are_read_are_lost(
    make_pool: PoolMaker, plan: PlanMaker, hint_list: PlanMaker
) -> None:
    def evict_hinted(progress: Progress) -> None:
        fd = os.open(pool.table.paths[1], os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    pool = make_pool(2, 64 * PAGE)
    pool.evict()
    with Reader(pool.table, hints=HintDelivery(), threads=1) as reader:
        result = reader.replay(
            plan([[0]] * 20_000),
            hints=hint_list([[1]] * 20_000),
            on_progress=evict_hinted,
            progress_interval_s=0.002,
        )
    counts = counts_of(result)
    check_sums(counts)
    assert known(counts.used_bytes).sum() == known(counts.evicted_bytes).sum() == 0
    assert known(counts.lost_bytes).sum() > 0


def test_pages_that_are_evicted_before_their_read(
    make_pool: PoolMaker, plan: PlanMaker, hint_list: PlanMaker
) -> None:
    """Half of what the hint brought is evicted between two records, by the only reading thread."""
    pool = make_pool(2, 64 * PAGE)
    extents = np.array([(0, 0, PAGE), (1, 0, 64 * PAGE), (1, 0, 32 * PAGE)], dtype=EXTENT_DTYPE)
    table = replace(pool.table, extents=extents, expert_start=np.arange(4, dtype=np.uint64))
    records = [[0]] * 20_000 + [[2], [1]]
    hinted = [[1]] + [[]] * 20_001
    pool.evict()
    with Reader(
        table, mode="drop-behind", hints=HintDelivery(), advice="random", threads=1
    ) as reader:
        counts = counts_of(reader.replay(plan(records), hints=hint_list(hinted)))
    check_sums(counts)
    assert known(counts.brought_bytes).sum() == 64 * PAGE
    assert known(counts.used_bytes)[-1] == 32 * PAGE
    assert known(counts.evicted_bytes)[-1] == 32 * PAGE


def test_without_residency_only_hints_are_counted(
    make_pool: PoolMaker, plan: PlanMaker, hint_list: PlanMaker
) -> None:
    pool = make_pool(3, 5000)
    first, hints = hint_all_at_first(plan, hint_list, 3)
    with Reader(pool.table, hints=HintDelivery(), residency="off") as reader:
        counts = counts_of(reader.replay(first, hints=hints))
    assert counts.completed.tolist() == [1]
    assert counts.hinted_bytes.tolist() == [2 * rounded(5000)]
    for bytes_ in (counts.resident_before_bytes, counts.brought_bytes, counts.used_bytes):
        assert bytes_ is None
    assert counts.unused_bytes is None


# ---- The readahead window ----


def window_bytes(path: str) -> int:
    """The larger of readahead and request size of the disk that holds a file."""
    device = os.stat(path).st_dev
    sysfs = Path(os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))
    queue = sysfs / "queue" if (sysfs / "queue").is_dir() else sysfs.parent / "queue"
    kibs = [int((queue / name).read_text()) for name in ("read_ahead_kb", "max_sectors_kb")]
    return max(kibs) * 1024


@pytest.mark.parametrize("mode", ["pread", "mmap"])
def test_one_call_is_cut_at_the_readahead_window_and_chunks_are_not(
    make_pool: PoolMaker, plan: PlanMaker, hint_list: PlanMaker, mode: Mode
) -> None:
    pool = make_pool(2, PAGE)
    window = window_bytes(pool.table.paths[0])
    length = 2 * window + 12_345
    path = Path(pool.table.paths[1])
    with path.open("wb") as file:
        file.write(bytes(length))
        os.fsync(file.fileno())
    table = replace(
        pool.table, extents=np.array([(0, 0, PAGE), (1, 0, length)], dtype=EXTENT_DTYPE)
    )
    resident = {}
    for chunk_bytes in (0, DEFAULT_CHUNK_BYTES):
        pool.evict()
        delivery = HintDelivery(chunk_bytes=chunk_bytes)
        with Reader(table, mode=mode, hints=delivery) as reader:
            counts = counts_of(reader.replay(plan([[0]]), hints=hint_list([[1]])))
        assert counts.hinted_bytes.tolist() == [rounded(length)]
        resident[chunk_bytes] = int(known(counts.resident_after_bytes)[0])
        assert known(counts.brought_bytes).tolist() == [resident[chunk_bytes]]
    assert resident[DEFAULT_CHUNK_BYTES] >= 0.99 * length
    assert resident[0] == window


@pytest.mark.parametrize("mode", ["pread", "mmap"])
def test_chunks_start_on_pages_wherever_the_expert_does(
    make_pool: PoolMaker, plan: PlanMaker, hint_list: PlanMaker, mode: Mode
) -> None:
    """madvise takes nothing else."""
    pool = make_pool(1, 1 << 20)
    extents = np.array([(0, 0, 1), (0, 5 * PAGE + 17, 100 * PAGE)], dtype=EXTENT_DTYPE)
    table = replace(pool.table, extents=extents, expert_start=np.arange(3, dtype=np.uint64))
    for chunk_bytes in (1, PAGE, 3 * PAGE + 5, 7 * PAGE, 0):
        pool.evict()
        delivery = HintDelivery(chunk_bytes=chunk_bytes)
        with Reader(table, mode=mode, hints=delivery, advice="random") as reader:
            counts = counts_of(reader.replay(plan([[0]]), hints=hint_list([[1]])))
        assert known(counts.resident_after_bytes).tolist() == [101 * PAGE]
        assert pool.resident_pages() == 102


def test_a_chunk_as_large_as_the_window_is_not_cut(
    make_pool: PoolMaker, plan: PlanMaker, hint_list: PlanMaker
) -> None:
    """It would be by one page, each time, if it did not start on one."""
    pool = make_pool(1, PAGE)
    path = Path(pool.table.paths[0])
    window = window_bytes(str(path))
    with path.open("wb") as file:
        file.write(bytes(3 * window + 2 * PAGE))
        os.fsync(file.fileno())
    extents = np.array([(0, 0, 1), (0, PAGE + 17, 3 * window)], dtype=EXTENT_DTYPE)
    table = replace(pool.table, extents=extents, expert_start=np.arange(3, dtype=np.uint64))
    pool.evict()
    delivery = HintDelivery(chunk_bytes=window)
    with Reader(table, hints=delivery, advice="random") as reader:
        counts = counts_of(reader.replay(plan([[0]]), hints=hint_list([[1]])))
    assert known(counts.resident_after_bytes).tolist() == [3 * window + PAGE]


# ---- Failures ----


def test_a_hint_that_fails_is_counted_and_named(
    make_pool: PoolMaker, plan: PlanMaker, hint_list: PlanMaker
) -> None:
    pool = make_pool(4, 50_000)
    with Reader(pool.table, hints=HintDelivery("blocking")) as reader:
        os.truncate(pool.table.paths[2], 10_000)
        result = reader.replay(plan([[0], [0]]), hints=hint_list([[1, 2, 3], []]))
    counts = counts_of(result)
    assert (counts.failed.tolist(), counts.completed.tolist()) == ([1, 0], [0, 0])
    assert result.iteration_reads.tolist() == [1, 1]
    failure = counts.first_failure
    assert failure is not None
    assert (failure.errno, failure.call, failure.expert) == (errno.ENODATA, "pread", 2)
    assert (failure.path, failure.offset) == (pool.table.paths[2], 10_000)
    # The one before it was given, the one behind it was not.
    assert counts.hinted_bytes.tolist() == [2 * rounded(50_000), 0]


def test_a_missing_file_fails_the_hint_alone(
    make_pool: PoolMaker, plan: PlanMaker, hint_list: PlanMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no descriptor left for the worker it opens files as it goes."""
    monkeypatch.setattr("pagetier.native.reader.descriptors_at_hand", lambda wanted, threads: 0)
    pool = make_pool(3, 5000)
    with Reader(pool.table, hints=HintDelivery(), residency="off") as reader:
        assert reader.kept_open_files == 0
        os.unlink(pool.table.paths[2])
        counts = counts_of(reader.replay(plan([[0]]), hints=hint_list([[1, 2]])))
    assert counts.failed.tolist() == [1]
    assert counts.first_failure is not None
    assert (counts.first_failure.call, counts.first_failure.errno) == ("open", errno.ENOENT)


@pytest.mark.parametrize("delivery", DELIVERIES, ids=str)
def test_direct_reads_take_no_hints(make_pool: PoolMaker, delivery: HintDelivery) -> None:
    pool = make_pool(1, 5000)
    with pytest.raises(ValueError, match="read twice"):
        Reader(pool.table, mode="direct", hints=delivery)


def test_an_expert_of_the_arena_is_not_hinted(
    make_pool: PoolMaker, plan: PlanMaker, hint_list: PlanMaker, vm_lck: Callable[[], int]
) -> None:
    pool = make_pool(3, 5000)
    with Arena(pool.table, [1], vm_lck_bytes=vm_lck) as arena:
        arena.preload()
        with Reader(pool.table, arena=arena, hints=HintDelivery()) as reader:
            with pytest.raises(ValueError, match=r"hint_experts\[1\]"):
                reader.replay(plan([[0]]), hints=hint_list([[2, 1]]))
            result = reader.replay(plan([[0], [1]]), hints=hint_list([[2], [2]]))
    assert counts_of(result).submitted.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([[1], [3]], r"hint_experts\[1\]"),
        ([[1]], "hint_start must have 3 entries for 2 records, not 2"),
        ([[1], [2], []], "hint_start must have 3 entries"),
    ],
)
def test_hints_that_do_not_fit(
    make_pool: PoolMaker, plan: PlanMaker, hint_list: PlanMaker, records: Any, message: str
) -> None:
    pool = make_pool(3, 5000)
    with Reader(pool.table, hints=HintDelivery()) as reader:
        with pytest.raises(ValueError, match=message):
            reader.replay(plan([[0], [0]]), hints=hint_list(records))
        falling = replace(hint_list([[1], [2]]), hint_start=np.array([0, 3, 2], np.uint64))
        with pytest.raises(ValueError, match=r"hint_start\[2\]"):
            reader.replay(plan([[0], [0]]), hints=falling)


def test_hints_and_a_worker_belong_together(
    make_pool: PoolMaker, plan: PlanMaker, hint_list: PlanMaker
) -> None:
    pool = make_pool(1, 5000)
    with Reader(pool.table) as reader, pytest.raises(ValueError, match="hints"):
        reader.replay(plan([[0]]), hints=hint_list([[0]]))
    with Reader(pool.table, hints=HintDelivery()) as reader, pytest.raises(ValueError):
        reader.replay(plan([[0]]))


@pytest.mark.parametrize(
    ("delivery", "message"),
    [
        (HintDelivery(chunk_bytes=-1), "chunk_bytes must be 0"),
        (HintDelivery(ANOTHER), "delivery must be one of advice, blocking"),
    ],
)
def test_unknown_deliveries(make_pool: PoolMaker, delivery: HintDelivery, message: str) -> None:
    pool = make_pool(1, 5000)
    with pytest.raises(ValueError, match=message):
        Reader(pool.table, hints=delivery)


# ---- Ends ----


@pytest.mark.parametrize("delivery", DELIVERIES, ids=str)
def test_cancel_ends_the_worker_too(
    make_pool: PoolMaker, plan: PlanMaker, hint_list: PlanMaker, delivery: HintDelivery
) -> None:
    def stop(progress: Progress) -> None:
        reader.cancel()

    pool = make_pool(4, 1 << 20)
    records = [[i % 4, (i + 1) % 4] for i in range(40_000)]
    with Reader(pool.table, hints=delivery) as reader, pytest.raises(ReplayCancelled):
        reader.replay(
            plan(records),
            hints=hint_list([*records[1:], []]),
            on_progress=stop,
            progress_interval_s=0.01,
        )


def test_no_descriptor_of_the_worker_stays(
    make_pool: PoolMaker, plan: PlanMaker, hint_list: PlanMaker
) -> None:
    pool = make_pool(3, 5000)
    before = len(os.listdir("/proc/self/fd"))
    with Reader(pool.table, mode="mmap", hints=HintDelivery("blocking")) as reader:
        assert len(os.listdir("/proc/self/fd")) == before + 6
        reader.replay(plan([[0]]), hints=hint_list([[1, 2]]))
    assert len(os.listdir("/proc/self/fd")) == before
