# SPDX-License-Identifier: Apache-2.0
"""A trace small enough to replay by hand, and what each replay semantics makes of it.

docs/conformance.md writes every step out.  Three layers of four experts, five steps of two experts
a layer: 30 accesses.  LRU with two experts a layer holds just one event, so event-atomic replay
leaves no tie and its counts depend on no seed.
"""

from dataclasses import dataclass

import numpy as np

from pagetier.analysis.simulators.budgets import Budget
from pagetier.analysis.simulators.contract import Contract
from pagetier.analysis.simulators.events import Events
from pagetier.analysis.simulators.prepare import prepare
from pagetier.analysis.simulators.simulate import Outcome, simulate

__all__ = ["CAPACITY", "CONFORMANCE", "STEPS", "Expected", "conformance_events", "replay_all"]

CAPACITY = 2  # experts of each layer
NUM_EXPERTS = 4
# By step, by layer: the experts in recorded order.
STEPS = (
    ((0, 1), (1, 2), (0, 1)),
    ((2, 0), (2, 1), (2, 3)),
    ((3, 2), (0, 3), (3, 2)),
    ((1, 3), (3, 2), (2, 3)),
    ((0, 1), (2, 0), (1, 0)),
)


@dataclass(frozen=True, slots=True)
class Expected:
    """Hits and misses of LRU under one contract."""

    contract: Contract
    hits: int
    misses: int


CONFORMANCE = (
    Expected(Contract("event", scope="per-layer"), 12, 18),
    Expected(Contract("access", "recorded", scope="per-layer"), 8, 22),
    Expected(Contract("access", "ascending", scope="per-layer"), 10, 20),
)


def conformance_events() -> Events:
    """The trace as the simulators take it."""
    layers = len(STEPS[0])
    flat = [
        layer * NUM_EXPERTS + expert
        for step in STEPS
        for layer, experts in enumerate(step)
        for expert in experts
    ]
    num_events = len(STEPS) * layers
    return Events(
        experts=np.array(flat, dtype=np.uint32),
        event_start=np.arange(num_events + 1, dtype=np.uint64) * np.uint64(CAPACITY),
        iteration_start=np.arange(len(STEPS) + 1, dtype=np.uint64) * np.uint64(layers),
        request=np.zeros(len(STEPS), dtype=np.int64),
        num_layers=layers,
        num_experts=NUM_EXPERTS,
    )


def replay_all() -> list[tuple[Expected, Outcome]]:
    """LRU under every contract, beside what must come out."""
    events, budget = conformance_events(), Budget("experts", CAPACITY)
    return [
        (expected, simulate(prepare(events, expected.contract), "lru", budget))
        for expected in CONFORMANCE
    ]
