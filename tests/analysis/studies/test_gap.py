# SPDX-License-Identifier: Apache-2.0
"""Miss fractions and the parts of the gap: by hand, on what the simulators count."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.simulators import Budget, Contract, Events, prepare, simulate
from pagetier.analysis.simulators.contract import Start, Warm
from pagetier.analysis.studies import Workload, batched, gap, permuted, replays, workload_of_trace
from pagetier.analysis.studies.gap import CAUSAL, scored_iterations

Draw = Callable[..., Any]
WARM = st.sampled_from(["nothing", "pass", 0.5])
START = st.sampled_from(["once", "per-request"])


def lru_by_hand(requests: Any, capacity: int) -> int:
    """Event-atomic, a cache a layer; -1 where a tie would decide what is left of an event."""
    cache: list[dict[int, int]] = [{} for _ in range(3)]
    misses = now = 0
    for one in (step for steps in requests for step in steps):
        for routed in one.passes:
            for layer, experts in enumerate(routed):
                now += 1
                held = cache[layer]
                misses += sum(expert not in held for expert in experts)
                held |= dict.fromkeys(experts, now)
                while len(held) > capacity:
                    oldest = min(held.values())
                    tied = [expert for expert, used in held.items() if used == oldest]
                    if len(held) - len(tied) < capacity:
                        return -1
                    for expert in tied:
                        del held[expert]
    return misses


@given(
    seed=st.integers(0, 2**32),
    experts=st.integers(1, 6),
    warm=WARM,
    start=START,
    replay_event=st.booleans(),
)
def test_fractions_and_shares_follow_their_definitions(
    drawn: Draw, seed: int, experts: int, warm: Warm, start: Start, replay_event: bool
) -> None:
    trace, _ = drawn(seed)
    workload = workload_of_trace(trace)
    contract = Contract("event" if replay_event else "access", warm=warm, start=start)
    budget = Budget("experts", experts)
    found = gap(workload, contract, budget, sizes=10)
    prepared = prepare(workload.events, contract)
    scored = scored_by_hand(workload.events, warm, start)
    assert scored_iterations(prepared).tolist() == scored
    assert workload.logical is not None and workload.accepted is not None
    logical, tokens = int(workload.logical[scored].sum()), int(workload.accepted[scored].sum())
    assert (found.logical, found.accepted) == (logical, tokens)
    moved = {}
    for one in found.policies:
        outcome = simulate(prepared, one.policy, budget)
        moved[one.policy] = outcome.misses + len(outcome.initial_load)
        assert (one.misses, one.initial_load) == (outcome.misses, len(outcome.initial_load))
        assert one.miss_fraction == moved[one.policy] / logical
        assert one.per_token == moved[one.policy] / tokens
        assert one.bytes_per_token == 10 * moved[one.policy] / tokens
    assert found.union == prepared.accesses
    assert found.union_over_logical == prepared.accesses / logical
    best = min(moved[policy] for policy in CAUSAL)
    assert moved[found.best_causal] == best
    if best > moved["belady"]:
        room = best - moved["belady"]
        assert found.gap == room / best
        assert found.admission_share == (moved["belady-forced"] - moved["belady"]) / room
        assert found.future_victim_share == (best - moved["belady-forced"]) / room
    else:
        assert found.admission_share is None and found.future_victim_share is None


def scored_by_hand(events: Events, warm: Warm, start: Start) -> list[int]:
    requests = events.request.tolist()
    runs = [requests.count(r) for r in range(4)] if start == "per-request" else [len(requests)]
    scored: list[int] = []
    at = 0
    for length in runs:
        first = 0 if isinstance(warm, str) else int(length * warm)
        scored += range(at + first, at + length)
        at += length
    return scored


@pytest.mark.parametrize("seed", range(60))
def test_lru_by_hand(drawn: Draw, seed: int) -> None:
    trace, requests = drawn(seed, requests=2, steps=4)
    expected = lru_by_hand(requests, 6)
    found = gap(workload_of_trace(trace), Contract(), Budget("experts", 6)).of("lru").misses
    assert expected in (-1, found)


def test_some_of_them_are_decided_without_ties(drawn: Draw) -> None:
    known = [lru_by_hand(drawn(seed, requests=2, steps=4)[1], 6) for seed in range(60)]
    assert sum(misses >= 0 for misses in known) >= 20


def test_forced_admission_costs_by_hand() -> None:
    # One layer, one place: 0 1 0 1 0.  What must admit, or does, misses all five; Belady keeps 0.
    ids = np.array([0, 1, 0, 1, 0], dtype=np.uint32)
    starts = np.arange(6, dtype=np.uint64)
    events = Events(ids, starts, starts, np.zeros(5, dtype=np.int64), 1, 2)
    ones = np.ones(5, dtype=np.int64)
    found = gap(Workload(events, 2 * ones, None, ones), Contract(), Budget("experts", 1))
    assert {one.policy: one.misses for one in found.policies} == {
        "lru": 5,
        "lfu": 5,
        "lfru": 5,
        "least-stale": 5,
        "static": 2,
        "belady": 3,
        "belady-forced": 5,
    }
    assert (found.best_causal, found.gap) == ("lru", 0.4)
    assert (found.admission_share, found.future_victim_share) == (1.0, 0.0)
    static = found.of("static")
    assert (static.initial_load, static.transferred, static.miss_fraction) == (1, 3, 0.3)
    assert static.per_token is None and static.bytes_per_token is None


def test_nothing_left_to_gain_has_no_shares(drawn: Draw) -> None:
    workload = workload_of_trace(drawn(1)[0])
    whole = gap(workload, Contract(), Budget("experts", 9))
    assert whole.gap == 0 and whole.admission_share is None
    again = gap(workload, Contract(warm="pass"), Budget("experts", 9))
    assert again.gap is None  # nothing is missed at all


def test_unknown_assignments_leave_the_fraction_out_and_the_gap_in(drawn: Draw) -> None:
    workload = replace(workload_of_trace(drawn(4)[0]), logical=None)
    found = gap(workload, Contract(), Budget("experts", 3))
    assert found.gap is not None
    assert found.union_over_logical is None
    assert {one.miss_fraction for one in found.policies} == {None}


@given(seed=st.integers(0, 2**32), experts=st.integers(1, 6))
def test_replays_are_those_of_the_simulator(drawn: Draw, seed: int, experts: int) -> None:
    trace, _ = drawn(seed)
    workload = batched(workload_of_trace(trace), 2, [0] * 4)
    budget = Budget("experts", experts)
    contracts = [Contract()]
    contracts += [
        Contract("access", "recorded"),
        Contract("access", "ascending"),
        Contract("access", "random"),
    ]
    for row in replays(workload, Contract(), budget):
        outcomes = [simulate(prepare(workload.events, c), row.policy, budget) for c in contracts]
        moved = [one.misses + len(one.initial_load) for one in outcomes]
        assert [row.event, row.recorded, row.ascending, row.random] == moved
        if row.policy == "static":
            assert row.inflation == row.random_inflation == 0
        if row.event:
            assert row.as_document()["inflation"] == moved[1] / moved[0] - 1


@given(seed=st.integers(0, 2**32), permutation=st.integers(0, 1000))
def test_a_permutation_keeps_every_event(drawn: Draw, seed: int, permutation: int) -> None:
    workload = workload_of_trace(drawn(seed)[0])
    other = permuted(workload, permutation)

    def bag(events: Events) -> list[list[int]]:
        starts = events.event_start.tolist()
        ids = events.experts.tolist()
        return [ids[a:b] for a, b in itertools.pairwise(starts)]

    assert sorted(bag(other.events)) == sorted(bag(workload.events))
    order = np.random.default_rng(permutation).permutation(len(bag(workload.events)))
    assert bag(other.events) == [bag(workload.events)[place] for place in order]
    assert other.events.iteration_start.tolist() == workload.events.iteration_start.tolist()
    budget = Budget("experts", 3)
    before, after = (gap(one, Contract(), budget) for one in (workload, other))
    assert before.of("static").transferred == after.of("static").transferred
    assert (before.union, before.logical) == (after.union, after.logical)
