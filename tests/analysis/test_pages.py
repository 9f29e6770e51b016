# SPDX-License-Identifier: Apache-2.0
"""Pages of experts against a list of all pages, and the LRU of runs against one of single pages."""

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.pages import (
    Extent,
    extents_of,
    page_demand,
    page_layout,
    page_lru_misses,
)
from pagetier.analysis.plans import Plan
from pagetier.native.reader import EXTENT_DTYPE, ExtentTable

KIB = 1024
PAGES = (4 * KIB, 16 * KIB, 64 * KIB)


def make_plan(experts: list[int], count: int, per_iteration: int = 1) -> Plan:
    starts = np.arange(0, len(experts) + 1, dtype=np.uint64)
    bounds = [*range(0, len(experts), per_iteration), len(experts)]
    return Plan(
        experts=np.array(experts, dtype=np.uint32),
        record_start=starts,
        iteration_start=np.array(bounds, dtype=np.uint64),
        num_layers=1,
        num_experts=count,
    )


def flat(count: int, size: int) -> list[list[Extent]]:
    return [[(0, expert * size, size)] for expert in range(count)]


@pytest.mark.parametrize(
    ("page_bytes", "expert_pages", "pool_pages"),
    [
        # 3 experts of 100,000 B, end to end: 0-99,999, 100,000-199,999, 200,000-299,999.
        (4 * KIB, [25, 25, 26], 74),
        (16 * KIB, [7, 7, 7], 19),
        (64 * KIB, [2, 3, 2], 5),
    ],
)
def test_flat_experts_share_their_edge_pages(
    page_bytes: int, expert_pages: list[int], pool_pages: int
) -> None:
    layout = page_layout(flat(3, 100_000), page_bytes)
    assert layout.expert_pages.tolist() == expert_pages
    assert layout.pool_pages == pool_pages


@pytest.mark.parametrize("page_bytes", PAGES)
def test_one_file_per_expert_shares_nothing(page_bytes: int) -> None:
    layout = page_layout([[(expert, 0, 100_000)] for expert in range(3)], page_bytes)
    each = -(-100_000 // page_bytes)
    assert layout.expert_pages.tolist() == [each] * 3
    assert layout.pool_pages == 3 * each


def test_aligned_experts_share_nothing_on_small_pages_and_do_on_large() -> None:
    assert page_layout(flat(4, 32 * KIB), 16 * KIB).pool_pages == 8
    assert page_layout(flat(4, 32 * KIB), 64 * KIB).expert_pages.tolist() == [1, 1, 1, 1]
    assert page_layout(flat(4, 32 * KIB), 64 * KIB).pool_pages == 2


def test_extents_of_one_expert_that_meet_on_a_page_count_it_once() -> None:
    layout = page_layout([[(0, 0, 6000), (0, 6000, 6000)]], 4096)
    assert layout.expert_pages.tolist() == [3]
    assert layout.pool_pages == 3


def test_experts_without_bytes_have_no_pages() -> None:
    layout = page_layout([[], [(0, 5, 0)], [(0, 0, 1)]], 4096)
    assert layout.expert_pages.tolist() == [0, 0, 1]


@pytest.mark.parametrize("page_bytes", [0, -4096, 4095])
def test_a_page_is_a_power_of_two(page_bytes: int) -> None:
    with pytest.raises(ValueError, match="no power of two"):
        page_layout(flat(1, 1), page_bytes)


def test_overlapping_extents_are_an_error() -> None:
    with pytest.raises(ValueError, match="overlap at byte 9"):
        page_layout([[(0, 0, 10)], [(0, 9, 10)]], 4096)


def test_capacity_is_floored_to_pages() -> None:
    plan, layout = make_plan([0, 1] * 3, 2), page_layout(flat(2, 4096), 4096)
    assert page_lru_misses(plan, layout, 8191, passes=1).tolist() == [1] * 6
    assert page_lru_misses(plan, layout, 8192, passes=1).tolist() == [1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(("capacity", "passes"), [(-1, 1), (0, 0)])
def test_nonsense_is_an_error(capacity: int, passes: int) -> None:
    with pytest.raises(ValueError, match="capacity"):
        page_lru_misses(make_plan([0], 1), page_layout(flat(1, 1), 4096), capacity, passes)


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[list[Extent]], int]:
    """Experts of some extents in two files, in any order, with gaps, on tiny pages."""
    cursor = [0, 0]
    experts: list[list[Extent]] = [[] for _ in range(draw(st.integers(1, 5)))]
    for _ in range(draw(st.integers(1, 10))):
        file = draw(st.integers(0, 1))
        gap, length = draw(st.integers(0, 9)), draw(st.integers(0, 40))
        expert = draw(st.integers(0, len(experts) - 1))
        experts[expert].append((file, cursor[file] + gap, length))
        cursor[file] += gap + length
    return [draw(st.permutations(extents)) for extents in experts], draw(st.sampled_from([4, 8]))


def touched_pages(extents: list[Extent], page_bytes: int) -> list[tuple[int, int]]:
    return [
        (file, page)
        for file, offset, length in extents
        if length
        for page in range(offset // page_bytes, (offset + length - 1) // page_bytes + 1)
    ]


def brute_misses(
    experts: list[list[Extent]], reads: list[int], page_bytes: int, capacity: int, passes: int
) -> list[int]:
    cache: OrderedDict[tuple[int, int], None] = OrderedDict()
    missed: list[int] = []
    for _ in range(passes):
        missed = []
        for expert in reads:
            count = 0
            for page in touched_pages(experts[expert], page_bytes):
                if page in cache:
                    cache.move_to_end(page)
                    continue
                count += 1
                cache[page] = None
                if len(cache) > capacity:
                    cache.popitem(last=False)
            missed.append(count)
    return missed


@given(pools(), st.data())
def test_pages_and_misses_are_those_of_single_pages(
    pool: tuple[list[list[Extent]], int], data: st.DataObject
) -> None:
    experts, page_bytes = pool
    reads = data.draw(st.lists(st.integers(0, len(experts) - 1), min_size=1, max_size=30))
    capacity = data.draw(st.integers(0, 60))
    passes = data.draw(st.integers(1, 2))
    layout = page_layout(experts, page_bytes)
    pages = [touched_pages(extents, page_bytes) for extents in experts]
    assert layout.expert_pages.tolist() == [len(set(touched)) for touched in pages]
    assert layout.pool_pages == len({page for touched in pages for page in touched})
    plan = make_plan(reads, len(experts))
    assert page_demand(plan, layout).tolist() == [len(set(pages[expert])) for expert in reads]
    found = page_lru_misses(plan, layout, capacity * page_bytes, passes)
    assert found.tolist() == brute_misses(experts, reads, page_bytes, capacity, passes)


def test_iterations_are_summed() -> None:
    layout = page_layout(flat(3, 4096), 4096)
    plan = make_plan([0, 1, 2, 0], 3, per_iteration=2)
    assert page_demand(plan, layout).tolist() == [2, 2]
    assert page_lru_misses(plan, layout, 2 * 4096).tolist() == [1, 2]


def test_extents_come_from_a_pools_table() -> None:
    extents = np.array([(0, 0, 5), (1, 6, 7), (0, 8, 9)], dtype=EXTENT_DTYPE)
    table = ExtentTable(("a", "b"), extents, np.array([0, 2, 2, 3], dtype=np.uint64))
    assert extents_of(table) == [[(0, 0, 5), (1, 6, 7)], [], [(0, 8, 9)]]
