# SPDX-License-Identifier: Apache-2.0
import errno
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, get_args

import numpy as np
import pytest

from pagetier.native import content, passes
from pagetier.native import reader as reader_module
from pagetier.native._core import lib
from pagetier.native.digest import digest
from pagetier.native.errors import ReplayCancelled, ReplayError
from pagetier.native.reader import (
    EXTENT_DTYPE,
    Advice,
    Barrier,
    ExtentTable,
    Mode,
    PassResult,
    Progress,
    Reader,
)
from pagetier.native.residency import page_bytes, resident_pages

SEED = 20261129
PAGE = page_bytes()
MODES = get_args(Mode)
BARRIERS = get_args(Barrier)

PoolMaker = Callable[[int, int], Any]
PlanMaker = Callable[..., Any]


def random_records(num_experts: int, records: int, seed: int = 1) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.choice(num_experts, 4, replace=False).tolist() for _ in range(records)]


# ---- What a replay reports ----


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("barrier", BARRIERS)
@pytest.mark.parametrize("threads", [1, 3, 8])
def test_every_read_is_made_counted_and_right(
    make_pool: PoolMaker, plan: PlanMaker, mode: Mode, barrier: Barrier, threads: int
) -> None:
    pool = make_pool(8, 10_001)
    reads = plan(random_records(8, 60), [10] * 6)
    with Reader(pool.table, threads=threads, mode=mode, barrier=barrier) as reader:
        for _ in range(2):
            before = time.monotonic_ns()
            result = reader.replay(reads, verify_every=1, content_seed=SEED)
            after = time.monotonic_ns()
            assert before <= result.start_ns <= result.iteration_end_ns[0]
            assert (np.diff(result.iteration_end_ns) >= 0).all()
            assert result.iteration_end_ns[-1] <= after
            assert result.iteration_reads.tolist() == [40] * 6
            assert result.iteration_bytes.tolist() == [400_040] * 6
            assert result.latency_histogram.sum() == 240
            assert result.verified_reads == 240
            assert reader.progress() == Progress(reads=240, bytes=2_400_240, iterations=6)


@pytest.mark.parametrize("barrier", ["record", "iteration"])
def test_iterations_behind_a_barrier_end_one_after_the_other(
    make_pool: PoolMaker, plan: PlanMaker, barrier: Barrier
) -> None:
    pool = make_pool(8, 4096)
    reads = plan(random_records(8, 200))
    with Reader(pool.table, barrier=barrier) as reader:
        result = reader.replay(reads)
    assert (np.diff(result.iteration_end_ns) > 0).all()
    assert result.iteration_wall_ns.sum() == result.iteration_end_ns[-1] - result.start_ns


def test_empty_iterations_and_records(make_pool: PoolMaker, plan: PlanMaker) -> None:
    pool = make_pool(3, 5000)
    reads = plan([[], [0, 1], [], [], [2], []], [1, 0, 2, 1, 0, 2])
    for barrier in BARRIERS:
        with Reader(pool.table, barrier=barrier) as reader:
            result = reader.replay(reads)
        assert result.iteration_reads.tolist() == [0, 0, 2, 0, 0, 1]
        wall = result.iteration_wall_ns
        assert wall[[0, 1, 3, 4]].tolist() == [0, 0, 0, 0]
        assert wall[2] > 0


def test_a_plan_without_reads(make_pool: PoolMaker, plan: PlanMaker) -> None:
    pool = make_pool(1, 5000)
    with Reader(pool.table) as reader:
        nothing = reader.replay(plan([], []))
        assert len(nothing.iteration_end_ns) == 0
        assert nothing.latency_quantile_ns(0.5) is None
        empty = reader.replay(plan([[], []]))
        assert empty.iteration_end_ns.tolist() == [empty.start_ns] * 2


def test_verification_is_a_sample(make_pool: PoolMaker, plan: PlanMaker) -> None:
    pool = make_pool(8, 5000)
    reads = plan(random_records(8, 25))
    with Reader(pool.table) as reader:
        assert reader.replay(reads).verified_reads == 0
        assert reader.replay(reads, verify_every=7, content_seed=SEED).verified_reads == 15


