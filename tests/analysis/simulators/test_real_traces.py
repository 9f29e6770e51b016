# SPDX-License-Identifier: Apache-2.0
"""Real router traces: published hit rates of theirs, and what replay semantics make of them."""

from pathlib import Path

import pytest

from pagetier.analysis.simulators import (
    Budget,
    Contract,
    Events,
    belady_curve,
    events_of_trace,
    lru_curve,
    prepare,
    simulate,
)
from pagetier.analysis.traces import read_trace

MIXED = "gpt-oss-20b_decode_mixed"
PHYSICS = "gpt-oss-20b_decode_physics"
DEEPSEEK = "deepseek-v2-lite-chat_prefill_puffin"


@pytest.fixture(scope="session")
def mixed(traces: Path) -> Events:
    return events_of_trace(read_trace(traces / f"{MIXED}.jsonl.gz"))


@pytest.mark.parametrize(
    ("name", "access", "event"),
    [
        (MIXED, (0.6116, 0.8835), (0.6431, 0.8895)),
        (PHYSICS, (0.6734, 0.8954), (0.6980, 0.8998)),
        (DEEPSEEK, (0.4457, 0.6972), (0.4726, 0.7094)),
    ],
)
def test_lru_at_a_quarter_and_a_half(
    traces: Path, name: str, access: tuple[float, float], event: tuple[float, float]
) -> None:
    events = events_of_trace(read_trace(traces / f"{name}.jsonl.gz"))
    for replay, wanted in (("access", access), ("event", event)):
        contract = Contract("access" if replay == "access" else "event", start="per-request")
        prepared = prepare(events, contract)
        curve = lru_curve(prepared)
        for share, rate in zip((4, 2), wanted, strict=True):
            experts = events.num_experts // share
            found = simulate(prepared, "lru", Budget("experts", experts))
            assert found.hit_rate == pytest.approx(rate, abs=0.00006)
            assert curve.misses[experts] == found.misses


def test_access_replay_inflates_recency_and_not_a_static_set(mixed: Events) -> None:
    budget = Budget("experts", mixed.num_experts // 4)
    access, event, mixed_up = (
        prepare(mixed, contract)
        for contract in (Contract("access"), Contract("event"), Contract("access", "random"))
    )

    def inflation(policy: str) -> float:
        sequential = simulate(access, policy, budget).misses
        return sequential / simulate(event, policy, budget).misses - 1

    assert inflation("static") == 0
    assert inflation("lru") > 0.08
    assert inflation("least-stale") == inflation("lru")
    assert 0 < inflation("belady") < inflation("lfu") < inflation("lru")
    # A random order does not repair it.
    random_misses = simulate(mixed_up, "lru", budget).misses
    assert random_misses > 1.05 * simulate(event, "lru", budget).misses


def test_nominal_misses_of_the_second_pass(mixed: Events) -> None:
    prepared = prepare(mixed, Contract("access", scope="global", warm="pass"))
    curve = lru_curve(prepared)
    for experts in (100, 300, 566, 763):
        found = simulate(prepared, "lru", Budget("experts", experts))
        assert curve.misses[experts] == found.misses


def test_belady_curve(mixed: Events) -> None:
    prepared = prepare(mixed, Contract(start="per-request"))
    curve = belady_curve(prepared)
    for experts in (1, 4, 8, 16, 31):
        found = simulate(prepared, "belady", Budget("experts", experts))
        assert curve.misses[experts] == found.misses
