# SPDX-License-Identifier: Apache-2.0
"""Finds the parameters whose traces have the target statistics.

First a simplex moves the free parameters to the middle of each single-domain target, on a sample of
layers and with the same noise each time; reuse is that of the accepted tokens.  A weak pull back to
the start decides where the targets do not.  Then one parameter each is halved in on one statistic:
`shared` on the least overlap of two domains, `grouped` on the greatest, `draft_fresh` on the reads
per iteration.  Predictions are not looked at.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagetier.analysis.synth.generate import draw_accepted, draw_domain
from pagetier.analysis.synth.minimise import bisect, nelder_mead
from pagetier.analysis.synth.parameters import Parameters
from pagetier.analysis.synth.spec import ModelSpec, Targets
from pagetier.analysis.synth.statistics import domain_statistics, model_statistics

__all__ = ["calibrate", "fitted_names"]

Float64 = npt.NDArray[np.float64]
Progress = Callable[[str], None]

SEED = 7
_SAMPLE_LAYERS, _LONG_SAMPLE_LAYERS = 24, 6
_EVALUATIONS_PER_PARAMETER = 45
_FIRST_STEP = 0.12  # of the logarithm: an eighth of each parameter
_PULL = 0.02
_HALVINGS = 8
# A range narrower than this share of its middle is met to that share.
_LEAST_TOLERANCE = 0.02
# Single layers and unions follow from the profiles over depth, which are not fitted.
_FITTED = ("zipf_alpha", "reuse_1", "reuse_8", "reuse_64", "top8_share", "coverage")


def calibrate(spec: ModelSpec, say: Progress = lambda _: None) -> Parameters:
    """Parameters for `spec`, from its own if it has any; `say` hears of each stage."""
    start = spec.parameters or Parameters()
    say(f"fitting {', '.join(spec.free)}")
    parameters = _Fit(spec, start).run()
    for name, statistic in _single_targets(spec).items():
        say(f"fitting {name}")
        parameters = _halve_in(spec, parameters, name, statistic)
    return parameters


def fitted_names(spec: ModelSpec) -> list[str]:
    """The parameters that calibration changes; every other one is set by hand."""
    return [*spec.free, *_single_targets(spec)]


def _single_targets(spec: ModelSpec) -> dict[str, str]:
    """Parameters that one statistic decides."""
    single = {}
    groups = [domain.group for domain in spec.domains.values()]
    if spec.targets.jaccard is not None and len(set(groups)) > 1:
        single["shared"] = "jaccard_lowest"
        if len(set(groups)) < len(groups):
            single["grouped"] = "jaccard_highest"
    first = next(iter(spec.domains.values()))
    if spec.targets.reads_per_iteration is not None and first.fallbacks:
        single["draft_fresh"] = "reads_per_iteration"
    return single


@dataclass(frozen=True, slots=True)
class _Fit:
    spec: ModelSpec
    start: Parameters

    def run(self) -> Parameters:
        """The best parameters that the simplex finds."""
        free = self.spec.free
        if not free or not _middles(self.spec.targets):
            return self.start
        origin = np.array([math.log(_positive(getattr(self.start, name))) for name in free])
        best = nelder_mead(
            lambda point: self._loss(point) + _PULL * float(np.sum((point - origin) ** 2)),
            origin,
            _FIRST_STEP,
            _EVALUATIONS_PER_PARAMETER * len(free),
        )
        return self._at(best)

    def _at(self, point: Float64) -> Parameters:
        # Rounded so that a file can hold exactly what was fitted.
        values = np.exp(np.clip(point, -20, 20))
        named = zip(self.spec.free, values, strict=True)
        found = {str(name): float(f"{value:.5g}") for name, value in named}
        return self.start.model_copy(update=found)

    def _loss(self, point: Float64) -> float:
        parameters, long = self._at(point), self.spec.long_context
        loss = _misfit(self._found(parameters, _SAMPLE_LAYERS, None), self.spec.targets)
        if long is None:
            return loss
        found = self._found(parameters, _LONG_SAMPLE_LAYERS, long.iterations)
        return loss + _misfit(found, long.targets)

    def _found(
        self, parameters: Parameters, layers: int, iterations: int | None
    ) -> dict[str, float]:
        spec, depths = self.spec, _sample(layers)
        name = next(iter(spec.domains))
        trace = draw_domain(
            spec, parameters, name, SEED, depths=depths, gain=1.0, iterations=iterations
        )
        accepted = draw_accepted(
            spec, parameters, name, SEED, depths=depths, gain=1.0, iterations=iterations
        )
        return domain_statistics(trace, accepted)


def _positive(value: float | None) -> float:
    """What starts at nothing starts a logarithm at a small number instead."""
    return 1e3 if value is None else max(value, 1e-3)


def _sample(layers: int) -> Float64:
    return (np.arange(layers) + 0.5) / layers


def _middles(targets: Targets) -> dict[str, tuple[float, float]]:
    """Middle and tolerance of each target that the simplex is to meet."""
    middles = {}
    for name, (low, high) in targets.known().items():
        if name in _FITTED:
            middle = (low + high) / 2
            middles[name] = middle, max((high - low) / 2, _LEAST_TOLERANCE * middle, 1e-6)
    return middles


def _misfit(found: Mapping[str, float], targets: Targets) -> float:
    """Sum of squares, of the accepted tokens where they are not all that the trace holds."""
    return sum(
        ((found.get(f"accepted_{name}", found[name]) - middle) / tolerance) ** 2
        for name, (middle, tolerance) in _middles(targets).items()
    )


def _halve_in(spec: ModelSpec, start: Parameters, name: str, statistic: str) -> Parameters:
    """`start` with the value of one parameter at which one statistic meets its target."""

    def measured(value: float) -> float:
        parameters = start.model_copy(update={name: value})
        names = list(spec.domains)
        if name == "draft_fresh":
            return domain_statistics(draw_domain(spec, parameters, names[0], SEED))[statistic]
        traces = {one: draw_domain(spec, parameters, one, SEED) for one in names}
        return model_statistics(traces, spec.jaccard_top)[statistic]

    low, high = spec.targets.known()[
        statistic.partition("_")[0] if name != "draft_fresh" else statistic
    ]
    # Inside the ends of a range, so that other seeds stay in it too.
    inset = 0.3 * (high - low)
    target = {"shared": low + inset, "grouped": high - inset}.get(name, (low + high) / 2)
    value = bisect(measured, target, 0.0, 1.0, _HALVINGS)
    return start.model_copy(update={name: float(f"{value:.4g}")})
