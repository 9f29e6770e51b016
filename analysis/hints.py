# SPDX-License-Identifier: Apache-2.0
"""Which experts an advisor hints at each record of a plan, and how good that is without a replay.

The hints of record r are known once its layer has routed; they are for record r + 1, the next layer
(after the last layer the first one of the next pass).  Expert ids are global.  Recall is the share
of the experts wanted that were hinted, precision the share of the hints that were wanted; both are
None where there is nothing to divide by.  The first record of a plan can not be hinted and is in no
figure; one that was not hinted counts as missed.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pagetier.analysis.plans import Int64, Plan, Uint32, Uint64
from pagetier.analysis.traces import widths

__all__ = ["HintPlan", "LayerQuality", "PlanQuality", "plan_quality", "record_layers", "suppress"]

Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class HintPlan:
    """At record r the experts experts[record_start[r]:record_start[r + 1]] are hinted."""

    experts: Uint32
    record_start: Uint64

    @property
    def num_hints(self) -> int:
        return len(self.experts)

    @classmethod
    def for_records(cls, experts: Uint32, target: Int64, num_records: int) -> "HintPlan":
        """Hints by the record that each is for, ascending; a hint goes one record ahead."""
        starts = np.zeros(num_records + 1, dtype=np.uint64)
        np.cumsum(np.bincount(target - 1, minlength=num_records), out=starts[1:], dtype=np.uint64)
        return cls(experts.astype(np.uint32), starts)

    @property
    def target(self) -> Int64:
        """The record that each hint is for."""
        return np.repeat(np.arange(1, len(self.record_start)), widths(self.record_start))

    def keep(self, wanted: Bool) -> "HintPlan":
        """The hints that `wanted` marks."""
        before = np.concatenate(([0], np.cumsum(wanted)))
        starts = before[self.record_start.astype(np.int64)].astype(np.uint64)
        return replace(self, experts=self.experts[wanted], record_start=starts)


@dataclass(frozen=True, slots=True)
class LayerQuality:
    """Of the records of one layer: experts wanted, hinted, and both."""

    layer: int
    wanted: int
    hinted: int
    hit: int

    @property
    def recall(self) -> float | None:
        return self.hit / self.wanted if self.wanted else None

    @property
    def precision(self) -> float | None:
        return self.hit / self.hinted if self.hinted else None


@dataclass(frozen=True, slots=True)
class PlanQuality:
    """Overall and per layer."""

    layers: tuple[LayerQuality, ...]

    @property
    def overall(self) -> LayerQuality:
        """Sums over all layers, under the layer number -1."""
        sums = [sum(getattr(row, name) for row in self.layers) for name in _COUNTS]
        return LayerQuality(-1, *sums)


_COUNTS = ("wanted", "hinted", "hit")


def record_layers(plan: Plan) -> Int64:
    """The layer of each record; -1 for one without reads."""
    starts = plan.record_start.astype(np.int64)
    layers = np.full(plan.num_records, -1, dtype=np.int64)
    some = np.flatnonzero(widths(plan.record_start))
    layers[some] = plan.experts[starts[some]] // plan.num_experts
    return layers


def plan_quality(plan: Plan, hints: HintPlan) -> PlanQuality:
    """How many of the experts that each layer reads were hinted one record before."""
    layers = record_layers(plan)
    read_record = np.repeat(np.arange(plan.num_records), widths(plan.record_start))
    wanted = read_record > 0
    inside = hints.target < plan.num_records
    target, experts = hints.target[inside], hints.experts[inside]
    hit = np.isin(
        _keys(plan, target, experts), _keys(plan, read_record[wanted], plan.experts[wanted])
    )
    columns = (
        _per_layer(plan, layers[read_record[wanted]]),
        _per_layer(plan, layers[target]),
        _per_layer(plan, layers[target[hit]]),
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return PlanQuality(tuple(LayerQuality(layer, *row) for layer, row in enumerate(rows)))


def _keys(plan: Plan, record: Int64, experts: Uint32) -> Int64:
    return record * (plan.num_layers * plan.num_experts) + experts.astype(np.int64)


def _per_layer(plan: Plan, layers: Int64) -> Int64:
    return np.bincount(layers[layers >= 0], minlength=plan.num_layers)


def suppress(plan: Plan, hints: HintPlan, min_layer_recall: float) -> HintPlan:
    """Without the hints for layers that the plan predicts worse than `min_layer_recall`."""
    quality = plan_quality(plan, hints)
    good = np.array([(row.recall or 0.0) >= min_layer_recall for row in quality.layers])
    # Hints for no record of the plan are hints for no layer of it: they stay out as well.
    inside = hints.target < plan.num_records
    layers = record_layers(plan)[np.where(inside, hints.target, 0)]
    return hints.keep(inside & good[layers])
