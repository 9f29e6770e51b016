# SPDX-License-Identifier: Apache-2.0
"""Which experts the kernel keeps, against what an LRU of the same size would: how LRU is it?

At a moment of the measured pass, the simulated LRU holds the experts read last, as many as fit into
the effective capacity.  Bytes are whole pages.  What is resident outside that set is what the
kernel keeps instead; how long ago it was read and how often the plan reads it say why.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pagetier.analysis.nominal import rest_of_plan
from pagetier.analysis.plans import Plan, Uint32

__all__ = ["AuditPoint", "audit_points", "audit_stops", "recency"]

Int64 = npt.NDArray[np.int64]

POINTS = 4


def audit_stops(num_iterations: int, hinted: bool) -> tuple[int, ...]:
    """After which iterations to look: evenly spread, the last among them; with hints that alone."""
    points = 1 if hinted else min(POINTS, num_iterations)
    return tuple(num_iterations * point // points - 1 for point in range(1, points + 1))


@dataclass(frozen=True, slots=True)
class AuditPoint:
    """What was resident after one iteration, and what the simulated LRU held then.

    overlap: share of the LRU's bytes that are resident; None of an empty set.
    same_size_overlap: the same against an LRU no larger than what is resident of the pool just
    then: the effective capacity also holds file pages of others, and is a mean over time.
    kept_instead_age: how long ago what is kept instead was read, as the mean of its distinct
    experts read since in units of the LRU's size (1 = just dropped by the LRU).
    kept_instead_reads, missing_reads: reads a pass, of what is kept instead and of what is missing:
    the first above the second means that frequency is kept against recency.
    Means are over bytes, None of none.
    """

    iteration: int
    resident_bytes: int
    lru_bytes: int
    overlap_bytes: int
    overlap: float | None
    same_size_overlap: float | None
    missing_bytes: int
    kept_instead_bytes: int
    never_read_bytes: int
    partial_experts: int
    kept_instead_age: float | None
    kept_instead_reads: float | None
    missing_reads: float | None


def recency(plan: Plan, reads_done: int) -> list[int]:
    """Experts that were read, latest first, after a whole pass and `reads_done` reads of another.

    The earlier pass ends where the plan ends: what it read is older than all of this one.
    """
    experts = [*plan.experts.tolist(), *plan.experts[:reads_done].tolist()]
    return list(dict.fromkeys(reversed(experts)))


def audit_points(
    plan: Plan,
    held: Uint32,
    expert_pages: Int64,
    page_bytes: int,
    capacity_experts: int,
    audit: Mapping[str, Any],
) -> list[AuditPoint] | None:
    """Every moment of a stored audit; None where the kernel did not say what is resident."""
    rest = rest_of_plan(plan, held)
    reads = np.bincount(rest.experts, minlength=len(expert_pages))
    found: list[AuditPoint] = []
    for iteration, pages in zip(audit["iterations"], audit["resident_pages"], strict=True):
        if any(count is None for count in pages):
            return None
        resident = np.array(pages, dtype=np.int64)
        order = recency(rest, int(rest.read_start[iteration + 1]))
        look = _Look(iteration, resident, expert_pages, page_bytes, reads)
        found.append(look.against(order, capacity_experts))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    iteration: int
    resident: Int64
    expert_pages: Int64
    page_bytes: int
    reads: Int64

    def against(self, order: list[int], capacity_experts: int) -> AuditPoint:
        """`order` is every expert read so far, latest first."""
        kept = np.zeros(len(self.resident), dtype=bool)
        kept[order[:capacity_experts]] = True
        rank = np.full(len(self.resident), -1, dtype=np.int64)
        rank[order] = np.arange(len(order))
        missing = np.where(kept, self.expert_pages - self.resident, 0)
        instead = np.where(kept, 0, self.resident)
        read_instead = np.where(rank >= 0, instead, 0)
        lru, overlap = int(self.expert_pages[kept].sum()), int(self.resident[kept].sum())
        age = _mean(rank, read_instead) if capacity_experts else None
        return AuditPoint(
            iteration=self.iteration,
            resident_bytes=int(self.resident.sum()) * self.page_bytes,
            lru_bytes=lru * self.page_bytes,
            overlap_bytes=overlap * self.page_bytes,
            overlap=overlap / lru if lru else None,
            same_size_overlap=self._same_size_overlap(order),
            missing_bytes=int(missing.sum()) * self.page_bytes,
            kept_instead_bytes=int(instead.sum()) * self.page_bytes,
            never_read_bytes=int((instead - read_instead).sum()) * self.page_bytes,
            partial_experts=int(
                np.count_nonzero((self.resident > 0) & (self.resident < self.expert_pages))
            ),
            kept_instead_age=None
            if age is None or not capacity_experts
            else age / capacity_experts,
            kept_instead_reads=_mean(self.reads, instead),
            missing_reads=_mean(self.reads, missing),
        )

    def _same_size_overlap(self, order: list[int]) -> float | None:
        latest = np.array(order, dtype=np.int64)
        filled = np.cumsum(self.expert_pages[latest])
        held = latest[: int(np.searchsorted(filled, self.resident.sum(), side="right"))]
        pages = int(self.expert_pages[held].sum())
        return int(self.resident[held].sum()) / pages if pages else None


def _mean(values: Int64, weights: Int64) -> float | None:
    total = int(weights.sum())
    return float((values * weights).sum() / total) if total else None
