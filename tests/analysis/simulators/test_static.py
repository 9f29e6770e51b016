# SPDX-License-Identifier: Apache-2.0
"""Static sets: which experts are held, what that misses, and what it costs to load."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagetier.analysis.errors import InputError
from pagetier.analysis.simulators import (
    Budget,
    Contract,
    Events,
    Table,
    prepare,
    simulate,
    table_of,
)


def events_of(steps: list[list[list[int]]], experts: int) -> Events:
    """Steps of layers of experts, one request."""
    layers = len(steps[0])
    flat = [(layer, step[layer]) for step in steps for layer in range(layers)]
    ids = [layer * experts + expert for layer, record in flat for expert in record]
    return Events(
        experts=np.array(ids, dtype=np.uint32),
        event_start=np.cumsum([0, *(len(record) for _, record in flat)]).astype(np.uint64),
        iteration_start=np.arange(len(steps) + 1, dtype=np.uint64) * np.uint64(layers),
        request=np.zeros(len(steps), dtype=np.int64),
        num_layers=layers,
        num_experts=experts,
    )


# Layer 0 uses 0 three times, 1 twice, 2 once; layer 1 uses 3 four times and 0 once.
TRACE = events_of([[[0, 1], [3]], [[0, 2], [3]], [[1], [3, 0]], [[0], [3]]], 4)


def held(scope: str, budget: int) -> list[int]:
    contract = Contract(scope="global" if scope == "global" else "per-layer")
    outcome = simulate(prepare(TRACE, contract), "static", Budget("experts", budget))
    return list(outcome.initial_load.tolist())


def test_the_most_used_of_each_layer() -> None:
    assert held("per-layer", 1) == [0, 4 + 3]
    assert held("per-layer", 2) == [0, 1, 4 + 0, 4 + 3]


def test_the_most_used_of_all() -> None:
    assert held("global", 2) == [0, 4 + 3]
    assert held("global", 3) == [0, 1, 4 + 3]


def test_an_expert_without_uses_is_not_held() -> None:
    assert held("global", 100) == [0, 1, 2, 4 + 0, 4 + 3]


def test_the_load_stands_beside_the_misses() -> None:
    outcome = simulate(prepare(TRACE, Contract()), "static", Budget("experts", 1), 10)
    assert (outcome.hits, outcome.misses) == (3 + 4, 2 + 1 + 1)
    assert (len(outcome.initial_load), outcome.initial_load_bytes) == (2, 20)
    assert outcome.fitted_on == "same trace"


def test_a_window_fits_on_its_warm_part() -> None:
    # The first two steps know 0 twice, 1 and 2 once; the last two use 1, 0 and 3, 0, 3.
    prepared = prepare(TRACE, Contract(warm=0.5))
    outcome = simulate(prepared, "static", Budget("experts", 1))
    assert outcome.initial_load.tolist() == [0, 4 + 3]
    assert outcome.misses_by_iteration.tolist() == [2, 0]
    assert outcome.fitted_on == "warm part"


def test_a_table_is_frozen_from_another_trace() -> None:
    other = table_of(events_of([[[2], [1]], [[2], [1, 0]]], 4), "other.jsonl")
    outcome = simulate(prepare(TRACE, Contract()), "static", Budget("experts", 1), table=other)
    assert outcome.initial_load.tolist() == [2, 4 + 1]
    assert (outcome.hits, outcome.fitted_on) == (1, "other.jsonl")


def test_a_table_of_another_model_is_refused() -> None:
    other = table_of(events_of([[[2], [1]]], 5), "other.jsonl")
    with pytest.raises(InputError, match=r"other.jsonl: a table of 2 layers of 5 experts"):
        simulate(prepare(TRACE, Contract()), "static", Budget("experts", 1), table=other)


def test_bytes_are_filled_until_one_does_not_fit() -> None:
    sizes = np.array([5, 4, 1, 1, 2, 9, 9, 3])
    outcome = simulate(
        prepare(TRACE, Contract(scope="global")), "static", Budget("bytes", 9), sizes
    )
    # Uses 4, 3, 2: experts 7 (3 B) and 0 (5 B); 1 (4 B) no longer fits, and 2 is not tried.
    assert outcome.initial_load.tolist() == [0, 7]
    assert outcome.initial_load_bytes == 8
    assert outcome.miss_bytes == 4 + 1 + 4 + 2


@settings(deadline=None)
@given(
    steps=st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=12),
    budget=st.integers(0, 11),
    seed=st.integers(0, 99),
)
def test_misses_are_those_of_the_histogram(steps: list[list[int]], budget: int, seed: int) -> None:
    events = events_of([[step] for step in steps], 10)
    outcome = simulate(
        prepare(events, Contract(scope="global", seed=seed)), "static", Budget("experts", budget)
    )
    uses = sorted(table_of(events, "").uses.tolist(), reverse=True)
    assert outcome.misses == sum(uses[budget:])


@given(seed=st.integers(0, 99))
def test_equal_counts_are_settled_by_the_seed(seed: int) -> None:
    events = events_of([[[0, 1, 2, 3]]], 4)
    outcome = simulate(prepare(events, Contract(seed=seed)), "static", Budget("experts", 1))
    ranking = np.random.default_rng(seed).permutation(4)
    assert outcome.initial_load.tolist() == [int(np.argmax(ranking))]


def test_replay_semantics_cannot_move_a_static_set() -> None:
    table = Table(np.array([0, 7]), np.array([1, 1]), (2, 4), "by hand")
    misses = {
        simulate(prepare(TRACE, contract), "static", Budget("experts", 1), table=table).misses
        for contract in (Contract("event"), Contract("access"), Contract("access", "ascending"))
    }
    assert misses == {4}
