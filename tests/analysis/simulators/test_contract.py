# SPDX-License-Identifier: Apache-2.0
"""Contracts and budgets: what is refused, what is said, and what the edges of the input give."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.errors import InputError
from pagetier.analysis.simulators import (
    POLICIES,
    Budget,
    Contract,
    Events,
    ExpertBytes,
    lru_curve,
    parse_budget,
    prepare,
    simulate,
)
from pagetier.analysis.simulators.budgets import capacity_of


def events_of(records: list[list[int]], layers: int, experts: int) -> Events:
    """Records of global ids, one iteration each."""
    starts = np.cumsum([0, *map(len, records)]).astype(np.uint64)
    return Events(
        experts=np.array([expert for record in records for expert in record], dtype=np.uint32),
        event_start=starts,
        iteration_start=np.arange(len(records) + 1, dtype=np.uint64),
        request=np.zeros(len(records), dtype=np.int64),
        num_layers=layers,
        num_experts=experts,
    )


@pytest.mark.parametrize(
    ("given_values", "message"),
    [
        ({"replay": "batch"}, "replay 'batch'"),
        ({"scope": "layer"}, "scope 'layer'"),
        ({"warm": "half"}, "warm 'half'"),
        ({"warm": 1.0}, "leaves nothing to score"),
        ({"warm": -0.1}, "leaves nothing to score"),
        ({"seed": -1}, "seed -1"),
        ({"order": "random"}, "has no order"),
    ],
)
def test_nonsense_is_refused(given_values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Contract(**given_values)


def test_a_contract_says_itself() -> None:
    contract = Contract("access", "ascending", "global", 0.6, "per-request", 4)
    assert contract.describe() == (
        "access by access, ascending order; one cache for all layers; scored after the first 0.6 "
        "of the iterations, each request on its own; tie seed 4"
    )
    assert contract.as_document() == {
        "replay": "access",
        "order": "ascending",
        "scope": "global",
        "window": 0.6,
        "cold_start": "per-request",
        "tie_seed": 4,
    }
    assert Contract(warm="pass").as_document()["window"] == "warm-pass"
    assert Contract().as_document()["order"] is None


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("32", Budget("experts", 32)),
        (" 0 ", Budget("experts", 0)),
        ("7.5 GB", Budget("bytes", 7_500_000_000)),
        ("40%", Budget("fraction", Fraction(2, 5))),
        ("12.5 %", Budget("fraction", Fraction(1, 8))),
    ],
)
def test_budgets(text: str, budget: Budget) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize("text", ["", "8x", "-1", "1.5", "101 %", "5 G", "1e3", "٣"])
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(InputError):
        parse_budget(text)


@pytest.mark.parametrize(
    ("total", "sizes", "quotas"),
    [
        (100, 10, [4, 3, 3]),
        (119, 10, [4, 4, 3]),
        (29, 10, [1, 1, 0]),
        # A share is 33 B: 3, 1 and 0 whole experts leave 100 - 30 - 20 B for one more each.
        (100, [10, 20, 40], [4, 2, 0]),
    ],
)
def test_bytes_by_layer(total: int, sizes: int | list[int], quotas: list[int]) -> None:
    events = events_of([[0, 5, 10]], 3, 5)
    prepared = prepare(events, Contract(scope="per-layer"))
    table: ExpertBytes = sizes if isinstance(sizes, int) else np.repeat(sizes, 5)
    capacity = capacity_of(prepared, Budget("bytes", total), table)
    assert capacity.of_part.tolist() == quotas
    assert (capacity.experts, capacity.bytes) == (sum(quotas), total)


def test_bytes_need_a_size() -> None:
    prepared = prepare(events_of([[0]], 1, 1), Contract())
    with pytest.raises(InputError, match="give --expert-bytes"):
        simulate(prepared, "lru", Budget("bytes", 10))


def test_arc_needs_one_size() -> None:
    prepared = prepare(events_of([[0, 1]], 1, 2), Contract())
    with pytest.raises(InputError, match="arc is defined for experts of one size"):
        simulate(prepared, "arc", Budget("bytes", 10), np.array([1, 2]))


@pytest.mark.parametrize("sizes", [0, np.array([1, 1]), np.array([1, 0, 1])])
def test_impossible_sizes_are_refused(sizes: ExpertBytes) -> None:
    prepared = prepare(events_of([[0]], 1, 3), Contract())
    with pytest.raises(ValueError, match=r"expert|sizes"):
        simulate(prepared, "lru", Budget("experts", 1), sizes)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(InputError, match="there is no policy 'lruu'"):
        simulate(prepare(events_of([[0]], 1, 1), Contract()), "lruu", Budget("experts", 1))


@pytest.mark.parametrize("policy", POLICIES)
def test_ids_up_to_the_greatest(policy: str) -> None:
    greatest = 2**31 - 1
    records = [[0, greatest], [greatest, 7], [], [0]]
    large = prepare(events_of(records, 1, 2**31), Contract())
    small = prepare(events_of([[0, 2], [2, 1], [], [0]], 1, 3), Contract())
    for experts in (0, 2, 3):
        budget = Budget("experts", experts)
        assert simulate(large, policy, budget).misses == simulate(small, policy, budget).misses
        held = simulate(large, "static", budget).initial_load
        assert set(held.tolist()) <= {0, 7, greatest}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("replay", ["event", "access"])
@pytest.mark.parametrize("records", [[], [[]], [[], [0], []], [[0, 0, 0]], [[0], [0]]])
def test_traces_of_next_to_nothing(policy: str, replay: str, records: list[list[int]]) -> None:
    contract = Contract("event" if replay == "event" else "access")
    prepared = prepare(events_of(records, 1, 1), contract)
    outcome = simulate(prepared, policy, Budget("experts", 1))
    once = prepared.accesses > 0 and policy not in ("static", "demand")
    assert outcome.misses == (prepared.accesses if policy == "demand" else int(once))
    assert outcome.misses_by_iteration.sum() == outcome.misses
    assert len(outcome.misses_by_iteration) == len(records)
    assert (outcome.hit_rate is None) == (prepared.accesses == 0)
    assert lru_curve(prepared).misses[0] == prepared.accesses


def test_an_event_counts_an_expert_once() -> None:
    events = events_of([[3, 3, 1, 3]], 1, 4)
    assert prepare(events, Contract("event")).accesses == 2
    assert prepare(events, Contract("access")).accesses == 4


@given(seed=st.integers(0, 99))
def test_random_order_permutes_events_only(seed: int) -> None:
    records = [[0, 1, 2, 3], [4, 5], [0, 1, 2, 3]]
    ids = prepare(events_of(records, 1, 6), Contract("access", "random", seed=seed)).stream.objects
    assert [sorted(part.tolist()) for part in np.split(ids, [4, 6])] == records
    again = prepare(events_of(records, 1, 6), Contract("access", "random", seed=seed)).stream
    assert np.array_equal(ids, again.objects)


def test_random_order_depends_on_the_seed() -> None:
    records = [list(range(20))]
    orders = {
        tuple(
            prepare(events_of(records, 1, 20), Contract("access", "random", seed=s)).stream.objects
        )
        for s in range(5)
    }
    assert len(orders) == 5