def digests_of(table: ExtentTable) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.array([digest(Path(path).read_bytes()) for path in table.paths], dtype=np.uint64)


@pytest.mark.parametrize("mode", ["pread", "mmap"])
def test_content_may_be_known_by_digests(make_pool: PoolMaker, plan: PlanMaker, mode: Mode) -> None:
    """Whatever the seed: the content of a model comes from none."""
    pool = make_pool(8, 5001)
    digests = digests_of(pool.table)
    digests[7] = 0  # not read, and so not needed
    reads = plan(random_records(7, 25))
    with Reader(pool.table, mode=mode, threads=3) as reader:
        found = reader.replay(reads, verify_every=7, content_seed=1, expert_digests=digests)
        assert found.verified_reads == 15
        digests[reads.experts[14]] ^= np.uint64(1)
        with pytest.raises(ReplayError) as raised:
            reader.replay(plan([reads.experts[14:]]), verify_every=64, expert_digests=digests)
    assert (raised.value.errno, raised.value.call) == (errno.EILSEQ, "verify")
    assert raised.value.expert == reads.experts[14]


@pytest.mark.parametrize(
    ("digests", "message"),
    [
        (np.zeros(2, dtype=np.uint64), "expert_digests must have one of each expert, 3"),
        (np.zeros(4, dtype=np.uint64), "expert_digests must have one of each expert, 3"),
        (np.array([0, -1, 0]), "expert_digests holds values outside"),
        (np.zeros(3), "expert_digests must be"),
    ],
)
def test_digests_that_do_not_fit(
    make_pool: PoolMaker, plan: PlanMaker, digests: Any, message: str
) -> None:
    pool = make_pool(3, 5000)
    with Reader(pool.table) as reader:
        with pytest.raises(ValueError, match=message):
            reader.replay(plan([[0]]), verify_every=1, expert_digests=digests)
        reader.replay(plan([[0]]), verify_every=1, content_seed=SEED)


def test_cpu_time_is_that_of_the_threads(make_pool: PoolMaker, plan: PlanMaker) -> None:
    pool = make_pool(4, 1 << 20)
    with Reader(pool.table, threads=2) as reader:
        before = os.times()
        result = reader.replay(plan(random_records(4, 600)))
        after = os.times()
    spent_ns = (after.user - before.user + after.system - before.system) * 1e9
    assert 0 < result.user_ns + result.system_ns <= spent_ns + 3e7
    assert result.system_ns > result.user_ns


def descriptors_of(paths: tuple[str, ...]) -> list[int]:
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    return [fd for fd in numbers if os.path.realpath(f"/proc/self/fd/{fd}") in paths]


def test_children_do_not_inherit_the_files(make_pool: PoolMaker) -> None:
    pool = make_pool(3, 5000)
    with Reader(pool.table):
        held = descriptors_of(pool.table.paths)
        assert len(held) == 3
        assert not any(map(os.get_inheritable, held))
    assert descriptors_of(pool.table.paths) == []


def test_a_file_of_several_experts_is_open_once_per_thread(
    make_pool: PoolMaker, plan: PlanMaker
) -> None:
    pool = make_pool(2, 8000)
    pieces = [(0, 0, 8000), (1, 0, 4000), (1, 4000, 4000)]
    table = replace(
        pool.table,
        extents=np.array(pieces, dtype=EXTENT_DTYPE),
        expert_start=np.array([0, 1, 2, 3], dtype=np.uint64),
    )
    with Reader(table, threads=5, residency="off") as reader:
        assert reader.kept_open_files == 2
        assert len(descriptors_of(pool.table.paths[:1])) == 1
        assert len(descriptors_of(pool.table.paths[1:])) == 5
        reader.replay(plan([[0, 1, 2]] * 20))
    with Reader(table, threads=5, mode="mmap") as reader:
        assert reader.kept_open_files == 0
        assert descriptors_of(pool.table.paths) == []


