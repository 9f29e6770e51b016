# SPDX-License-Identifier: Apache-2.0
"""Targets of a model beside what its traces achieve, and predictions beside what they say.

A target is met `inside` its range, `near` it within a tenth of its nearest edge, or `missed`.
Predictions were not fitted: theirs is an error, not a verdict.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pagetier.analysis.lru import capacity_in_experts, lru_misses
from pagetier.analysis.plans import build_plan
from pagetier.analysis.synth.generate import draw_accepted, draw_domain
from pagetier.analysis.synth.parameters import Parameters
from pagetier.analysis.synth.spec import ModelSpec, Targets
from pagetier.analysis.synth.statistics import domain_statistics, model_statistics
from pagetier.analysis.traces import Trace
from pagetier.analysis.traces.merge import lockstep
from pagetier.analysis.units import format_bytes

__all__ = ["PredictionRow", "TargetRow", "check_predictions", "check_targets", "draw_all"]

NEAR_SHARE = 0.1
_OF_FIRST_DOMAIN = ("reads_per_iteration",)
# One figure was published for the whole model: the mean over its domains is held to it.
_OF_ALL_DOMAINS = ("top8_first_layer", "top8_highest_layer", "top8_last_layer")
_OF_MODEL = {
    "jaccard": ("jaccard_lowest", "jaccard_highest"),
    "union_narrowest_layer": ("union_narrowest_layer",),
    "union_widest_layer": ("union_widest_layer",),
}


@dataclass(frozen=True, slots=True)
class TargetRow:
    """One statistic: its published range and, by domain or by name, what was achieved."""

    statistic: str
    target: tuple[float, float]
    achieved: Mapping[str, float]

    @property
    def verdict(self) -> str:
        """Of the value that is furthest out."""
        low, high = self.target
        least, greatest = min(self.achieved.values()), max(self.achieved.values())
        if low <= least and greatest <= high:
            return "inside"
        near = low * (1 - NEAR_SHARE) <= least and greatest <= high * (1 + NEAR_SHARE)
        return "near" if near else "missed"


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """One published figure that nothing was fitted to, and what the traces give for it.

    `informed`: the figure had a say in what a model sets by hand.
    """

    figure: str
    published: float
    predicted: float
    informed: bool = False

    @property
    def error(self) -> float:
        """Relative to the published figure."""
        return self.predicted / self.published - 1


def draw_all(spec: ModelSpec, parameters: Parameters, seed: int) -> dict[str, Trace]:
    """The trace of every domain of the model."""
    return {domain: draw_domain(spec, parameters, domain, seed) for domain in spec.domains}


def check_targets(
    spec: ModelSpec, parameters: Parameters, traces: Mapping[str, Trace], seed: int
) -> list[TargetRow]:
    """A row for each target of `spec`; `traces` are those of `draw_all`."""
    found = {
        domain: domain_statistics(trace, draw_accepted(spec, parameters, domain, seed))
        for domain, trace in traces.items()
    }
    rows = _domain_rows(spec.targets, found, "")
    if len(traces) > 1:
        rows += _model_rows(spec.targets, model_statistics(traces, spec.jaccard_top))
    if spec.long_context is not None:
        length = spec.long_context.iterations
        first = next(iter(spec.domains))
        long = draw_domain(spec, parameters, first, seed, iterations=length)
        accepted = draw_accepted(spec, parameters, first, seed, iterations=length)
        found = {first: domain_statistics(long, accepted)}
        rows += _domain_rows(spec.long_context.targets, found, f"{length} iterations: ")
    return rows


def _domain_rows(
    targets: Targets, found: Mapping[str, Mapping[str, float]], prefix: str
) -> list[TargetRow]:
    rows = []
    for name, (low, high) in targets.known().items():
        if name in _OF_MODEL:
            continue
        domains = list(found)[:1] if name in _OF_FIRST_DOMAIN else list(found)
        for key in (f"accepted_{name}", name, f"served_{name}"):
            achieved = {domain: found[domain][key] for domain in domains if key in found[domain]}
            if key in _OF_ALL_DOMAINS:
                achieved = {"mean": sum(achieved.values()) / len(achieved)}
            if achieved:
                rows.append(TargetRow(prefix + key, (low, high), achieved))
    return rows


def _model_rows(targets: Targets, found: Mapping[str, float]) -> list[TargetRow]:
    return [
        TargetRow(name, (low, high), {key: found[key] for key in _OF_MODEL[name]})
        for name, (low, high) in targets.known().items()
        if name in _OF_MODEL
    ]


def check_predictions(spec: ModelSpec, traces: Mapping[str, Trace]) -> list[PredictionRow]:
    """A row for each prediction of `spec` that its expert size and number of domains allow."""
    rows = []
    if spec.expert_bytes is not None:
        plan = build_plan(next(iter(traces.values())))
        for entry in spec.predictions.lru_misses:
            experts = capacity_in_experts(entry.capacity, spec.expert_bytes)
            missed = float(lru_misses(plan, experts).mean()) * spec.expert_bytes
            figure = f"lru_miss_bytes_per_iteration at {format_bytes(entry.capacity)}"
            rows.append(PredictionRow(figure, float(entry.missed), missed))
    if len(traces) > 1:
        rows += _batch_rows(spec, traces)
    return rows


def _batch_rows(spec: ModelSpec, traces: Mapping[str, Trace]) -> list[PredictionRow]:
    merged = lockstep(list(traces.values()))
    reads = merged.trace.num_reads / len(merged.active)
    found = {
        "batch_bytes_per_step": None if spec.expert_bytes is None else reads * spec.expert_bytes,
        "batch_dedup": merged.dedup,
        "batch_accepted_tokens": merged.accepted_tokens,
    }
    rows = []
    for name, predicted in found.items():
        published = getattr(spec.predictions, name)
        if published is not None and predicted is not None:
            informed = name in spec.predictions.informed
            rows.append(PredictionRow(name, float(published), float(predicted), informed))
    return rows
