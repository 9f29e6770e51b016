# SPDX-License-Identifier: Apache-2.0
"""Plans of the prefetch advisor: what it hints at each record, one record ahead.

``oracle``        the experts that the next record reads.
``recorded``      what a predictor said when the trace was recorded, from a file.
``previous-token`` what the next layer read in the pass before of the same request.
``degraded``      the oracle with a chosen share of its hints replaced by wrong experts of the same
                  layer, seeded: recall and precision are that share, the volume stays.

Every plan is a pure function of a trace.  The same arguments give the same hints on any machine.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError
from pagetier.analysis.hints import HintPlan, suppress
from pagetier.analysis.plans import Int64, build_plan
from pagetier.analysis.predictions import read_predictions
from pagetier.analysis.traces import Trace, widths

__all__ = ["PrefetchOptions", "make_hints"]


@dataclass(frozen=True, slots=True)
class PrefetchOptions:
    """`recall` and `seed` are of ``degraded``, `predictions` of ``recorded``; layers that the plan
    predicts worse than `min_layer_recall` get no hints."""

    plan: str
    recall: float | None = None
    seed: int = 0
    predictions: str | None = None
    min_layer_recall: float = 0.0


def make_hints(trace: Trace, options: PrefetchOptions) -> HintPlan:
    """The hints of a plan for every record of `trace`; InputError for a bad prediction file."""
    hints = _PLANS[options.plan](trace, options)
    if options.min_layer_recall == 0:
        return hints
    return suppress(build_plan(trace), hints, options.min_layer_recall)


def _oracle(trace: Trace, _: PrefetchOptions) -> HintPlan:
    plan = build_plan(trace)
    record = _read_record(trace)
    ahead = record > 0
    return HintPlan.for_records(plan.experts[ahead], record[ahead], trace.num_records)


def _read_record(trace: Trace) -> Int64:
    return np.repeat(np.arange(trace.num_records), widths(trace.record_start))


def _recorded(trace: Trace, options: PrefetchOptions) -> HintPlan:
    if options.predictions is None:
        raise InputError("prefetch.trace is missing: plan 'recorded' replays a prediction file")
    return read_predictions(Path(options.predictions), trace)


def _previous_token(trace: Trace, _: PrefetchOptions) -> HintPlan:
    before = _previous_pass(trace)
    target = np.flatnonzero((before >= 0) & (np.arange(trace.num_records) > 0))
    starts = trace.record_start.astype(np.int64)
    width = widths(trace.record_start)[before[target]]
    first = starts[before[target]]
    # Positions first[i] .. first[i] + width[i] of every i, one after another.
    inside = np.arange(width.sum()) - np.repeat(np.cumsum(width) - width, width)
    experts = build_plan(trace).experts[np.repeat(first, width) + inside]
    return HintPlan.for_records(experts, np.repeat(target, width), trace.num_records)


def _previous_pass(trace: Trace) -> Int64:
    """For each record the one before it of the same request and layer, or -1."""
    order = np.lexsort((np.arange(trace.num_records), trace.layer, trace.request))
    same = np.diff(trace.request[order]) == 0
    same &= np.diff(trace.layer[order]) == 0
    before = np.full(trace.num_records, -1, dtype=np.int64)
    before[order[1:][same]] = order[:-1][same]
    return before


def _degraded(trace: Trace, options: PrefetchOptions) -> HintPlan:
    oracle = _oracle(trace, options)
    # PCG64 and random() alone: their stream is fixed, that of other Generator methods may change.
    random = np.random.Generator(np.random.PCG64(options.seed))
    recall = 1.0 if options.recall is None else options.recall
    kept = np.zeros(oracle.num_hints, dtype=np.bool_)
    lottery = np.argsort(random.random(oracle.num_hints), kind="stable")
    kept[lottery[: round(recall * oracle.num_hints)]] = True
    return _salted(oracle, kept, trace.header.num_experts, random)


def _salted(
    oracle: HintPlan, kept: npt.NDArray[np.bool_], num_experts: int, random: np.random.Generator
) -> HintPlan:
    """A hint that is not kept becomes another expert of its layer that the record does not read."""
    experts, valid = oracle.experts.copy(), np.ones(oracle.num_hints, dtype=np.bool_)
    starts = oracle.record_start.astype(np.int64)
    for start, end in itertools.pairwise(starts.tolist()):
        lost = start + np.flatnonzero(~kept[start:end])
        if not len(lost):
            continue
        first = int(oracle.experts[start]) // num_experts * num_experts
        wrong = np.setdiff1d(np.arange(first, first + num_experts), oracle.experts[start:end])
        wrong = wrong[np.argsort(random.random(len(wrong)), kind="stable")][: len(lost)]
        experts[lost[: len(wrong)]] = wrong
        valid[lost[len(wrong) :]] = False  # a record that reads nearly all has too few wrong ones
    return HintPlan(experts, oracle.record_start).keep(valid)


_PLANS: dict[str, Callable[[Trace, PrefetchOptions], HintPlan]] = {
    "oracle": _oracle,
    "recorded": _recorded,
    "previous-token": _previous_token,
    "degraded": _degraded,
}
