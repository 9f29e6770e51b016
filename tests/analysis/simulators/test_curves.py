# SPDX-License-Identifier: Apache-2.0
"""A curve holds what a replay at each of its capacities finds."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pagetier.analysis.simulators import (
    Budget,
    Contract,
    Curve,
    Events,
    Prepared,
    belady_curve,
    lru_curve,
    prepare,
    simulate,
)

CONTRACTS = st.builds(
    Contract,
    replay=st.sampled_from(("event", "access")),
    scope=st.sampled_from(("per-layer", "global")),
    warm=st.sampled_from(("nothing", "pass", 0.5)),
    start=st.sampled_from(("once", "per-request")),
    seed=st.integers(0, 9),
)


@st.composite
def events(draw: st.DrawFn) -> Events:
    layers, experts, steps = draw(st.integers(1, 3)), draw(st.integers(1, 9)), 8
    chosen = st.lists(st.integers(0, experts - 1), max_size=experts)
    records = [(layer, draw(chosen)) for _ in range(steps) for layer in range(layers)]
    ids = [layer * experts + expert for layer, record in records for expert in record]
    return Events(
        experts=np.array(ids, dtype=np.uint32),
        event_start=np.cumsum([0, *(len(record) for _, record in records)]).astype(np.uint64),
        iteration_start=np.arange(steps + 1, dtype=np.uint64) * np.uint64(layers),
        request=np.array([0, 0, 0, 1, 1, 1, 1, 2]),
        num_layers=layers,
        num_experts=experts,
    )


def curve_of(policy: str, prepared: Prepared) -> Curve:
    return lru_curve(prepared) if policy == "lru" else belady_curve(prepared)


@pytest.mark.parametrize("policy", ["lru", "belady"])
@settings(max_examples=100, deadline=None)
@given(events=events(), contract=CONTRACTS)
def test_every_capacity(policy: str, events: Events, contract: Contract) -> None:
    prepared = prepare(events, contract)
    curve = curve_of(policy, prepared)
    for experts in range(30):
        wanted = simulate(prepared, policy, Budget("experts", experts)).misses
        assert curve.misses_at(Budget("experts", experts)) == wanted
        assert curve.misses[min(experts, len(curve.misses) - 1)] == wanted


@pytest.mark.parametrize("policy", ["lru", "belady"])
@settings(max_examples=50, deadline=None)
@given(events=events(), contract=CONTRACTS, percent=st.integers(0, 100), total=st.integers(0, 999))
def test_quotas_that_differ_by_layer(
    policy: str, events: Events, contract: Contract, percent: int, total: int
) -> None:
    prepared = prepare(events, contract)
    curve = curve_of(policy, prepared)
    share = Budget("fraction", Fraction(percent, 100))
    assert curve.misses_at(share) == simulate(prepared, policy, share).misses
    size = Budget("bytes", total)
    assert curve.misses_at(size, 37) == simulate(prepared, policy, size, 37).misses


def stream(seed: int, accesses: int, experts: int) -> NDArray[np.uint32]:
    rng = np.random.default_rng(seed)
    return (experts * rng.random(accesses) ** 3).astype(np.uint32)


@pytest.mark.parametrize("policy", ["lru", "belady"])
def test_a_long_trace_of_one_cache(policy: str) -> None:
    ids = stream(3, 60_000, 5_000)
    starts = np.arange(0, len(ids) + 1, 6, dtype=np.uint64)
    whole = Events(ids, starts, starts[::100] // np.uint64(6), np.zeros(100, np.int64), 1, 5_000)
    for replay in (Contract("access"), Contract("event")):
        prepared = prepare(whole, replay)
        curve = curve_of(policy, prepared)
        for experts in (1, 10, 300, 2_000, 4_999):
            wanted = simulate(prepared, policy, Budget("experts", experts)).misses
            assert curve.misses_at(Budget("experts", experts)) == wanted
