# SPDX-License-Identifier: Apache-2.0
"""Every way of bringing an expert's bytes into a buffer: the same bytes, and what each leaves."""

import errno
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from pagetier.native import content
from pagetier.native.errors import ReplayError
from pagetier.native.reader import EXTENT_DTYPE, ExtentTable, Mode, Reader
from pagetier.native.residency import page_bytes, pages_touched, resident_pages

SEED = 20261129
PAGE = page_bytes()
MODES = get_args(Mode)
MASK = (1 << 64) - 1

PoolMaker = Callable[[int, int], Any]
PlanMaker = Callable[..., Any]


def xxh64(data: bytes, seed: int) -> int:
    """The specification, word for word."""
    p1, p2, p3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    p4, p5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

    def rotate(word: int, bits: int) -> int:
        word &= MASK
        return (word << bits | word >> (64 - bits)) & MASK

    def lane_round(lane: int, word: int) -> int:
        return rotate(lane + word * p2, 31) * p1 & MASK

    def word_at(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], "little")

    at = 0
    if len(data) >= 32:
        lanes = [(seed + p1 + p2) & MASK, (seed + p2) & MASK, seed, (seed - p1) & MASK]
        while len(data) - at >= 32:
            lanes = [lane_round(lanes[i], word_at(at + 8 * i, 8)) for i in range(4)]
            at += 32
        value = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            value = ((value ^ lane_round(0, lane)) * p1 + p4) & MASK
    else:
        value = (seed + p5) & MASK
    value = (value + len(data)) & MASK
    while len(data) - at >= 8:
        value = (rotate(value ^ lane_round(0, word_at(at, 8)), 27) * p1 + p4) & MASK
        at += 8
    if len(data) - at >= 4:
        value = (rotate(value ^ word_at(at, 4) * p1 & MASK, 23) * p2 + p3) & MASK
        at += 4
    while at < len(data):
        value = rotate(value ^ data[at] * p5 & MASK, 11) * p1 & MASK
        at += 1
    value = (value ^ value >> 33) * p2 & MASK
    value = (value ^ value >> 29) * p3 & MASK
    return value ^ value >> 32


def expert_content(expert: int, length: int) -> bytes:
    buffer = bytearray(length)
    content.fill(buffer, SEED, expert)
    return bytes(buffer)


# ---- The same bytes ----


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("length", [1, 511, 4096, 10_007])
def test_the_hash_of_all_reads_is_that_of_their_content(
    make_pool: PoolMaker, plan: PlanMaker, mode: Mode, length: int
) -> None:
    pool = make_pool(4, length)
    records = [[0, 1], [2], [3, 0, 1]]
    reads = [expert for record in records for expert in record]
    contents = [expert_content(expert, length) for expert in range(4)]
    expected = sum(xxh64(contents[expert], i) for i, expert in enumerate(reads)) & MASK
    with Reader(pool.table, mode=mode, barrier="none") as reader:
        for _ in range(2):
            result = reader.replay(plan(records), hash_content=True)
            assert result.content_hash == expected
        assert reader.replay(plan(records)).content_hash is None


def test_the_hash_tells_content_and_order_apart(make_pool: PoolMaker, plan: PlanMaker) -> None:
    pool = make_pool(3, 5000)
    with Reader(pool.table) as reader:
        hashes = {
            reader.replay(plan(records), hash_content=True).content_hash
            for records in ([[0, 1]], [[1, 0]], [[0, 2]], [[0]])
        }
    assert len(hashes) == 4


@pytest.fixture
def scattered(disk_path: Path) -> Iterator[ExtentTable]:
    """Two files of odd length; experts in pieces at places that no device knows."""
    rng = np.random.default_rng(3)
    paths = []
    for number, length in enumerate((50_000, 70_001)):
        path = disk_path / str(number)
        path.write_bytes(rng.bytes(length))
        paths.append(str(path))
    pieces = [
        [(0, 17, 9000), (1, 60_000, 10_001), (0, 0, 17)],
        [],
        [(1, 4095, 2)],
        [(0, 49_999, 1), (0, 100, 0), (1, 0, 1)],
        [(0, 0, 4096), (1, 8192, 16384)],
    ]
    flat = [piece for expert in pieces for piece in expert]
    starts = np.cumsum([0, *(len(expert) for expert in pieces)]).astype(np.uint64)
    yield ExtentTable(tuple(paths), np.array(flat, dtype=EXTENT_DTYPE), starts)