# ---- Extents ----


def scattered_table(disk_path: Path) -> tuple[ExtentTable, list[bytes]]:
    """Experts in pieces: over two files, out of order, of no length at all."""
    rng = np.random.default_rng(3)
    files = [rng.bytes(50_000), rng.bytes(70_001)]
    paths = []
    for number, text in enumerate(files):
        path = disk_path / f"file {number} ü"
        path.write_bytes(text)
        paths.append(str(path))
    pieces = [
        [(0, 17, 9000), (1, 60_000, 10_001), (0, 0, 17)],
        [],
        [(1, 5, 0)],
        [(1, 4095, 2)],
        [(0, 49_999, 1), (0, 100, 0), (1, 0, 1)],
    ]
    flat = [piece for expert in pieces for piece in expert]
    starts = np.cumsum([0, *(len(expert) for expert in pieces)]).astype(np.uint64)
    contents = [b"".join(files[f][o : o + n] for f, o, n in expert) for expert in pieces]
    return ExtentTable(tuple(paths), np.array(flat, dtype=EXTENT_DTYPE), starts), contents


@pytest.mark.parametrize("mode", MODES)
def test_experts_of_many_extents_and_of_none(disk_path: Path, plan: PlanMaker, mode: Mode) -> None:
    table, contents = scattered_table(disk_path)
    with Reader(table, mode=mode) as reader:
        result = reader.replay(plan([[expert] for expert in range(5)] * 3))
    assert result.iteration_bytes.tolist() == [len(text) for text in contents] * 3
    assert result.iteration_reads.tolist() == [1] * 15


@pytest.mark.parametrize(
    ("at", "in_file"),
    [(0, 50_000), (10, 50_010), (11, 100), (20_010, 20_099), (20_011, 60_000), (29_999, 69_988)],
)
def test_content_is_verified_across_extents(
    disk_path: Path, plan: PlanMaker, at: int, in_file: int
) -> None:
    expert = bytearray(30_000)
    content.fill(expert, SEED, 0)
    expert[at] ^= 1
    path = disk_path / "pieces"
    pieces = [(50_000, 0, 11), (7, 11, 0), (100, 11, 20_000), (60_000, 20_011, 9989)]
    with path.open("wb") as file:
        for offset, start, length in pieces:
            os.pwrite(file.fileno(), expert[start : start + length], offset)
    extents = [(0, offset, length) for offset, _, length in pieces]
    table = ExtentTable(
        (str(path),), np.array(extents, EXTENT_DTYPE), np.array([0, len(extents)], np.uint64)
    )
    with Reader(table) as reader, pytest.raises(ReplayError, match="content is not") as raised:
        reader.replay(plan([[0]]), verify_every=1, content_seed=SEED)
    error = raised.value
    assert (error.errno, error.call) == (errno.EILSEQ, "verify")
    assert (error.filename, error.expert, error.offset) == (str(path), 0, in_file)


# ---- Residency ----


def pages_of(pool: Any) -> int:
    return int(math.ceil(pool.expert_bytes / PAGE) * PAGE)


@pytest.mark.parametrize("residency", ["auto", "cachestat", "mincore"])
def test_absent_bytes_are_first_and_then_repeat(
    make_pool: PoolMaker, plan: PlanMaker, residency: Any
) -> None:
    pool = make_pool(4, 5 * PAGE + 1)
    once = plan([[0, 1], [2, 3], [0, 1]])
    pool.evict()
    with Reader(pool.table, advice="random", residency=residency) as reader:
        assert reader.residency in ("cachestat", "mincore")
        cold = reader.replay(once)
        warm = reader.replay(once)
        pool.evict()
        evicted = reader.replay(once)
    expected = 2 * pages_of(pool)
    assert cold.iteration_first_bytes is not None
    assert cold.iteration_repeat_bytes is not None
    assert cold.iteration_first_bytes.tolist() == [expected, expected, 0]
    assert cold.iteration_repeat_bytes.tolist() == [0, 0, 0]
    assert warm.iteration_first_bytes is not None
    assert warm.iteration_repeat_bytes is not None
    assert warm.iteration_first_bytes.sum() + warm.iteration_repeat_bytes.sum() == 0
    assert evicted.iteration_first_bytes is not None
    assert evicted.iteration_repeat_bytes is not None
    assert evicted.iteration_first_bytes.sum() == 0
    assert evicted.iteration_repeat_bytes.tolist() == [expected, expected, 0]


