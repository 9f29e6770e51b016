# SPDX-License-Identifier: Apache-2.0
"""Which iterations accept a speculated token, and which fall back.

A normal iteration routes one token.  An accepted draft routes two tokens in one record, the set of
both selections.  A failed draft does so too, and the iteration then routes its token once more.
Outcomes are spread evenly over a trace: no published figure says where they fell.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagetier.analysis.synth.router import Selections

__all__ = ["Pass", "Schedule", "passes", "plan_schedule"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """One character an iteration: n normal, a accept, f fallback."""

    kinds: str

    @property
    def tokens(self) -> int:
        """Accepted tokens."""
        return len(self.kinds) + self.kinds.count("a")

    @property
    def draft_after(self) -> frozenset[int]:
        """The accepted tokens that a wrong draft followed."""
        first = self._first_tokens()
        return frozenset(t for t, kind in zip(first, self.kinds, strict=True) if kind == "f")

    def _first_tokens(self) -> list[int]:
        steps = [2 if kind == "a" else 1 for kind in self.kinds]
        return [sum(steps[:place]) for place in range(len(steps))]


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """One pass through all layers: ids of shape (layers, width), -1 where a row is shorter."""

    step: int
    experts: npt.NDArray[np.int32]


def plan_schedule(iterations: int, accepts: int, fallbacks: int) -> Schedule:
    """`accepts` and `fallbacks` of `iterations`, evenly spread."""
    kinds = np.full(iterations, "n")
    kinds[_spread(iterations, accepts)] = "a"
    normal = np.flatnonzero(kinds == "n")
    kinds[normal[_spread(len(normal), fallbacks)]] = "f"
    return Schedule("".join(kinds))


def _spread(places: int, count: int) -> npt.NDArray[np.int64]:
    return ((np.arange(count) + 0.5) * places / max(count, 1)).astype(np.int64)


def passes(schedule: Schedule, selections: Selections) -> list[Pass]:
    """The router passes in the order in which the engine issues them."""
    issued: list[Pass] = []
    token = 0
    for step, kind in enumerate(schedule.kinds):
        own = selections.tokens[token]
        if kind == "n":
            issued.append(Pass(step, own.astype(np.int32)))
        elif kind == "a":
            issued.append(Pass(step, _union(own, selections.tokens[token + 1])))
        else:
            issued.append(Pass(step, _union(own, selections.drafts[token])))
            issued.append(Pass(step, own.astype(np.int32)))
        token += 2 if kind == "a" else 1
    return issued


def _union(a: npt.NDArray[np.uint16], b: npt.NDArray[np.uint16]) -> npt.NDArray[np.int32]:
    both = np.sort(np.concatenate((a, b), axis=1).astype(np.int32), axis=1)
    both[:, 1:][both[:, 1:] == both[:, :-1]] = -1
    return both
