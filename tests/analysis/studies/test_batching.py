# SPDX-License-Identifier: Apache-2.0
"""Continuous batches beside a loop that serves them step by step, and beside merged traces."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.errors import InputError
from pagetier.analysis.simulators import Events, events_of_trace
from pagetier.analysis.studies import Workload, arrival_offsets, batched, workload_of_trace
from pagetier.analysis.traces.merge import continuous

Draw = Callable[..., Any]


def as_lists(events: Events) -> list[list[list[int]]]:
    """Events of steps, their experts by global id."""
    starts = events.event_start.tolist()
    experts = events.experts.tolist()
    all_events = [experts[a:b] for a, b in itertools.pairwise(starts)]
    cuts = events.iteration_start.tolist()
    return [all_events[a:b] for a, b in itertools.pairwise(cuts)]


def served(requests: Any, places: int, arrivals: list[int], num_experts: int) -> dict[str, Any]:
    """One step after the other: admit, unite, count, retire."""
    queue = sorted(range(len(requests)), key=lambda number: (arrivals[number], number))
    running: dict[int, int] = {}
    found: dict[str, Any] = {"events": [], "logical": [], "accepted": [], "active": []}
    now = 0
    while queue or running:
        while queue and len(running) < places and arrivals[queue[0]] <= now:
            running[queue.pop(0)] = 0
        now += 1
        if not running:
            continue
        steps = [requests[number][running[number]] for number in sorted(running)]
        found["events"].append(unite(steps, num_experts))
        found["logical"].append(sum(one.positions for one in steps) * 2 * 3)
        found["accepted"].append(sum(one.accepted for one in steps))
        found["active"].append(len(steps))
        running = {n: at + 1 for n, at in running.items() if at + 1 < len(requests[n])}
    return found


def unite(steps: Any, num_experts: int) -> list[list[int]]:
    events = []
    for turn in range(max(len(one.passes) for one in steps)):
        for layer in range(3):
            read = [
                layer * num_experts + expert
                for one in steps
                if turn < len(one.passes)
                for expert in one.passes[turn][layer]
            ]
            events.append(list(dict.fromkeys(read)))
    return events


@given(
    seed=st.integers(0, 2**32),
    places=st.integers(1, 5),
    arrivals=st.lists(st.integers(0, 12), min_size=4, max_size=4),
)
def test_a_batch_is_what_serving_it_step_by_step_gives(
    drawn: Draw, seed: int, places: int, arrivals: list[int]
) -> None:
    trace, requests = drawn(seed)
    expected = served(requests, places, arrivals, trace.header.num_experts)
    workload = batched(workload_of_trace(trace), places, arrivals)
    assert as_lists(workload.events) == expected["events"]
    assert workload.active.tolist() == expected["active"]
    assert workload.logical is not None and workload.accepted is not None
    assert workload.logical.tolist() == expected["logical"]
    assert workload.accepted.tolist() == expected["accepted"]


@given(seed=st.integers(0, 2**32), places=st.integers(2, 5), at_once=st.booleans())
def test_without_arrivals_it_is_the_merged_trace(
    drawn: Draw, seed: int, places: int, at_once: bool
) -> None:
    trace, _ = drawn(seed, at_once=at_once)
    merged = continuous([trace], places)
    again = workload_of_trace(merged.trace)
    workload = batched(workload_of_trace(trace), places, [0] * 4)
    assert as_lists(workload.events) == as_lists(again.events)
    assert workload.logical is not None and again.logical is not None
    assert workload.logical.tolist() == again.logical.tolist()
    assert workload.active.tolist() == merged.active.tolist()


def test_one_place_serves_the_trace_as_it_is(drawn: Draw) -> None:
    trace, requests = drawn(1)
    workload = batched(workload_of_trace(trace), 1, [0] * 4)
    assert as_lists(workload.events) == as_lists(events_of_trace(trace))
    assert len(workload.active) == sum(map(len, requests))


def test_what_the_trace_does_not_tell_stays_unknown(drawn: Draw) -> None:
    trace, _ = drawn(3)
    unknown = workload_of_trace(replace(trace, header=replace(trace.header, batch=4)))
    assert unknown.logical is None and unknown.accepted is None
    assert batched(unknown, 2, [0] * 4).logical is None


def test_a_layer_routed_again_alone_leaves_the_assignments_unknown(drawn: Draw) -> None:
    trace, _ = drawn(3)
    keep = np.ones(trace.num_records, dtype=np.bool_)
    keep[-1] = False
    width = np.diff(trace.record_start.astype(np.int64))
    shorter = replace(
        trace,
        request=trace.request[keep],
        step=trace.step[keep],
        layer=trace.layer[keep],
        record_start=trace.record_start[:-1],
        experts=trace.experts[: len(trace.experts) - width[-1]],
    )
    assert workload_of_trace(shorter).logical is None


def test_arrivals_are_drawn_once() -> None:
    first, again = arrival_offsets(100, 23), arrival_offsets(100, 23)
    assert first.tolist() == again.tolist()
    assert (first.min(), first.max()) == (0, 23)
    assert arrival_offsets(100, 23, seed=1).tolist() != first.tolist()
    assert arrival_offsets(5, 0).tolist() == [0] * 5


@pytest.mark.parametrize(
    ("places", "arrivals", "says"),
    [(0, [0] * 4, "serves nothing"), (1, [0], "1 arrivals for 4 requests")],
)
def test_what_cannot_be_served(drawn: Draw, places: int, arrivals: list[int], says: str) -> None:
    workload: Workload = workload_of_trace(drawn(0)[0])
    with pytest.raises(InputError, match=says):
        batched(workload, places, arrivals)
