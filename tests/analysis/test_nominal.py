# SPDX-License-Identifier: Apache-2.0
"""Simulated misses of tiers: an arena never misses, the rest is an LRU, no admission misses all."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.generate import default_trace
from pagetier.analysis.lru import lru_misses
from pagetier.analysis.nominal import arena_hits, rest_of_plan, tier_misses
from pagetier.analysis.plans import Plan, build_plan

NOTHING = np.zeros(0, dtype=np.uint32)


def made(seed: int) -> Plan:
    return build_plan(default_trace(layers=3, experts=6, top_k=2, iterations=8, seed=seed))


def test_without_an_arena_it_is_the_lru() -> None:
    plan = made(1)
    assert tier_misses(plan, NOTHING, 7, 1).by_iteration.tolist() == lru_misses(plan, 7).tolist()


def test_without_admission_every_read_misses() -> None:
    assert tier_misses(made(1), NOTHING, 0, 5).by_iteration.tolist() == [6] * 8


def test_an_arena_of_everything_misses_nothing() -> None:
    assert tier_misses(made(1), np.arange(18, dtype=np.uint32), 0, 5).total == 0


def test_the_rest_of_a_plan_keeps_records_and_iterations() -> None:
    plan, held = made(2), np.array([0, 7, 13], dtype=np.uint32)
    rest = rest_of_plan(plan, held)
    assert rest.num_records == plan.num_records
    assert rest.iteration_start.tolist() == plan.iteration_start.tolist()
    for record in range(plan.num_records):
        before = plan.experts[int(plan.record_start[record]) : int(plan.record_start[record + 1])]
        after = rest.experts[int(rest.record_start[record]) : int(rest.record_start[record + 1])]
        assert after.tolist() == [expert for expert in before.tolist() if expert not in held]


@given(st.integers(0, 10**6), st.sets(st.integers(0, 17)), st.integers(0, 18))
def test_misses_are_those_of_a_replay_by_hand(seed: int, held: set[int], capacity: int) -> None:
    plan = made(seed)
    cache: list[int] = []
    missed = 0
    for replay in range(2):
        for expert in plan.experts.tolist():
            if expert in held:
                continue
            missed += replay * (expert not in cache)
            cache = [*(other for other in cache if other != expert), expert][-capacity:]
            cache = cache if capacity else []
    ids = np.array(sorted(held), dtype=np.uint32)
    assert tier_misses(plan, ids, capacity, 1).total == missed
    assert arena_hits(plan, ids).sum() == sum(e in held for e in plan.experts.tolist())


@given(st.integers(0, 10**6), st.sets(st.integers(0, 17)), st.integers(0, 120))
def test_bytes_of_experts_of_two_sizes(seed: int, held: set[int], capacity: int) -> None:
    plan, sizes = made(seed), np.array([7] * 6 + [3] * 12)
    cache: list[int] = []
    missed_bytes = 0
    for replay in range(2):
        for expert in plan.experts.tolist():
            if expert in held:
                continue
            missed_bytes += replay * (expert not in cache) * int(sizes[expert])
            cache = [*(other for other in cache if other != expert), expert]
            if sizes[expert] > capacity:
                cache.pop()
            while sizes[cache].sum() > capacity:
                cache.pop(0)
    ids = np.array(sorted(held), dtype=np.uint32)
    assert tier_misses(plan, ids, capacity, sizes).bytes == missed_bytes