def test_scattered_extents_are_the_same_in_every_mode(
    scattered: ExtentTable, plan: PlanMaker
) -> None:
    files = [Path(path).read_bytes() for path in scattered.paths]
    starts = scattered.expert_start.tolist()
    pieces = scattered.extents.tolist()
    contents = [
        b"".join(files[f][o : o + n] for f, o, n in pieces[starts[e] : starts[e + 1]])
        for e in range(5)
    ]
    expected = sum(xxh64(contents[i % 5], i) for i in range(20)) & MASK
    for mode in MODES:
        with Reader(scattered, mode=mode, threads=3) as reader:
            result = reader.replay(plan([[0, 1, 2, 3, 4]] * 4), hash_content=True)
        assert result.content_hash == expected, mode


# ---- Direct ----


def blocks(offset: int, length: int, block: int) -> int:
    """Bytes of the device's blocks that an extent lies on."""
    touched = {byte // block for byte in range(offset, offset + length)}
    return len(touched) * block


def test_direct_counts_the_blocks_around_an_extent(
    scattered: ExtentTable, plan: PlanMaker, disk_path: Path
) -> None:
    block = direct_block(disk_path)
    with Reader(scattered, mode="direct") as reader:
        result = reader.replay(plan([[e] for e in range(5)]))
        again = reader.replay(plan([[e] for e in range(5)]))
    assert result.iteration_first_bytes is not None and again.iteration_repeat_bytes is not None
    assert result.iteration_over_read_bytes is not None
    assert again.iteration_over_read_bytes is not None
    starts = scattered.expert_start.tolist()
    pieces = scattered.extents.tolist()
    demand = [sum(n for _, _, n in pieces[starts[e] : starts[e + 1]]) for e in range(5)]
    device = [
        sum(blocks(o, n, block) for _, o, n in pieces[starts[e] : starts[e + 1]]) for e in range(5)
    ]
    assert result.iteration_bytes.tolist() == demand
    assert result.iteration_first_bytes.tolist() == demand
    assert again.iteration_repeat_bytes.tolist() == demand
    over_read = (np.array(device) - np.array(demand)).tolist()
    assert result.iteration_over_read_bytes.tolist() == over_read
    assert again.iteration_over_read_bytes.tolist() == over_read


def direct_block(directory: Path) -> int:
    """The smallest read that O_DIRECT takes here, found by trying."""
    path = directory / "probe"
    path.write_bytes(bytes(1 << 17))
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, 1 << 16)
    for size in (512, 1024, 2048, 4096, 65536):
        try:
            os.preadv(fd, [memoryview(buffer)[:size]], size)
        except OSError as error:
            assert error.errno == errno.EINVAL
        else:
            os.close(fd)
            return size
    raise AssertionError("no O_DIRECT here")


def device_read_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes")))


def test_direct_reads_leave_no_page_and_are_read_again(
    make_pool: PoolMaker, plan: PlanMaker
) -> None:
    pool = make_pool(4, 1 << 20)
    pool.evict()
    with Reader(pool.table, mode="direct") as reader:
        before = device_read_bytes()
        result = reader.replay(plan([[0, 1, 2, 3]] * 5))
        assert device_read_bytes() - before == 20 << 20
    assert pool.resident_pages() == 0
    assert result.iteration_resident_bytes is not None
    assert result.iteration_resident_bytes.tolist() == [0] * 5


def test_direct_reads_of_cached_files_show_what_is_resident(
    make_pool: PoolMaker, plan: PlanMaker
) -> None:
    """What a file system that falls back to buffered reads would look like."""
    pool = make_pool(2, 3 * PAGE + 1)
    for path in pool.table.paths:
        Path(path).read_bytes()
    with Reader(pool.table, mode="direct") as reader:
        result = reader.replay(plan([[0, 1]]))
    assert result.iteration_resident_bytes is not None
    assert result.iteration_resident_bytes.tolist() == [8 * PAGE]
    assert result.iteration_first_bytes is not None
    assert result.iteration_first_bytes.tolist() == [2 * (3 * PAGE + 1)]


def test_direct_knows_its_reads_without_residency(make_pool: PoolMaker, plan: PlanMaker) -> None:
    pool = make_pool(2, 5000)
    with Reader(pool.table, mode="direct", residency="off") as reader:
        result = reader.replay(plan([[0, 1, 0]]))
    assert result.iteration_resident_bytes is None
    assert result.iteration_first_bytes is not None and result.iteration_repeat_bytes is not None
    assert result.iteration_first_bytes.tolist() == [10_000]
    assert result.iteration_repeat_bytes.tolist() == [5000]