def test_absent_bytes_of_a_mapping(make_pool: PoolMaker, plan: PlanMaker) -> None:
    pool = make_pool(4, 5 * PAGE + 1)
    pool.evict()
    with Reader(pool.table, mode="mmap", advice="random") as reader:
        assert reader.residency == "mincore"
        cold = reader.replay(plan([[0, 1], [2, 3], [0, 1]]))
    assert cold.iteration_first_bytes is not None
    assert cold.iteration_first_bytes.tolist() == [2 * pages_of(pool), 2 * pages_of(pool), 0]


def test_residency_that_was_not_asked_for_is_unknown(make_pool: PoolMaker, plan: PlanMaker) -> None:
    pool = make_pool(1, 5000)
    with Reader(pool.table, residency="off") as reader:
        assert reader.residency is None
        result = reader.replay(plan([[0]]))
    assert result.iteration_first_bytes is None
    assert result.iteration_repeat_bytes is None


@pytest.mark.parametrize(
    ("method", "code", "weaker"),
    [
        ("cachestat", errno.ENOSYS, "mincore"),
        ("cachestat", errno.EPERM, "off"),
        ("mincore", errno.EPERM, "off"),
    ],
)
def test_mincore_is_not_asked_after_a_refusal(method: str, code: int, weaker: str) -> None:
    assert reader_module._weaker_residency(method, code) == weaker


AS_NOBODY = """
import os, sys
import numpy as np
from pagetier.native.errors import ReplayError
from pagetier.native.reader import EXTENT_DTYPE, ExtentTable, Reader
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
table = ExtentTable(
    ("/etc/passwd",), np.array([(0, 0, 1)], EXTENT_DTYPE), np.array([0, 1], np.uint64)
)
for mode in ("pread", "mmap"):
    print(mode, Reader(table, mode=mode).residency)
try:
    Reader(table, residency="mincore")
except ReplayError as error:
    print(error.call, error.strerror.split(" (")[0])
"""


def test_residency_of_foreign_files_is_unknown(run_python: Callable[..., str]) -> None:
    pread, mmap, mincore = run_python(AS_NOBODY).splitlines()
    assert pread in ("pread None", "pread cachestat")
    assert mmap == "mmap None"
    assert mincore == "mincore Operation not permitted"


# ---- Advice ----


@pytest.mark.parametrize("mode", ["pread", "mmap", "populate"])
def test_random_advice_reads_the_extents_and_no_neighbour(
    make_pool: PoolMaker, plan: PlanMaker, mode: Mode
) -> None:
    """Two experts side by side, read in order: what readahead lives on."""
    pool = make_pool(1, 4 << 20)
    side_by_side = [(0, 1 << 20, 16 * PAGE), (0, (1 << 20) + 16 * PAGE, 16 * PAGE)]
    table = replace(
        pool.table,
        extents=np.array(side_by_side, dtype=EXTENT_DTYPE),
        expert_start=np.arange(3, dtype=np.uint64),
    )
    resident: dict[Advice, int] = {}
    for advice in get_args(Advice):
        pool.evict()
        with Reader(table, mode=mode, advice=advice, threads=1) as reader:
            reader.replay(plan([[0], [1]]))
        fd = os.open(table.paths[0], os.O_RDONLY)
        resident[advice] = resident_pages(fd, 0, 4 << 20) or 0
        os.close(fd)
    assert resident["random"] == 32
    assert resident["default"] > 32
    assert resident["sequential"] > 32


