# SPDX-License-Identifier: Apache-2.0
"""Equal memory: every byte that is held is charged, and what cannot fit is refused beforehand."""

import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.native.arena import region_bytes
from pagetier.native.reader import EXTENT_DTYPE, ExtentTable
from pagetier.tiers.budget import Budget, BudgetError, arena_region, divide, room_in_flight

MB = 10**6


def split(capacity: int | None, fraction: float, spine: int = 0, expert_bytes: int = MB) -> Budget:
    return divide(
        capacity,
        spine_bytes=spine,
        fraction=fraction,
        expert_bytes=expert_bytes,
        pool_experts=768,
        threads=8,
    )


def test_a_half_is_a_half_and_the_rest_is_page_cache() -> None:
    budget = split(400 * MB, 0.5)
    assert budget.arena_experts == 200
    assert budget.arena_bytes == arena_region(200, MB) >= 200 * MB
    assert budget.page_cache_bytes == 400 * MB - budget.arena_bytes


def test_an_arena_of_everything_leaves_the_reads_in_flight_their_room() -> None:
    budget = split(400 * MB, 1.0)
    room = room_in_flight(8, MB)
    assert room == 2 * 8 * -(-MB // mmap.PAGESIZE) * mmap.PAGESIZE
    assert budget.arena_experts == (400 * MB - room) // 1_000_000
    assert budget.page_cache_bytes is not None and budget.page_cache_bytes >= room - mmap.PAGESIZE


def test_a_spine_comes_off_the_top() -> None:
    budget = split(400 * MB, 0.5, spine=100 * MB)
    assert budget.spine_bytes == -(-100 * MB // mmap.PAGESIZE) * mmap.PAGESIZE
    assert budget.arena_experts == 149  # of half of what is left: the spine is whole pages
    assert budget.locked_bytes == budget.spine_bytes + budget.arena_bytes


def test_no_more_than_the_pool_is_held() -> None:
    assert split(2000 * MB, 1.0).arena_experts == 768


@pytest.mark.parametrize(("fraction", "spine"), [(1.0, 400 * MB), (0.0, 390 * MB), (0.5, 500 * MB)])
def test_what_would_end_in_oom_is_refused_with_both_numbers(fraction: float, spine: int) -> None:
    with pytest.raises(BudgetError, match=r"spine of \d+ MB and an arena would fill C = 400 MB"):
        split(400 * MB, fraction, spine=spine)


def test_less_than_the_reads_in_flight_is_all_page_cache() -> None:
    assert split(5 * MB, 0.0) == Budget(5 * MB, 0, 0, 0)


def test_no_limit_has_no_arena() -> None:
    assert split(None, 0.0) == Budget(None, 0, 0, 0)
    assert split(None, 0.0, spine=5000).page_cache_bytes is None
    with pytest.raises(BudgetError, match="no limit is none: name a C"):
        split(None, 1.0)


@given(
    st.integers(1, 10**12),
    st.floats(0, 1),
    st.integers(0, 10**11),
    st.integers(1, 20 * MB),
)
def test_the_parts_are_never_more_than_the_budget(
    capacity: int, fraction: float, spine: int, expert_bytes: int
) -> None:
    try:
        budget = split(capacity, fraction, spine, expert_bytes)
    except BudgetError:
        return
    assert budget.page_cache_bytes is not None
    if budget.locked_bytes:
        # Whole pages may take one page more than the share; never the room of the reads in flight.
        assert budget.page_cache_bytes >= room_in_flight(8, expert_bytes) - mmap.PAGESIZE


@pytest.mark.parametrize("expert_bytes", [1, 64, 65, 4096, 70_001])
def test_the_region_is_what_the_arena_locks(expert_bytes: int) -> None:
    extents = np.zeros(5, dtype=EXTENT_DTYPE)
    extents["length"] = expert_bytes
    table = ExtentTable(("x",), extents, np.arange(6, dtype=np.uint64))
    for count in (0, 1, 5):
        held = np.arange(count, dtype=np.uint32)
        assert arena_region(count, expert_bytes) == region_bytes(table, held)


def mixed(capacity: int, fraction: float, sizes: list[int]) -> Budget:
    return divide(
        capacity,
        spine_bytes=0,
        fraction=fraction,
        expert_bytes=np.array(sizes),
        pool_experts=len(sizes),
        threads=1,
    )


def test_an_arena_takes_experts_of_different_sizes_in_their_order() -> None:
    sizes = [4000, 100_000, 65, 1]
    assert mixed(10 * MB, 0.001, sizes).arena_experts == 1  # 10 kB: the second does not fit
    all_but_one = mixed(10 * MB, (4032 + 100_032 + 128) / (10 * MB) + 1e-9, sizes)
    assert (all_but_one.arena_experts, all_but_one.arena_bytes) == (3, 106_496)
    assert mixed(10 * MB, 1.0, sizes).arena_experts == 4
    assert mixed(10 * MB, 0.0, sizes).arena_bytes == 0


def test_reads_in_flight_are_of_the_largest_expert() -> None:
    with pytest.raises(BudgetError, match=r"1 threads in flight need 2\.01 MB"):
        mixed(2 * MB, 0.5, [4000, MB, 65])


@given(st.integers(1, 10**9), st.floats(0, 1), st.integers(1, 20 * MB))
def test_one_size_each_is_one_size(capacity: int, fraction: float, expert_bytes: int) -> None:
    def halved(sizes: "int | np.ndarray[tuple[int], np.dtype[np.int64]]") -> Budget | None:
        try:
            return divide(
                capacity,
                spine_bytes=0,
                fraction=fraction,
                expert_bytes=sizes,
                pool_experts=40,
                threads=2,
            )
        except BudgetError:
            return None

    assert halved(np.full(40, expert_bytes)) == halved(expert_bytes)


def test_the_region_of_different_sizes_is_what_the_arena_locks() -> None:
    sizes = np.array([1, 64, 65, 4096, 70_001])
    extents = np.zeros(5, dtype=EXTENT_DTYPE)
    extents["length"] = sizes
    table = ExtentTable(("x",), extents, np.arange(6, dtype=np.uint64))
    order = np.array([4, 0, 2, 3, 1])
    budget = mixed(10 * MB, 0.007431, sizes[order].tolist())
    assert budget.arena_experts == 4
    assert budget.arena_bytes == region_bytes(table, order[:4])
