# SPDX-License-Identifier: Apache-2.0
"""Parts of traces, and several traces as one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.columns import Int64, Trace, starts_of, widths

__all__ = ["join_requests", "take_iterations"]

_T = TypeVar("_T", bound=np.generic)


def take_iterations(trace: Trace, iterations: Int64) -> Trace:
    """These iterations, in rising order; the steps of each request are counted from 0 again."""
    kept = np.zeros(len(trace.iteration_start) - 1, np.bool_)
    kept[iterations] = True
    records = np.repeat(kept, widths(trace.iteration_start))
    width = widths(trace.record_start)
    reads = np.repeat(records, width)
    request = trace.request[records]
    step = trace.step[records]
    begins = np.flatnonzero(np.diff(request, prepend=-1))
    base = np.repeat(step[begins], np.diff(begins, append=len(request)))
    present, renumbered = np.unique(request, return_inverse=True)
    return replace(
        trace,
        requests=tuple(trace.requests[number] for number in present.tolist()),
        request=renumbered.astype(np.int32),
        step=step - base,
        layer=trace.layer[records],
        record_start=starts_of(width[records]),
        experts=trace.experts[reads],
        weights=None if trace.weights is None else trace.weights[reads],
        sha256=None,
    )


def join_requests(paths: Sequence[Path], traces: Sequence[Trace]) -> Trace:
    """The requests of all traces, one after another; each trace is that of its path."""
    first = traces[0]
    if len(traces) == 1:
        return first
    for path, trace in zip(paths, traces, strict=True):
        shape = (trace.header.num_layers, trace.header.num_experts, trace.header.top_k)
        if shape != (first.header.num_layers, first.header.num_experts, first.header.top_k):
            raise InputError(
                f"{path}: {shape[0]} layers of {shape[1]} experts, top-{shape[2]}, are another"
                f" model than that of {paths[0]}: import one model at a time"
            )
        if (trace.weights is None) is not (first.weights is None):
            raise InputError(f"{path}: only some of the files have weights: import them apart")
    names = [name for trace in traces for name in trace.requests]
    if len(set(names)) < len(names):
        names = [
            f"{path.name}:{name}"
            for path, trace in zip(paths, traces, strict=True)
            for name in trace.requests
        ]
    if len(set(names)) < len(names):
        raise InputError(f"{paths[0]}: a file was given twice: name each file once")
    before = np.cumsum([0, *(len(trace.requests) for trace in traces[:-1])])
    weights = [trace.weights for trace in traces if trace.weights is not None]
    return replace(
        first,
        requests=tuple(names),
        request=_join([t.request + np.int32(n) for t, n in zip(traces, before, strict=True)]),
        step=_join([trace.step for trace in traces]),
        layer=_join([trace.layer for trace in traces]),
        record_start=starts_of(_join([widths(trace.record_start) for trace in traces])),
        experts=_join([trace.experts for trace in traces]),
        weights=_join(weights) if weights else None,
        sha256=None,
    )


def _join(parts: "Sequence[npt.NDArray[_T]]") -> "npt.NDArray[_T]":
    return np.concatenate(parts)
