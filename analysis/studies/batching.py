# SPDX-License-Identifier: Apache-2.0
"""Requests served together: first come first served, a place that becomes free goes to the next.

Every active request advances in every step, and the union of what they read of a layer is one event
(the second pass of a fallback is one of its own).  What the union saves is kept apart: `logical`
counts the expert assignments before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pagetier.analysis.errors import InputError
from pagetier.analysis.simulators import Events, events_of_trace
from pagetier.analysis.traces import Trace, widths
from pagetier.analysis.traces.accounting import account, occurrence
from pagetier.analysis.traces.columns import Int64, starts_of

__all__ = ["Workload", "arrival_offsets", "batched", "workload_of_trace"]


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Events, and per iteration what they do not tell.

    logical: expert assignments, of every position that was routed, before any deduplication.
    accepted: tokens served.  Both are None where the trace leaves them unknown.  active: requests
    that took part.
    """

    events: Events
    logical: Int64 | None
    accepted: Int64 | None
    active: Int64


def workload_of_trace(trace: Trace) -> Workload:
    """The requests of a trace one after another, or the steps of a merged one."""
    events = events_of_trace(trace)
    counted = account(trace)
    positions = counted.positions_of_iteration
    per_position = trace.header.top_k * trace.header.num_layers
    if positions is None or not _all_layers_alike(trace):
        logical = None
    else:
        logical = positions * per_position
    return Workload(
        events=events,
        logical=logical,
        accepted=counted.accepted_of_iteration,
        active=np.ones(events.num_iterations, dtype=np.int64),
    )


def _all_layers_alike(trace: Trace) -> bool:
    """Whether every iteration routes each layer as often as the others: else its positions do not
    say how many assignments it made."""
    layers = trace.header.num_layers
    records = widths(trace.iteration_start)
    iteration = np.repeat(np.arange(len(records)), records)
    passes = np.bincount(iteration * layers + trace.layer, minlength=len(records) * layers)
    by_layer = passes.reshape(-1, layers)
    return bool((by_layer == by_layer[:, :1]).all())


def arrival_offsets(requests: int, last: int, seed: int = 0) -> Int64:
    """A step from 0 to `last` for each request to arrive at, so that requests that run together are
    not locked to one position of their answers."""
    return np.random.default_rng(seed).integers(0, last, size=requests, endpoint=True)


def batched(workload: Workload, places: int, arrivals: Sequence[int] | Int64) -> Workload:
    """All requests of `workload`, at most `places` at once, none before the step it arrives at.

    Requests are admitted in the order of their arrival, equal ones in the order of the trace.  A
    step in which nothing runs is none.
    """
    if places < 1:
        raise InputError(f"a batch of {places} serves nothing: give 1 place or more")
    events = workload.events
    steps = np.bincount(events.request)
    if len(arrivals) != len(steps):
        raise InputError(f"{len(arrivals)} arrivals for {len(steps)} requests: give one for each")
    start = _admitted(steps, places, np.asarray(arrivals, dtype=np.int64))
    place_in_request = np.arange(events.num_iterations) - (np.cumsum(steps) - steps)[events.request]
    _, step = np.unique(start[events.request] + place_in_request, return_inverse=True)
    return Workload(
        events=_united(events, step.astype(np.int64)),
        logical=_summed(workload.logical, step),
        accepted=_summed(workload.accepted, step),
        active=np.bincount(step, workload.active).astype(np.int64),
    )


def _admitted(steps: Int64, places: int, arrivals: Int64) -> Int64:
    """The step at which each request starts."""
    free_at = np.zeros(places, dtype=np.int64)
    start = np.zeros(len(steps), dtype=np.int64)
    for request in np.argsort(arrivals, kind="stable"):
        place = int(np.argmin(free_at))
        start[request] = max(free_at[place], arrivals[request])
        free_at[place] = start[request] + steps[request]
    return start


def _summed(counts: Int64 | None, step: Int64) -> Int64 | None:
    if counts is None:
        return None
    total = np.zeros(int(step.max()) + 1, dtype=np.int64)
    np.add.at(total, step, counts)
    return total


def _united(events: Events, step_of_iteration: Int64) -> Events:
    """One event for each pass of each layer in each step, its experts in the order of requests."""
    per_iteration = widths(events.iteration_start)
    iteration = np.repeat(np.arange(len(per_iteration)), per_iteration)
    step = step_of_iteration[iteration]
    width = widths(events.event_start)
    layer = events.experts[events.event_start[:-1].astype(np.int64)] // events.num_experts
    place = _place(iteration, step, layer.astype(np.int64), events.num_layers)
    _, first, event = np.unique(place, return_index=True, return_inverse=True)
    owner = np.repeat(event, width)
    order = np.argsort(owner, kind="stable")
    key = owner[order] * np.int64(events.total_experts) + events.experts[order]
    kept = order[np.sort(np.unique(key, return_index=True)[1])]
    per_step = np.bincount(step[first])
    return Events(
        experts=events.experts[kept],
        event_start=starts_of(np.bincount(owner[kept], minlength=len(first))),
        iteration_start=starts_of(per_step),
        request=np.zeros(len(per_step), dtype=np.int64),
        num_layers=events.num_layers,
        num_experts=events.num_experts,
    )


def _place(iteration: Int64, step: Int64, layer: Int64, num_layers: int) -> Int64:
    """Where an event stands: pass by pass, or layer by layer in a step that repeats layers so."""
    turn = occurrence(iteration * num_layers + layer)
    turns = int(turn.max()) + 1
    at_once = np.zeros(int(step.max()) + 1, dtype=np.bool_)
    if num_layers > 1:
        repeats = (np.diff(layer) == 0) & (np.diff(iteration) == 0)
        at_once[step[1:][repeats]] = True
    inside = np.where(at_once[step], layer * turns + turn, turn * num_layers + layer)
    place: Int64 = step * (turns * num_layers) + inside
    return place