# ---- Failures ----


@pytest.mark.parametrize("mode", MODES)
def test_a_missing_file(make_pool: PoolMaker, mode: Mode) -> None:
    pool = make_pool(3, 5000)
    os.unlink(pool.table.paths[1])
    with pytest.raises(ReplayError, match=r"No such file.*1\.bin") as raised:
        Reader(pool.table, mode=mode)
    assert (raised.value.errno, raised.value.call) == (errno.ENOENT, "open")
    assert raised.value.filename == pool.table.paths[1]
    assert raised.value.expert is None


@pytest.mark.parametrize("mode", MODES)
def test_a_link_is_not_followed(make_pool: PoolMaker, mode: Mode) -> None:
    pool = make_pool(3, 5000)
    os.unlink(pool.table.paths[1])
    os.symlink(pool.table.paths[0], pool.table.paths[1])
    with pytest.raises(ReplayError, match="symbolic link"):
        Reader(pool.table, mode=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make_node", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file(
    make_pool: PoolMaker, mode: Mode, make_node: Callable[[str], None]
) -> None:
    pool = make_pool(3, 5000)
    os.unlink(pool.table.paths[1])
    make_node(pool.table.paths[1])
    with pytest.raises(ReplayError, match="not a regular file"):
        Reader(pool.table, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_file_truncated_before(make_pool: PoolMaker, mode: Mode) -> None:
    pool = make_pool(3, 50_000)
    os.truncate(pool.table.paths[2], 49_999)
    with pytest.raises(ReplayError, match="truncated") as raised:
        Reader(pool.table, mode=mode)
    assert raised.value.errno == errno.ENODATA
    assert raised.value.filename == pool.table.paths[2]
    assert raised.value.offset == 49_999


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [0, 100, 3 * PAGE, 50_000 - 1])
def test_a_file_truncated_while_open(
    make_pool: PoolMaker, plan: PlanMaker, mode: Mode, size: int
) -> None:
    pool = make_pool(3, 50_000)
    with Reader(pool.table, mode=mode) as reader:
        os.truncate(pool.table.paths[2], size)
        with pytest.raises(ReplayError, match="truncated") as raised:
            reader.replay(plan([[0, 1, 2]] * 5))
        assert raised.value.errno == errno.ENODATA
        assert raised.value.filename == pool.table.paths[2]
        assert size <= raised.value.offset < size + PAGE
        # The others can still be read, and nobody's SIGBUS handler is left behind.
        os.truncate(pool.table.paths[2], 50_000)
        reader.replay(plan([[0, 1]]))


def test_wrong_content_of_a_mapping(make_pool: PoolMaker, plan: PlanMaker) -> None:
    pool = make_pool(2, 50_000)
    with Reader(pool.table, mode="mmap") as reader, pytest.raises(ReplayError) as raised:
        reader.replay(plan([[1]]), verify_every=1, content_seed=SEED + 1)
    assert (raised.value.errno, raised.value.expert) == (errno.EILSEQ, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda marks: marks + np.array([[0, 0], [0, 1], [0, 0]], dtype=np.uint64), "another file"),
        (lambda marks: marks + np.array([[0, 0], [0, 0], [1, 0]], dtype=np.uint64), "another file"),
        (lambda marks: marks[:2], "identities must have"),
    ],
)
def test_identities_of_other_files(
    make_pool: PoolMaker, plan: PlanMaker, change: Callable[[Any], Any], message: str
) -> None:
    pool = make_pool(3, 5000)
    marks = [(os.stat(path).st_dev, os.stat(path).st_ino) for path in pool.table.paths]
    known = np.array(marks, dtype=np.uint64)
    with Reader(replace(pool.table, identities=known)) as reader:
        reader.replay(plan([[0, 1, 2]]), verify_every=1, content_seed=SEED)
    with pytest.raises((ReplayError, ValueError), match=message):
        Reader(replace(pool.table, identities=change(known)))


