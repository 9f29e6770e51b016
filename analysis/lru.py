# SPDX-License-Identifier: Apache-2.0
"""Misses of an exact LRU cache of whole experts.

One cache for all layers; every read is an access, in recorded order; the cache starts empty and is
carried from pass to pass.  These are the nominal misses that device bytes are compared with.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagetier.analysis.plans import Plan
from pagetier.analysis.simulators.budgets import Budget, ExpertBytes
from pagetier.analysis.simulators.contract import Contract
from pagetier.analysis.simulators.events import events_of_plan
from pagetier.analysis.simulators.prepare import prepare
from pagetier.analysis.simulators.simulate import Outcome, simulate

__all__ = ["Misses", "capacity_in_experts", "lru_misses", "lru_misses_of_bytes"]

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Misses:
    """Of one replay: how many reads of each iteration missed, and their bytes."""

    by_iteration: Int64
    bytes_by_iteration: Int64

    @property
    def total(self) -> int:
        """How many missed."""
        return int(self.by_iteration.sum())

    @property
    def bytes(self) -> int:
        """Bytes of all of them."""
        return int(self.bytes_by_iteration.sum())


def capacity_in_experts(capacity_bytes: int, expert_bytes: int) -> int:
    """Whole experts of raw bytes that fit into `capacity_bytes`."""
    if expert_bytes < 1 or capacity_bytes < 0:
        raise ValueError(f"capacity {capacity_bytes} B of experts of {expert_bytes} B")
    return capacity_bytes // expert_bytes


def lru_misses(plan: Plan, capacity_experts: int, passes: int = 2) -> Int64:
    """Misses per iteration in the last of `passes` replays of `plan`."""
    if capacity_experts < 0 or passes < 1:
        raise ValueError(f"capacity {capacity_experts} experts, {passes} passes")
    return _replay(plan, Budget("experts", capacity_experts), None, passes).misses_by_iteration


def lru_misses_of_bytes(
    plan: Plan, capacity_bytes: int, expert_bytes: ExpertBytes, passes: int = 2
) -> Misses:
    """The same of a cache of `capacity_bytes`; `expert_bytes` is one size or a size per global id.

    What is larger than the whole cache passes through it without a stay.
    """
    if capacity_bytes < 0 or passes < 1:
        raise ValueError(f"capacity {capacity_bytes} B, {passes} passes")
    outcome = _replay(plan, Budget("bytes", capacity_bytes), expert_bytes, passes)
    missed_bytes = outcome.miss_bytes_by_iteration
    assert missed_bytes is not None  # a size was given
    return Misses(outcome.misses_by_iteration, missed_bytes)


def _replay(plan: Plan, budget: Budget, expert_bytes: ExpertBytes | None, passes: int) -> Outcome:
    # Every pass leaves the same cache behind: those after the second repeat it.
    warm = Contract("access", scope="global", warm="pass" if passes > 1 else "nothing")
    return simulate(prepare(events_of_plan(plan), warm), "lru", budget, expert_bytes)
