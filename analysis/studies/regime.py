# SPDX-License-Identifier: Apache-2.0
"""In which regime a cache works: what one step needs of a layer, against what the layer may hold.

Above 1, r(s, l) = union / capacity leaves misses that no policy can avoid.  Percentiles are by
nearest rank, so they are values that occurred.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pagetier.analysis.errors import InputError
from pagetier.analysis.simulators import Budget, ExpertBytes, Prepared
from pagetier.analysis.simulators.budgets import capacity_of
from pagetier.analysis.traces import widths
from pagetier.analysis.traces.columns import Float64, Int64

__all__ = ["Regime", "group_starts", "regime"]


@dataclass(frozen=True, slots=True)
class Regime:
    """Over the scored events, one a layer and step; r is None where a layer holds nothing.

    capacity: of the layers that hold least and most, in experts (bytes where sizes differ within a
    layer; union and r are then of bytes too).
    """

    events: int
    union_mean: float
    union_p95: int
    capacity: tuple[int, int]
    ratio_mean: float | None
    ratio_p95: float | None
    share_over_one: float | None

    def as_document(self) -> dict[str, Any]:
        """Flat, for a row of JSON or CSV."""
        document = asdict(self)
        least, most = document.pop("capacity")
        return {**document, "capacity_min": least, "capacity_max": most}


def regime(prepared: Prepared, budget: Budget, sizes: ExpertBytes | None = None) -> Regime:
    """The regime of an event replay with a cache for each layer."""
    contract = prepared.contract
    if contract.replay != "event" or contract.scope != "per-layer":
        raise InputError("a regime compares events with layers: replay by event, scope per-layer")
    capacity = capacity_of(prepared, budget, sizes)
    stream = prepared.stream
    starts = group_starts(prepared)
    union, first = np.diff(starts), starts[:-1]
    if capacity.expert_size is not None:
        size = prepared.of_experts(capacity.expert_size)[stream.objects]
        union = np.add.reduceat(size, first)
    quota = np.repeat(capacity.of_part.astype(np.int64), widths(stream.part_start))
    if prepared.scored is not None:
        scored = prepared.scored[first]
        union, quota = union[scored], quota[scored]
    if not len(union):
        raise InputError("no event is scored: give a window that leaves some")
    return Regime(
        events=len(union),
        union_mean=float(union.mean()),
        union_p95=int(_p95(union)),
        capacity=(int(capacity.of_part.min()), int(capacity.of_part.max())),
        **_ratios(union, quota),
    )


def group_starts(prepared: Prepared) -> Int64:
    """The first access of each event (of each access under access replay), and the end."""
    stream = prepared.stream
    if stream.group_start is None:
        return np.arange(len(stream.objects) + 1)
    return stream.group_start.astype(np.int64)


def _ratios(union: Int64, quota: Int64) -> dict[str, float | None]:
    if not quota.all():
        return {"ratio_mean": None, "ratio_p95": None, "share_over_one": None}
    ratio = union / quota
    return {
        "ratio_mean": float(ratio.mean()),
        "ratio_p95": float(_p95(ratio)),
        "share_over_one": float(np.count_nonzero(union > quota) / len(union)),
    }


def _p95(values: Int64 | Float64) -> float:
    rank = -(-95 * len(values) // 100)
    return float(np.sort(values)[rank - 1])