def test_a_file_that_is_opened_per_read_is_known_again(
    make_pool: PoolMaker, plan: PlanMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_pool(3, 5000)
    marks = [(os.stat(path).st_dev, os.stat(path).st_ino) for path in pool.table.paths]
    table = replace(pool.table, identities=np.array(marks, dtype=np.uint64))
    monkeypatch.setattr(reader_module, "descriptors_at_hand", lambda wanted, threads: 0)
    with Reader(table) as reader:
        assert reader.kept_open_files == 0
        reader.replay(plan([[0, 1, 2]]))
        os.replace(pool.table.paths[2], pool.table.paths[1])
        reader.replay(plan([[0]]))
        with pytest.raises(ReplayError, match="another file") as raised:
            reader.replay(plan([[1]]))
    assert (raised.value.errno, raised.value.expert) == (errno.ESTALE, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"experts": np.array([0, 3], np.uint32)}, r"experts\[1\]"),
        ({"experts": np.array([0], np.uint32)}, r"record_start\[2\]"),
        ({"experts": np.array([0, -1], np.int64)}, "experts holds values outside"),
        ({"experts": np.array([0.0, 1.0])}, "experts must be"),
        ({"experts": np.array([[0, 1]], np.uint32)}, "experts must be"),
        ({"record_start": np.array([0, 2, 1], np.uint64)}, r"record_start\[2\]"),
        ({"record_start": np.array([1, 1, 2], np.uint64)}, r"record_start\[0\]"),
        ({"record_start": np.array([], np.uint64)}, "record_start must be"),
        ({"record_start": np.array([0, 1], np.uint64)}, r"record_start\[1\]"),
        ({"iteration_start": np.array([0, 3, 2], np.uint64)}, r"iteration_start\[2\]"),
        ({"iteration_start": np.array([0, 1], np.uint64)}, r"iteration_start\[1\]"),
        ({"iteration_start": np.array([0, 2**63], np.uint64)}, r"iteration_start\[1\]"),
    ],
)
def test_plans_that_do_not_fit(
    make_pool: PoolMaker, plan: PlanMaker, change: dict[str, Any], message: str
) -> None:
    pool = make_pool(3, 5000)
    with Reader(pool.table) as reader:
        with pytest.raises(ValueError, match=message):
            reader.replay(replace(plan([[0], [1]]), **change))
        reader.replay(plan([[0], [1]]))


@pytest.mark.parametrize(
    ("extents", "starts", "message"),
    [
        ([(3, 0, 5)], [0, 1], r"extents\[0\]"),
        ([(0, 2**63, 1)], [0, 1], r"extents\[0\]"),
        ([(0, 0, 5), (0, 1, 2**64 - 1)], [0, 1, 2], r"extents\[1\]"),
        ([(0, 0, 5)], [0, 2], r"expert_start\[1\]"),
        ([(0, 0, 5), (0, 5, 5)], [0, 2, 1, 2], r"expert_start\[2\]"),
        ([(0, 0, 5)], [], "expert_start must be"),
    ],
)
def test_tables_that_do_not_fit(
    make_pool: PoolMaker, extents: list[Any], starts: list[int], message: str
) -> None:
    pool = make_pool(3, 5000)
    table = ExtentTable(
        pool.table.paths, np.array(extents, EXTENT_DTYPE), np.array(starts, np.uint64)
    )
    with pytest.raises(ValueError, match=message):
        Reader(table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "threads"),
        ({"threads": 100_000}, "threads"),
        ({"mode": "odirect"}, "mode must be one of pread, mmap, populate, direct, dontcache"),
        ({"barrier": "layer"}, "barrier must be one of"),
        ({"advice": "willneed"}, "advice must be one of"),
        ({"residency": "fincore"}, "residency must be one of"),
        ({"mode": "direct", "advice": "random"}, "does nothing"),
    ],
)
def test_unknown_options(make_pool: PoolMaker, options: dict[str, Any], message: str) -> None:
    pool = make_pool(1, 5000)
    with pytest.raises(ValueError, match=message):
        Reader(pool.table, **options)


