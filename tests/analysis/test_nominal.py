# SPDX-License-Identifier: Apache-2.0
"""Simulated misses of tiers: an arena never misses, the rest is an LRU, no admission misses all."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.generate import default_trace
from pagetier.analysis.lru import lru_misses
from pagetier.analysis.nominal import after_prompt, arena_hits, rest_of_plan, tier_misses
from pagetier.analysis.online import OnlineLru
from pagetier.analysis.page_exact import page_misses
from pagetier.analysis.pages import PageLayout, page_layout
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


def test_a_prompt_is_the_first_iteration() -> None:
    prompt, plan = made(4), made(5)
    whole = after_prompt(one_iteration(prompt), plan)
    assert whole.experts.tolist() == [*prompt.experts.tolist(), *plan.experts.tolist()]
    assert whole.num_iterations == 1 + plan.num_iterations
    assert whole.num_records == prompt.num_records + plan.num_records
    assert np.diff(whole.read_start).tolist() == [
        prompt.num_reads,
        *np.diff(plan.read_start).tolist(),
    ]


def one_iteration(plan: Plan) -> Plan:
    return Plan(
        experts=plan.experts,
        record_start=plan.record_start,
        iteration_start=np.array([0, plan.num_records], dtype=np.uint64),
        num_layers=plan.num_layers,
        num_experts=plan.num_experts,
    )


@given(st.integers(0, 10**6), st.integers(0, 120), st.integers(1, 2))
def test_a_prompt_before_each_pass_is_not_counted(seed: int, capacity: int, passes: int) -> None:
    prompt, plan = one_iteration(made(seed)), made(seed + 1)
    sizes = np.array([7] * 6 + [3] * 12)
    lru = OnlineLru(sizes.tolist(), capacity)
    for _ in range(passes):
        lru.read(prompt.experts.tolist())
        before = lru.computed().miss_bytes
        lru.read(plan.experts.tolist())
    found = tier_misses(plan, NOTHING, capacity, sizes, passes, prompt)
    assert found.bytes == lru.computed().miss_bytes - before
    assert len(found.by_iteration) == len(found.bytes_by_iteration) == plan.num_iterations


def test_pages_of_a_prompt_are_not_counted_either() -> None:
    """With room for all of them, what the prompt reads is no miss of the plan."""
    plan = made(3)
    layout = pages_of(18)
    everything = 18 * layout.page_bytes
    assert page_misses(plan, NOTHING, layout, everything, one_iteration(plan)) == 0
    assert page_misses(plan, NOTHING, layout, 0, one_iteration(plan)) == plan.num_reads


def pages_of(experts: int) -> PageLayout:
    """An expert a page."""
    return page_layout(
        [[(0, at * 4096, 4096)] for at in range(experts)],
        4096,
    )
