# SPDX-License-Identifier: Apache-2.0
"""Operating regime of a campaign: its trace, its capacities, and how the two meet.

Union: distinct experts that one router pass of one layer asks for; with one request at a time that
is the width of its record.  One page cache serves all layers, so capacity per layer is a mean.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pagetier.analysis.counters import number
from pagetier.analysis.plans import Plan
from pagetier.analysis.report import formats
from pagetier.analysis.report.beside import Beside
from pagetier.analysis.report.reading import Study

__all__ = ["Workload", "unions"]

_DIFFERENT = "n/a: the experts differ in size"

Float64 = npt.NDArray[np.float64]


def unions(plan: Plan) -> Float64:
    """Distinct experts of every record."""
    starts = plan.record_start.astype(np.int64)
    record = np.repeat(np.arange(plan.num_records), np.diff(starts))
    pairs = np.unique(record * (plan.num_layers * plan.num_experts) + plan.experts)
    counts = np.bincount(pairs // (plan.num_layers * plan.num_experts), minlength=plan.num_records)
    return counts.astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """What the campaign says of its trace, and the widths of its records where the trace is there.

    `trace` is the document of ``trace info``, empty when the campaign holds none.
    """

    trace: dict[str, Any]
    expert_bytes: int | None
    pool_bytes: int | None
    capacities: tuple[int, ...]
    union: Float64 | None

    @classmethod
    def of(cls, study: Study, beside: Beside) -> "Workload":
        sizes = {number(cell.facts, "expert_bytes") for cell in study.results.cells} - {None}
        known = {number(cell.spec, "capacity_bytes") for cell in study.results.cells}
        trace, expert_bytes = _trace(study), sizes.pop() if len(sizes) == 1 else None
        return cls(
            trace=trace,
            expert_bytes=expert_bytes,
            pool_bytes=_pool_bytes(study, trace, expert_bytes),
            capacities=tuple(sorted((c for c in known if c is not None), reverse=True)),
            union=None if beside.plan is None else unions(beside.plan),
        )

    def count(self, key: str) -> int | None:
        return number(self.trace, key)

    @property
    def residency(self) -> str | None:
        """C over the bytes of all experts, for each C."""
        pool_bytes = self.pool_bytes
        if not pool_bytes or not self.capacities:
            return None
        return self._each_capacity(lambda c: f"{c / pool_bytes:.2f}")

    @property
    def capacity_per_layer(self) -> str | None:
        """Experts that C holds, over the layers, for each C."""
        if self._sizes_differ:
            return _DIFFERENT
        if not self._layer_experts():
            return None
        return self._each_capacity(lambda c: f"{self._per_layer(c):.1f}")

    @property
    def union_per_layer(self) -> str | None:
        """Mean and 95th percentile; without the trace the mean alone is known."""
        if self.union is not None and len(self.union):
            return f"mean {self.union.mean():.2f}, p95 {np.quantile(self.union, 0.95):g}"
        reads, records = self.count("reads"), self.count("records")
        return f"mean {reads / records:.2f}, p95 needs the trace" if reads and records else None

    @property
    def pressure(self) -> str | None:
        """r = union / capacity per layer: mean, 95th percentile, and how often above 1, each C."""
        if self._sizes_differ:
            return _DIFFERENT
        if self.union is None or not len(self.union) or not self._layer_experts():
            return None
        return "; ".join(self._pressures(self.union))

    def _pressures(self, union: Float64) -> Iterator[str]:
        for capacity_bytes in self.capacities:
            r = union / self._per_layer(capacity_bytes)
            yield (
                f"{formats.size(capacity_bytes)}: mean {r.mean():.3f},"
                f" p95 {np.quantile(r, 0.95):.3f}, above 1 {(r > 1).mean():.2%}"
            )

    @property
    def _sizes_differ(self) -> bool:
        return self.expert_bytes is None and self.pool_bytes is not None

    def _layer_experts(self) -> bool:
        return bool(self.count("num_layers") and self.expert_bytes and self.capacities)

    def _per_layer(self, capacity_bytes: int) -> float:
        return capacity_bytes / (self.expert_bytes or 1) / (self.count("num_layers") or 1)

    def _each_capacity(self, show: Any) -> str:
        return "; ".join(f"{formats.size(c)}: {show(c)}" for c in self.capacities)


def _pool_bytes(study: Study, trace: dict[str, Any], expert_bytes: int | None) -> int | None:
    """Of the pool of all cells: told where its experts differ, else so many experts."""
    told = {number(cell.facts, "pool_bytes") for cell in study.results.cells}
    if len(told) == 1 and None not in told:
        return told.pop()
    layers, experts = number(trace, "num_layers"), number(trace, "num_experts")
    if layers is None or experts is None or expert_bytes is None:
        return None
    return layers * experts * expert_bytes


def _trace(study: Study) -> dict[str, Any]:
    try:
        trace = json.loads(study.results.meta.get("trace", "{}"))
    except ValueError:
        return {}
    return trace if isinstance(trace, dict) else {}