def test_a_path_with_a_null_character() -> None:
    table = ExtentTable(("a\0b",), np.zeros(0, EXTENT_DTYPE), np.zeros(1, np.uint64))
    with pytest.raises(ValueError, match="null character"):
        Reader(table)


def test_a_closed_reader_says_so(make_pool: PoolMaker, plan: PlanMaker) -> None:
    pool = make_pool(1, 5000)
    reader = Reader(pool.table)
    reader.close()
    reader.close()
    for call in (reader.cancel, reader.progress, lambda: reader.replay(plan([[0]]))):
        with pytest.raises(ValueError, match="closed"):
            call()


# ---- Progress, cancel, signals ----


@pytest.fixture
def long_plan(plan: PlanMaker) -> Any:
    """Reads for minutes over a pool of four experts of 1 MiB."""
    whole = plan(random_records(4, 1000), [10] * 100)
    return replace(
        whole,
        experts=np.tile(whole.experts, 500),
        record_start=np.arange(0, 500 * 4000 + 1, 4, dtype=np.uint64),
        iteration_start=np.arange(0, 500 * 1000 + 1, 10, dtype=np.uint64),
    )


def while_reading(reader: Reader, action: Callable[[], None]) -> threading.Thread:
    """Start a thread that does something as soon as the first read is made."""

    def run() -> None:
        while reader.progress().reads == 0:
            time.sleep(0.001)
        action()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_progress_grows_and_ends_complete(make_pool: PoolMaker, plan: PlanMaker) -> None:
    pool = make_pool(4, 1 << 20)
    seen: list[Progress] = []
    with Reader(pool.table) as reader:
        reader.replay(
            plan(random_records(4, 500)), on_progress=seen.append, progress_interval_s=0.005
        )
    assert len(seen) > 1
    assert seen == sorted(seen, key=lambda progress: progress.reads)
    assert seen[0].reads < 2000
    assert seen[-1] == Progress(reads=2000, bytes=2000 << 20, iterations=500)
    assert all(progress.bytes <= (progress.reads + 8) << 20 for progress in seen)


@pytest.mark.parametrize("barrier", BARRIERS)
@pytest.mark.parametrize("mode", MODES)
def test_cancel_from_another_thread(
    make_pool: PoolMaker, plan: PlanMaker, long_plan: Any, barrier: Barrier, mode: Mode
) -> None:
    pool = make_pool(4, 1 << 20)
    with Reader(pool.table, barrier=barrier, mode=mode) as reader:
        thread = while_reading(reader, reader.cancel)
        with pytest.raises(ReplayCancelled) as raised:
            reader.replay(long_plan, progress_interval_s=30)
        assert raised.value.errno == errno.ECANCELED
        thread.join()
        assert 0 < reader.progress().reads < len(long_plan.experts)
        with pytest.raises(ReplayCancelled):
            reader.replay(plan([[0]]))


def test_an_exception_in_the_progress_call_ends_the_replay(
    make_pool: PoolMaker, long_plan: Any
) -> None:
    def stop(progress: Progress) -> None:
        raise RuntimeError("enough")

    pool = make_pool(4, 1 << 20)
    with Reader(pool.table) as reader:
        with pytest.raises(RuntimeError, match="enough"):
            reader.replay(long_plan, on_progress=stop)
        assert reader.progress().reads < len(long_plan.experts)


