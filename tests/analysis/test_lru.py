# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.generate import default_trace
from pagetier.analysis.lru import capacity_in_experts, lru_misses, lru_misses_of_bytes
from pagetier.analysis.online import OnlineLru
from pagetier.analysis.plans import Plan, build_plan
from pagetier.analysis.traces import read_trace


def plan_of(iterations: list[list[int]]) -> Plan:
    """One record an iteration, ids as given."""
    lengths = [len(reads) for reads in iterations]
    return Plan(
        experts=np.array([e for reads in iterations for e in reads], dtype=np.uint32),
        record_start=np.concatenate(([0], np.cumsum(lengths))).astype(np.uint64),
        iteration_start=np.arange(len(iterations) + 1, dtype=np.uint64),
        num_layers=1,
        num_experts=1 + max((e for reads in iterations for e in reads), default=0),
    )


def oracle(iterations: list[list[int]], capacity: int, passes: int) -> list[int]:
    """A list from least to most recent, searched by eye."""
    cache: list[int] = []
    misses: list[int] = []
    for _ in range(passes):
        misses = []
        for reads in iterations:
            missed = 0
            for expert in reads:
                if expert in cache:
                    cache.remove(expert)
                else:
                    missed += 1
                cache.append(expert)
                cache = cache[-capacity:] if capacity else []
            misses.append(missed)
    return misses


plans = st.lists(st.lists(st.integers(0, 9), max_size=8), min_size=1, max_size=8)


@given(plans, st.integers(0, 12), st.integers(1, 3))
def test_equals_the_oracle(iterations: list[list[int]], capacity: int, passes: int) -> None:
    found = lru_misses(plan_of(iterations), capacity, passes).tolist()
    assert found == oracle(iterations, capacity, passes)


@given(plans, st.integers(0, 10))
def test_a_larger_cache_never_misses_more(iterations: list[list[int]], capacity: int) -> None:
    # Inclusion: what the small cache holds, the large one holds, at every read.
    small = lru_misses(plan_of(iterations), capacity)
    large = lru_misses(plan_of(iterations), capacity + 1)
    assert np.all(large <= small)


@given(plans)
def test_one_pass_in_a_cache_that_holds_all_misses_each_expert_once(
    iterations: list[list[int]],
) -> None:
    plan = plan_of(iterations)
    assert lru_misses(plan, 100, passes=1).sum() == plan.distinct_experts
    assert lru_misses(plan, 100, passes=2).sum() == 0


def test_known_sequence() -> None:
    # 0 1 2 | 0 3 | 0 1 in two places: the hit on 0 saves it from 3, which evicts 1.
    plan = plan_of([[0, 1], [0, 3], [0, 1]])
    assert lru_misses(plan, 2, passes=1).tolist() == [2, 1, 1]


def test_a_loop_larger_than_the_cache_always_misses() -> None:
    plan = plan_of([[0, 1, 2, 3]])
    assert lru_misses(plan, 3, passes=5).tolist() == [4]
    assert lru_misses(plan, 4, passes=5).tolist() == [0]


def test_warm_up_passes_are_not_counted() -> None:
    plan = plan_of([[0, 1], [2, 3]])
    assert lru_misses(plan, 4, passes=1).tolist() == [2, 2]
    assert lru_misses(plan, 4).tolist() == [0, 0]


def test_uniform_routing_hits_as_the_share_that_fits() -> None:
    plan = build_plan(default_trace(4, 64, 1, 3000, seed=3, zipf=0, reuse=0))
    for share in (0.25, 0.5, 0.75):
        misses = lru_misses(plan, int(4 * 64 * share)).sum()
        assert 1 - misses / plan.num_reads == pytest.approx(share, abs=0.02)


def test_capacity_is_whole_experts() -> None:
    assert capacity_in_experts(7_500_000_000, 13_236_480) == 566
    assert capacity_in_experts(13_236_479, 13_236_480) == 0
    assert capacity_in_experts(13_236_480, 13_236_480) == 1


@pytest.mark.parametrize(("capacity", "passes"), [(-1, 2), (4, 0)])
def test_nonsense_is_refused(capacity: int, passes: int) -> None:
    with pytest.raises(ValueError, match="capacity"):
        lru_misses(plan_of([[0]]), capacity, passes)


@pytest.mark.parametrize(("capacity", "expert"), [(-1, 5), (5, 0)])
def test_impossible_sizes_are_refused(capacity: int, expert: int) -> None:
    with pytest.raises(ValueError, match="capacity"):
        capacity_in_experts(capacity, expert)


def test_golden_misses_of_a_real_trace(traces: Path) -> None:
    trace = read_trace(traces / "gpt-oss-20b_decode_mixed.jsonl.gz").first_steps(10)
    plan = build_plan(trace)
    found = {gb: int(lru_misses(plan, gb * 10**8 // 13_236_480).sum()) for gb in (75, 50, 25)}
    # Also counted as distinct ids since the last use, for every read of two passes.
    assert found == {75: 208, 50: 1146, 25: 3165}


SIZES = st.lists(st.integers(1, 12), min_size=5, max_size=5)
READS = st.lists(st.lists(st.integers(0, 4), max_size=6), max_size=6)


@given(READS, SIZES, st.integers(0, 40), st.integers(1, 4))
def test_experts_of_different_sizes_are_held_by_their_bytes(
    iterations: list[list[int]], sizes: list[int], capacity: int, passes: int
) -> None:
    """As the online LRU counts them, read for read: an expert larger than the cache has no stay."""
    plan = replace(plan_of(iterations), num_layers=1, num_experts=5)
    lru, before = OnlineLru(sizes, capacity), 0
    counts: list[int] = []
    for _ in range(passes):
        counts, before = [], lru.computed().miss_bytes
        for experts in iterations:
            counts.append(0)
            for expert in experts:
                missed = lru.computed().miss_bytes
                lru.read([expert])
                counts[-1] += lru.computed().miss_bytes > missed
    found = lru_misses_of_bytes(plan, capacity, np.array(sizes), passes)
    assert found.by_iteration.tolist() == counts
    assert found.bytes == lru.computed().miss_bytes - before
    assert found.total == sum(counts)


@given(READS, st.integers(1, 9), st.integers(0, 60), st.integers(1, 3))
def test_one_size_is_as_many_experts_as_fit(
    iterations: list[list[int]], size: int, capacity: int, passes: int
) -> None:
    plan = replace(plan_of(iterations), num_layers=1, num_experts=5)
    wanted = lru_misses(plan, capacity // size, passes)
    for sizes in (size, np.full(5, size)):
        found = lru_misses_of_bytes(plan, capacity, sizes, passes)
        assert found.by_iteration.tolist() == wanted.tolist()
        assert found.bytes == wanted.sum() * size


@pytest.mark.parametrize(("capacity", "passes"), [(-1, 2), (4, 0)])
def test_no_bytes_and_no_passes_are_refused(capacity: int, passes: int) -> None:
    with pytest.raises(ValueError, match="capacity"):
        lru_misses_of_bytes(plan_of([[0]]), capacity, 1, passes)
