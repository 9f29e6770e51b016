# SPDX-License-Identifier: Apache-2.0
"""Small random traces, with speculation in some of their steps, also as plain lists."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from pagetier.analysis.traces import Trace, TraceHeader
from pagetier.analysis.traces.columns import starts_of

LAYERS, EXPERTS, TOP_K = 3, 9, 2


@dataclass(frozen=True, slots=True)
class Step:
    """Passes of layers of experts, how many positions they route, how many tokens they accept."""

    passes: list[list[list[int]]]
    positions: int
    accepted: int


Requests = list[list[Step]]
Drawn = tuple[Trace, Requests]


def draw(seed: int, requests: int = 4, steps: int = 6, *, at_once: bool = False) -> Drawn:
    """`at_once`: a fallback routes each layer twice, not all layers a second time."""
    chance = random.Random(seed)
    drawn = [[_step(chance) for _ in range(chance.randint(1, steps))] for _ in range(requests)]
    return _trace(drawn, at_once), drawn


def _step(chance: random.Random) -> Step:
    def routed(width: int) -> list[list[int]]:
        # Skewed, so that experts are used again.
        pool = [min(int(chance.expovariate(0.4)), EXPERTS - 1) for _ in range(40)]
        return [
            list(dict.fromkeys(chance.sample(pool, 40) + list(range(EXPERTS))))[:width]
            for _ in range(LAYERS)
        ]

    kind = chance.choice("nnnaf")
    if kind == "n":
        return Step([routed(TOP_K)], 1, 1)
    if kind == "a":
        return Step([routed(2 * TOP_K - 1)], 2, 2)
    return Step([routed(2 * TOP_K), routed(TOP_K)], 3, 1)


def _trace(requests: Requests, at_once: bool) -> Trace:
    rows = [
        (number, step, layer, experts)
        for number, steps in enumerate(requests)
        for step, one in enumerate(steps)
        for routed in one.passes
        for layer, experts in enumerate(routed)
    ]
    if at_once:
        rows.sort(key=lambda row: row[:3])
    return Trace(
        header=TraceHeader("tiny", LAYERS, EXPERTS, TOP_K),
        requests=tuple(f"r{number}" for number in range(len(requests))),
        request=np.array([row[0] for row in rows], dtype=np.int32),
        step=np.array([row[1] for row in rows], dtype=np.int32),
        layer=np.array([row[2] for row in rows], dtype=np.int32),
        record_start=starts_of(np.array([len(row[3]) for row in rows])),
        experts=np.array([e for row in rows for e in row[3]], dtype=np.uint32),
        weights=None,
        sha256="f" * 64,
    )


@pytest.fixture(scope="session")
def drawn() -> Callable[..., Drawn]:
    """A trace of a seed, and its requests as lists."""
    return draw