def test_other_modes_have_no_over_read_of_their_own(make_pool: PoolMaker, plan: PlanMaker) -> None:
    pool = make_pool(1, 5000)
    with Reader(pool.table) as reader:
        assert reader.replay(plan([[0]])).iteration_over_read_bytes is None


@pytest.mark.parametrize("mode", ["direct", "dontcache"])
def test_a_file_system_without_the_mode_is_named(plan: PlanMaker, mode: Mode) -> None:
    """procfs knows neither; the reader must not read it in another way."""
    table = ExtentTable(
        ("/proc/self/maps",), np.array([(0, 0, 0)], EXTENT_DTYPE), np.array([0, 1], np.uint64)
    )
    with pytest.raises(ReplayError, match=f"leave mode {mode} out") as raised:
        Reader(table, mode=mode, residency="off")
    assert raised.value.filename == "/proc/self/maps"
    assert raised.value.errno in (errno.EINVAL, errno.EOPNOTSUPP)


# ---- What stays in the page cache ----


@pytest.mark.parametrize("mode", ["dontcache", "drop-behind"])
def test_pages_are_gone_after_the_read(make_pool: PoolMaker, plan: PlanMaker, mode: Mode) -> None:
    pool = make_pool(3, 1 << 20)
    pool.evict()
    with Reader(pool.table, mode=mode, threads=2) as reader:
        result = reader.replay(plan([[0, 1, 2]] * 3), verify_every=1, content_seed=SEED)
    assert pool.resident_pages() == 0
    assert result.iteration_first_bytes is not None and result.iteration_repeat_bytes is not None
    assert result.iteration_first_bytes.tolist() == [3 << 20, 0, 0]
    assert result.iteration_repeat_bytes.tolist() == [0, 3 << 20, 3 << 20]


def test_drop_behind_keeps_the_pages_that_neighbours_share(
    make_pool: PoolMaker, plan: PlanMaker
) -> None:
    pool = make_pool(1, 12 * PAGE)
    pieces = [(0, 0, 4 * PAGE + 100), (0, 4 * PAGE + 100, 4 * PAGE), (0, 8 * PAGE + 100, PAGE)]
    table = replace(
        pool.table,
        extents=np.array(pieces, dtype=EXTENT_DTYPE),
        expert_start=np.arange(4, dtype=np.uint64),
    )
    pool.evict()
    with Reader(table, mode="drop-behind", advice="random", threads=1) as reader:
        reader.replay(plan([[0], [1], [2]]))
    fd = os.open(pool.table.paths[0], os.O_RDONLY)
    resident = [page for page in range(12) if resident_pages(fd, page * PAGE, 1)]
    os.close(fd)
    assert resident == [4, 8, 9]


def test_populate_brings_the_extent_and_no_more(make_pool: PoolMaker, plan: PlanMaker) -> None:
    pool = make_pool(1, 1 << 20)
    table = replace(pool.table, extents=np.array([(0, 5 * PAGE + 7, 9 * PAGE)], EXTENT_DTYPE))
    pool.evict()
    with Reader(table, mode="populate", advice="random") as reader:
        result = reader.replay(plan([[0], [0]]))
    assert pool.resident_pages() == pages_touched(5 * PAGE + 7, 9 * PAGE) == 10
    assert result.iteration_first_bytes is not None
    assert result.iteration_first_bytes.tolist() == [10 * PAGE, 0]
    assert result.iteration_resident_bytes is not None
    assert result.iteration_resident_bytes.tolist() == [0, 10 * PAGE]


def test_residency_of_a_mapping_by_descriptor(make_pool: PoolMaker, plan: PlanMaker) -> None:
    pool = make_pool(3, 3 * PAGE)
    pool.evict()
    with Reader(pool.table, mode="mmap", residency="cachestat", threads=4) as reader:
        assert (reader.residency, reader.kept_open_files) == ("cachestat", 3)
        result = reader.replay(plan([[0, 1], [0, 1, 2]]))
    assert result.iteration_first_bytes is not None
    assert result.iteration_first_bytes.tolist() == [6 * PAGE, 3 * PAGE]


@pytest.mark.parametrize("mode", MODES)
def test_no_descriptor_and_no_mapping_stays(
    make_pool: PoolMaker, plan: PlanMaker, mode: Mode
) -> None:
    def held() -> tuple[list[str], int]:
        links = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        maps = Path("/proc/self/maps").read_text()
        return [link for link in links if link in paths], sum(path in maps for path in paths)

    pool = make_pool(3, 5000)
    paths = pool.table.paths
    with Reader(pool.table, mode=mode) as reader:
        reader.replay(plan([[0, 1, 2]]))
        assert held() != ([], 0)
    assert held() == ([], 0)
