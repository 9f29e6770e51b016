# SPDX-License-Identifier: Apache-2.0
"""Misses at every capacity at once, by stack distances: for experts of one size.

A cache of c experts holds what one of c - 1 holds and one more, under LRU and under Belady with
bypass, event-atomic replay included; so an access hits from one capacity on, and that is counted.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagetier.analysis.simulators.budgets import Budget, capacity_of
from pagetier.analysis.simulators.prepare import Prepared
from pagetier.native import simulator

__all__ = ["Curve", "belady_curve", "lru_curve"]

Int64 = npt.NDArray[np.int64]
Uint32 = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """hits_at[l, c]: scored hits of layer l (0 under global scope) with a cache of c experts."""

    prepared: Prepared
    hits_at: Int64

    @property
    def accesses(self) -> int:
        return self.prepared.accesses

    @property
    def misses(self) -> Int64:
        """Misses with c experts (of each layer under per-layer scope), for c = 0, 1, 2 ... until
        they fall no more."""
        hits: Int64 = self.hits_at.sum(axis=0)
        return self.accesses - hits

    def misses_at(self, budget: Budget, expert_bytes: int | None = None) -> int:
        """What `simulate` would find at this budget."""
        capacity = capacity_of(self.prepared, budget, expert_bytes).of_part[: len(self.hits_at)]
        size = np.minimum(capacity, self.hits_at.shape[1] - 1).astype(np.int64)
        return self.accesses - int(self.hits_at[np.arange(len(size)), size].sum())


def lru_curve(prepared: Prepared) -> Curve:
    """Every capacity under LRU, in about the time of two replays."""
    return _curve(prepared, simulator.lru_distances(prepared.stream))


def belady_curve(prepared: Prepared) -> Curve:
    """Every capacity under Belady with bypass; slow when one cache sees many experts: some
    microseconds an access at 80,000."""
    return _curve(prepared, simulator.belady_distances(prepared.stream))


def _curve(prepared: Prepared, distance: Uint32) -> Curve:
    rows = int(prepared.part_layer.max(initial=-1)) + 1 or 1
    part_start = prepared.stream.part_start.astype(np.int64)
    if prepared.stream.group_start is not None:
        part_start = prepared.stream.group_start[part_start].astype(np.int64)
    row = np.repeat(np.maximum(prepared.part_layer, 0), np.diff(part_start))
    counted = distance > 0 if prepared.scored is None else (distance > 0) & prepared.scored
    columns = int(distance.max(initial=0)) + 1
    at = np.bincount(row[counted] * columns + distance[counted], minlength=rows * columns).reshape(
        rows, columns
    )
    return Curve(prepared, np.cumsum(at, axis=1))