def test_ctrl_c_ends_the_replay(make_pool: PoolMaker, long_plan: Any) -> None:
    pool = make_pool(4, 1 << 20)
    with Reader(pool.table) as reader:
        thread = while_reading(reader, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            reader.replay(long_plan)
        thread.join()
        assert reader.progress().reads < len(long_plan.experts)


def test_signals_do_not_disturb_the_reads(make_pool: PoolMaker, plan: PlanMaker) -> None:
    alarms = 0

    def count(signal_number: int, frame: FrameType | None) -> None:
        nonlocal alarms
        alarms += 1

    pool = make_pool(4, 1 << 20)
    previous = signal.signal(signal.SIGALRM, count)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        with Reader(pool.table) as reader:
            result = reader.replay(plan(random_records(4, 500)), verify_every=1, content_seed=SEED)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert result.verified_reads == 2000
    assert alarms > 5


def test_one_replay_at_a_time(make_pool: PoolMaker, long_plan: Any, plan: PlanMaker) -> None:
    pool = make_pool(4, 1 << 20)
    with Reader(pool.table) as reader:

        def again(progress: Progress) -> None:
            reader.replay(plan([[0]]))

        with pytest.raises(RuntimeError, match="already"):
            reader.replay(long_plan, on_progress=again)


def test_closing_ends_a_replay_in_another_thread(make_pool: PoolMaker, long_plan: Any) -> None:
    pool = make_pool(4, 1 << 20)
    reader = Reader(pool.table)
    thread = while_reading(reader, reader.close)
    with pytest.raises(ReplayCancelled):
        reader.replay(long_plan, progress_interval_s=30)
    thread.join()
    with pytest.raises(ValueError, match="closed"):
        reader.progress()


def test_closing_from_the_progress_call(make_pool: PoolMaker, long_plan: Any) -> None:
    pool = make_pool(4, 1 << 20)
    reader = Reader(pool.table)
    with pytest.raises(ValueError, match="closed"):
        reader.replay(long_plan, on_progress=lambda progress: reader.close())


def test_readers_side_by_side(make_pool: PoolMaker, plan: PlanMaker) -> None:
    pool = make_pool(4, 1 << 18)
    results: list[PassResult] = []

    def run() -> None:
        with Reader(pool.table, mode="mmap", threads=3) as reader:
            results.append(
                reader.replay(plan(random_records(4, 200)), verify_every=1, content_seed=SEED)
            )

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.verified_reads for result in results] == [800] * 3


# ---- Histogram ----


def test_buckets_are_narrow_enough() -> None:
    rng = np.random.default_rng(5)
    values = np.unique(np.exp(rng.uniform(0, np.log(2.0**62), 20_000)).astype(np.int64))
    for value in values.tolist():
        middle = passes._bucket_middle_ns(lib.pt_histogram_bucket(value))
        assert abs(middle - value) <= 0.016 * value


@pytest.mark.parametrize("q", [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0])
def test_quantiles_are_within_three_percent(q: float) -> None:
    latencies = np.exp(np.random.default_rng(6).normal(12, 2, 20_000)).astype(np.int64)
    histogram = np.zeros(lib.PT_HISTOGRAM_BUCKETS, dtype=np.int64)
    np.add.at(histogram, [lib.pt_histogram_bucket(value) for value in latencies.tolist()], 1)
    nothing = np.zeros(0, dtype=np.int64)
    result = PassResult(0, nothing, nothing, nothing, None, None, histogram, 0, 0, 0)
    exact = np.quantile(latencies, q, method="inverted_cdf")
    assert result.latency_quantile_ns(q) == pytest.approx(exact, rel=0.03)


def test_a_quantile_outside_is_refused() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    result = PassResult(0, nothing, nothing, nothing, None, None, nothing, 0, 0, 0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        result.latency_quantile_ns(1.5)


def test_latencies_are_plausible(make_pool: PoolMaker, plan: PlanMaker) -> None:
    """One thread: the sum of all latencies is less than the wall time, and most of it."""
    pool = make_pool(4, 1 << 20)
    with Reader(pool.table, threads=1, residency="off") as reader:
        result = reader.replay(plan(random_records(4, 400)))
    middles = [passes._bucket_middle_ns(b) for b in range(lib.PT_HISTOGRAM_BUCKETS)]
    total_ns = float(np.dot(result.latency_histogram, middles))
    wall_ns = result.iteration_end_ns[-1] - result.start_ns
    assert 0.7 * wall_ns < total_ns < 1.02 * wall_ns
