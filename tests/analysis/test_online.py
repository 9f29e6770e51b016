# SPDX-License-Identifier: Apache-2.0
"""The online LRU against the one that replays a plan, and what only it can do."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.lru import lru_misses
from pagetier.analysis.online import OnlineLru
from pagetier.analysis.plans import Plan

SIZE = 10


@given(st.lists(st.integers(0, 7), min_size=1, max_size=60), st.integers(0, 9))
def test_same_misses_as_the_replay(reads: list[int], capacity: int) -> None:
    starts = np.arange(len(reads) + 1, dtype=np.uint64)
    plan = Plan(np.array(reads, dtype=np.uint32), starts, starts, 1, 8)
    lru = OnlineLru([SIZE] * 8, capacity * SIZE + SIZE - 1)
    lru.read(reads)
    found = lru.computed()
    assert found.miss_bytes == SIZE * int(lru_misses(plan, capacity, passes=1).sum())
    assert found.first_touch_bytes == SIZE * len(set(reads))
    assert found.reads == len(reads)


def test_smaller_capacity_drops_the_least_recent() -> None:
    lru = OnlineLru([SIZE] * 4, 3 * SIZE)
    lru.read([0, 1, 2, 0])
    lru.resize(SIZE)
    lru.read([0])
    assert lru.computed().miss_bytes == 3 * SIZE
    lru.read([2])
    found = lru.computed()
    assert (found.miss_bytes, found.first_touch_bytes) == (4 * SIZE, 3 * SIZE)
    assert found.capacity_bytes == SIZE


def test_larger_capacity_brings_nothing_back() -> None:
    lru = OnlineLru([SIZE] * 4, SIZE)
    lru.read([0, 1])
    lru.resize(4 * SIZE)
    lru.read([1, 0, 0, 1])
    assert lru.computed().miss_bytes == 3 * SIZE


def test_experts_of_several_sizes() -> None:
    lru = OnlineLru([30, 10, 10, 100], 40)
    lru.read([0, 1, 2])  # 0 has to go: 30 + 10 + 10 is more than 40
    lru.read([1, 2])
    assert lru.computed().miss_bytes == 50
    lru.read([3])  # larger than everything: read through, keeping the others
    lru.read([1, 2])
    assert lru.computed().miss_bytes == 150
