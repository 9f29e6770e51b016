# SPDX-License-Identifier: Apache-2.0
"""The union of several requests' traces, as a batch of them would read the experts.

A step of the batch is one step of each request that is active in it.  Its events are the distinct
experts of those requests' records of one layer, in the order of the requests and, inside each, as
recorded; the second pass of a fallback is an event of its own.  Events follow pass by pass, or
layer by layer in a step in which a request repeats its layers that way.

Two schedules: `lockstep` takes one request at a time from each trace and ends with the shortest
trace; `continuous` fills so many places from all traces' requests, first come first served, and
gives a place that becomes free to the next request until all are served.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.accounting import account, occurrence
from pagetier.analysis.traces.columns import Int64, Trace, TraceHeader, starts_of, widths

__all__ = ["Merged", "continuous", "lockstep"]

_UNPLACED = -1


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """A batch's trace, and what the union saved.

    `logical_reads` are the reads of the requests inside the batch's steps; `active` counts the
    requests of each step; `accepted_tokens` is None where a trace leaves them unknown.
    """

    trace: Trace
    logical_reads: int
    active: Int64
    accepted_tokens: int | None

    @property
    def dedup(self) -> float:
        """Logical reads over the reads of the union."""
        return self.logical_reads / self.trace.num_reads


def lockstep(traces: Sequence[Trace]) -> Merged:
    """Iteration i of each trace makes step i, as long as every trace has one."""
    if len(traces) < 2:
        raise InputError("one trace is no batch: name two or more, or fill places with --batch")
    _check_shapes(traces)
    lengths = [len(trace.iteration_start) - 1 for trace in traces]
    steps = min(lengths)
    step_of = [np.where(np.arange(n) < steps, np.arange(n), _UNPLACED) for n in lengths]
    return _merge(traces, step_of, len(traces))


def continuous(traces: Sequence[Trace], places: int) -> Merged:
    """Every request of every trace, at most `places` at once, in the order given."""
    if places < 2:
        raise InputError(f"a batch of {places} is none: give 2 places or more")
    _check_shapes(traces)
    free_at = np.zeros(places, dtype=np.int64)
    step_of = []
    for trace in traces:
        request = trace.request[trace.iteration_start[:-1].astype(np.int64)]
        steps = np.bincount(request, minlength=len(trace.requests))
        starts = np.empty(len(steps), dtype=np.int64)
        for number, length in enumerate(steps):
            place = int(np.argmin(free_at))
            starts[number] = free_at[place]
            free_at[place] += length
        first = np.cumsum(steps) - steps
        step_of.append(starts[request] + np.arange(len(request)) - first[request])
    return _merge(traces, step_of, places)


def _check_shapes(traces: Sequence[Trace]) -> None:
    for trace in traces[1:]:
        shape, first = _shape(trace), _shape(traces[0])
        if shape != first:
            raise InputError(
                f"traces of {first[0]} x {first[1]} experts top-{first[2]} and of {shape[0]} x"
                f" {shape[1]} top-{shape[2]} cannot share a batch: merge traces of one model"
            )
    if any(trace.header.batch is not None for trace in traces):
        raise InputError("a trace is a batch already: merge the traces that it was made of")


def _shape(trace: Trace) -> tuple[int, int, int]:
    return trace.header.num_layers, trace.header.num_experts, trace.header.top_k


@dataclass(frozen=True, slots=True, eq=False)
class _Records:
    """The records of all traces that have a place in the batch, in the order of the traces."""

    step: Int64
    layer: Int64
    turn: Int64  # how often its step of its request passed its layer before
    by_layer: npt.NDArray[np.bool_]  # its step repeats layers at once, not pass by pass
    width: Int64
    expert: Int64


def _merge(traces: Sequence[Trace], step_of: Sequence[Int64], places: int) -> Merged:
    records = _gather(traces, step_of)
    event, first = _events(records, traces[0].header.num_layers)
    owner = np.repeat(event, records.width)
    order = np.argsort(owner, kind="stable")
    key = owner[order] * np.int64(traces[0].header.num_experts) + records.expert[order]
    seen_first = np.sort(np.unique(key, return_index=True)[1])
    kept = order[seen_first]
    active = np.bincount(np.concatenate([steps[steps >= 0] for steps in step_of]))
    accounts = [account(trace) for trace in traces]
    accepted = _sums([one.accepted_of_iteration for one in accounts], step_of)
    positions = _sums([one.positions_of_iteration for one in accounts], step_of)
    trace = Trace(
        header=_header(traces, places, accepted, positions),
        requests=("batch:0",),
        request=np.zeros(len(first), dtype=np.int32),
        step=records.step[first].astype(np.int32),
        layer=records.layer[first].astype(np.int32),
        record_start=starts_of(np.bincount(owner[kept], minlength=len(first))),
        experts=records.expert[kept].astype(np.uint32),
        weights=None,
        sha256=None,
    )
    return Merged(
        trace=trace,
        logical_reads=len(records.expert),
        active=active,
        accepted_tokens=None if accepted is None else sum(accepted),
    )


def _gather(traces: Sequence[Trace], step_of: Sequence[Int64]) -> _Records:
    parts = [_placed(trace, steps) for trace, steps in zip(traces, step_of, strict=True)]
    columns = zip(*parts, strict=True)
    return _Records(*(np.concatenate(column) for column in columns))


def _placed(trace: Trace, steps: Int64) -> tuple[npt.NDArray[np.int64 | np.bool_], ...]:
    lengths = widths(trace.iteration_start)
    iteration = np.repeat(np.arange(len(lengths)), lengths)
    turn = occurrence(iteration * trace.header.num_layers + trace.layer)
    at_once = np.zeros(len(lengths), dtype=np.bool_)
    repeats = np.flatnonzero((np.diff(trace.layer) == 0) & (np.diff(iteration) == 0))
    at_once[iteration[repeats]] = trace.header.num_layers > 1
    keep = steps[iteration] >= 0
    width = widths(trace.record_start)
    return (
        steps[iteration][keep],
        trace.layer[keep].astype(np.int64),
        turn[keep],
        at_once[iteration][keep],
        width[keep],
        trace.experts[np.repeat(keep, width)].astype(np.int64),
    )


def _events(records: _Records, num_layers: int) -> tuple[Int64, Int64]:
    """Number of each record's event in the batch's order, and one record of each event."""
    layer_by_layer = np.zeros(int(records.step.max()) + 1, dtype=np.bool_)
    layer_by_layer[records.step[records.by_layer]] = True
    at_once = layer_by_layer[records.step]
    turns = int(records.turn.max()) + 1
    inside = np.where(
        at_once,
        records.layer * turns + records.turn,
        records.turn * num_layers + records.layer,
    )
    place = records.step * (turns * num_layers) + inside
    _, first, event = np.unique(place, return_index=True, return_inverse=True)
    return event.astype(np.int64), first.astype(np.int64)


def _sums(counts: Sequence[Int64 | None], step_of: Sequence[Int64]) -> tuple[int, ...] | None:
    """Per step of the batch, the sum over its requests; None where one of them is unknown."""
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        return None
    steps, values = np.concatenate(step_of), np.concatenate(known)
    total = np.zeros(int(steps.max()) + 1, dtype=np.int64)
    np.add.at(total, steps[steps >= 0], values[steps >= 0])
    return tuple(total.tolist())


def _header(
    traces: Sequence[Trace],
    places: int,
    accepted: tuple[int, ...] | None,
    positions: tuple[int, ...] | None,
) -> TraceHeader:
    domains = list(dict.fromkeys(trace.header.domain or "?" for trace in traces))
    digests = ", ".join((trace.sha256 or "unsaved")[:12] for trace in traces)
    return replace(
        traces[0].header,
        source=f"batch of {places}, merged from traces {digests}",
        domain="+".join(domains),
        batch=places,
        accepted=accepted,
        positions=positions,
    )
