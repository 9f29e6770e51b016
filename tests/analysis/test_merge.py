# SPDX-License-Identifier: Apache-2.0
"""Batches of requests: which step each joins, what the union holds, and that it replays."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagetier.analysis.errors import InputError
from pagetier.analysis.plans import build_plan
from pagetier.analysis.traces import Trace, TraceHeader, read_trace, trace_info, write_trace
from pagetier.analysis.traces.columns import starts_of
from pagetier.analysis.traces.merge import Merged, continuous, lockstep

LAYERS, EXPERTS, TOP_K = 2, 9, 2
Passes = list[list[int]]  # experts by layer
Request = list[list[Passes]]  # passes by step


def make_trace(requests: list[Request], *, at_once: bool = False, domain: str = "d") -> Trace:
    """Requests of steps of passes of layers; passes follow whole, or layer by layer."""
    rows: list[tuple[int, int, int, list[int]]] = []
    for number, steps in enumerate(requests):
        for step, passes in enumerate(steps):
            places = [(p, layer) for p in range(len(passes)) for layer in range(LAYERS)]
            if at_once:
                places.sort(key=lambda place: place[1])
            rows += [(number, step, layer, passes[p][layer]) for p, layer in places]
    return Trace(
        header=TraceHeader("tiny", LAYERS, EXPERTS, TOP_K, domain=domain),
        requests=tuple(f"r{number}" for number in range(len(requests))),
        request=np.array([row[0] for row in rows], dtype=np.int32),
        step=np.array([row[1] for row in rows], dtype=np.int32),
        layer=np.array([row[2] for row in rows], dtype=np.int32),
        record_start=starts_of(np.array([len(row[3]) for row in rows])),
        experts=np.array([e for row in rows for e in row[3]], dtype=np.uint32),
        weights=None,
        sha256="f" * 64,
    )


def events(merged: Merged) -> list[tuple[int, int, list[int]]]:
    trace = merged.trace
    starts, ids = trace.record_start.tolist(), trace.experts.tolist()
    return [
        (int(trace.step[r]), int(trace.layer[r]), ids[starts[r] : starts[r + 1]])
        for r in range(trace.num_records)
    ]


A: Request = [[[[0, 1], [2, 3]]], [[[4, 5], [6, 7]]]]
B: Request = [[[[1, 2], [3, 4]]], [[[8, 0], [6, 1]]], [[[0, 1], [0, 1]]]]


def test_lockstep_unites_step_by_step_up_to_the_shortest() -> None:
    merged = lockstep([make_trace([A], domain="a"), make_trace([B], domain="b")])
    assert events(merged) == [
        (0, 0, [0, 1, 2]),
        (0, 1, [2, 3, 4]),
        (1, 0, [4, 5, 8, 0]),
        (1, 1, [6, 7, 1]),
    ]
    assert (merged.logical_reads, merged.dedup) == (16, 16 / 13)
    assert merged.active.tolist() == [2, 2]
    header = merged.trace.header
    assert (header.batch, header.domain, header.accepted) == (2, "a+b", (2, 2))


def test_order_of_the_traces_is_the_order_of_the_experts() -> None:
    merged = lockstep([make_trace([B]), make_trace([A])])
    assert events(merged)[0] == (0, 0, [1, 2, 0])


def test_lockstep_serves_the_requests_of_one_trace_one_after_the_other() -> None:
    merged = lockstep([make_trace([A[:1], A[1:]]), make_trace([B])])
    assert events(merged)[2] == (1, 0, [4, 5, 8, 0])


def test_continuous_batching_refills_a_place_first_come_first_served() -> None:
    """Lengths 2, 3, 1, 2 in two places: the third request follows the first, the fourth the second
    or the third, whichever ends first: steps 0-1, 0-2, 2, 3-4."""
    lengths = [2, 3, 1, 2]
    requests: list[Request] = [[[[[n, 8], [n, 8]]]] * length for n, length in enumerate(lengths)]
    merged = continuous([make_trace(requests[:3]), make_trace(requests[3:])], 2)
    assert merged.active.tolist() == [2, 2, 2, 1, 1]
    assert [ids for _, layer, ids in events(merged) if layer == 0] == [
        [0, 8, 1],
        [0, 8, 1],
        [1, 8, 2],
        [3, 8],
        [3, 8],
    ]
    assert merged.accepted_tokens == sum(lengths)


FALLBACK: Request = [[[[0, 1, 2], [0, 1, 3]], [[0, 1], [0, 1]]]]


def test_the_second_pass_of_a_fallback_stays_an_event_of_its_own() -> None:
    merged = lockstep([make_trace([FALLBACK]), make_trace([B])])
    assert events(merged) == [
        (0, 0, [0, 1, 2]),
        (0, 1, [0, 1, 3, 4]),
        (0, 0, [0, 1]),
        (0, 1, [0, 1]),
    ]
    assert merged.accepted_tokens == 2  # one of the fallback, one of the normal iteration
    assert merged.trace.header.positions == (4,)  # draft and token, the token again, one more


def test_events_follow_layer_by_layer_where_a_request_repeats_layers_so() -> None:
    merged = lockstep([make_trace([B]), make_trace([FALLBACK], at_once=True)])
    assert [(layer, ids) for _, layer, ids in events(merged)] == [
        (0, [1, 2, 0]),
        (0, [0, 1]),
        (1, [3, 4, 0, 1]),
        (1, [0, 1]),
    ]


def test_a_merged_trace_is_read_and_counted_and_replays_like_any_other(tmp_path: Path) -> None:
    accept: Request = [[[[0, 1, 2], [3, 4, 5]]], [[[0, 1], [0, 1]]]]
    merged = lockstep([make_trace([accept]), make_trace([B])])
    path = tmp_path / "batch.jsonl.gz"
    write_trace(merged.trace, path)
    read = read_trace(path)
    info = trace_info(read)
    assert info["batch"] == 2
    assert (info["iterations"], info["positions"], info["accepted_tokens"]) == (2, 5, 5)
    plan = build_plan(read)
    assert plan.num_iterations == 2
    assert plan.num_reads == merged.trace.num_reads
    assert plan.sha256 == build_plan(merged.trace).sha256
    assert trace_info(read.first_steps(1))["accepted_tokens"] == 3


def test_one_trace_is_no_lockstep() -> None:
    with pytest.raises(InputError, match="--batch"):
        lockstep([make_trace([A])])


def test_a_batch_of_one_is_refused() -> None:
    with pytest.raises(InputError, match="2 places or more"):
        continuous([make_trace([A])], 1)


def test_traces_of_different_models_are_refused() -> None:
    other = make_trace([B])
    changed = Trace(
        **{
            **{name: getattr(other, name) for name in other.__dataclass_fields__},
            "header": TraceHeader("wide", LAYERS, EXPERTS + 1, TOP_K),
        }
    )
    with pytest.raises(InputError, match="2 x 9 experts top-2 and of 2 x 10 top-2"):
        lockstep([make_trace([A]), changed])


def test_a_batch_is_not_merged_again() -> None:
    batch = lockstep([make_trace([A]), make_trace([B])]).trace
    with pytest.raises(InputError, match="a batch already"):
        lockstep([batch, make_trace([B])])


def test_unknown_accepted_tokens_stay_unknown() -> None:
    """A record of 5 experts with k = 2 may hold three positions or more."""
    wide: Request = [[[[0, 1, 2, 3, 4], [0, 1]]]]
    merged = lockstep([make_trace([wide]), make_trace([B])])
    assert merged.accepted_tokens is None
    assert merged.trace.header.accepted is None


@st.composite
def requests(draw: st.DrawFn) -> Request:
    def selection() -> list[int]:
        ids = st.lists(st.integers(0, EXPERTS - 1), min_size=TOP_K, max_size=4, unique=True)
        return draw(ids)

    return [
        [[selection() for _ in range(LAYERS)] for _ in range(draw(st.integers(1, 2)))]
        for _ in range(draw(st.integers(1, 4)))
    ]


def brute_union(placed: list[tuple[Request, int]]) -> dict[tuple[int, int, int], list[int]]:
    """Events by (step, pass, layer), for requests that each start at a step."""
    union: dict[tuple[int, int, int], list[int]] = {}
    for steps, start in placed:
        for step, passes in enumerate(steps):
            for number, layers in enumerate(passes):
                for layer, ids in enumerate(layers):
                    event = union.setdefault((start + step, number, layer), [])
                    event += [expert for expert in ids if expert not in event]
    return union


@given(st.lists(requests(), min_size=2, max_size=4), st.integers(2, 3))
@settings(max_examples=50, deadline=None)
def test_unions_equal_a_brute_force(batch: list[Request], places: int) -> None:
    shortest = min(len(steps) for steps in batch)
    merged = lockstep([make_trace([steps]) for steps in batch])
    expected: Any = brute_union([(steps[:shortest], 0) for steps in batch])
    assert events(merged) == [(s, layer, ids) for (s, _, layer), ids in sorted(expected.items())]

    free, placed = [0] * places, []
    for steps in batch:
        place = free.index(min(free))
        placed.append((steps, free[place]))
        free[place] += len(steps)
    merged = continuous([make_trace(batch)], places)
    expected = brute_union(placed)
    assert events(merged) == [(s, layer, ids) for (s, _, layer), ids in sorted(expected.items())]
    assert merged.logical_reads == sum(
        len(ids) for steps in batch for passes in steps for layers in passes for ids in layers
    )
