# SPDX-License-Identifier: Apache-2.0
"""The rules between the records of a trace, checked array-wise.

Each rule names the first record that breaks it, with what is wrong there; nothing is repaired.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagetier.analysis.traces.columns import (
    Float64,
    Int32,
    Trace,
    TraceHeader,
    Uint32,
    Uint64,
    widths,
)
from pagetier.native.routes import first_repeated

__all__ = ["Problem", "View", "first_problem"]


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The columns that the rules look at; `experts` may hold any 32 bits."""

    header: TraceHeader
    names: tuple[str | int, ...]
    request: Int32
    step: Int32
    layer: Int32
    record_start: Uint64
    experts: Uint32

    def record_of_read(self, read: int) -> int:
        """The record that a read belongs to."""
        return int(np.searchsorted(self.record_start, read, side="right")) - 1

    def trace(self, weights: Float64 | None, sha256: str | None) -> Trace:
        """The trace with these columns, once they keep the rules."""
        return Trace(
            header=self.header,
            requests=self.names,
            request=self.request,
            step=self.step,
            layer=self.layer,
            record_start=self.record_start,
            experts=self.experts,
            weights=weights,
            sha256=sha256,
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a record."""

    record: int
    message: str


def first_problem(view: View) -> Problem | None:
    """The first record that breaks a rule; None when all are kept, or when there is no record."""
    if not len(view.layer):
        return None
    found = [problem for rule in _RULES if (problem := rule(view)) is not None]
    return min(found, default=None, key=lambda problem: problem.record)


def _first(bad: npt.NDArray[np.bool_]) -> int | None:
    return int(np.argmax(bad)) if bad.any() else None


def _check_widths(view: View) -> Problem | None:
    top_k, num_experts = view.header.top_k, view.header.num_experts
    width = widths(view.record_start)
    bad = _first((width < top_k) | (width > num_experts))
    if bad is None:
        return None
    return Problem(
        bad,
        f"wrong width: {width[bad]} experts, expected top_k {top_k}"
        f" (or more in a speculative record, at most {num_experts})",
    )


def _check_ids(view: View) -> Problem | None:
    num_experts = view.header.num_experts
    # An id below 0 has its highest bit set: as an unsigned number it is out of range too.
    bad = _first(view.experts >= num_experts)
    if bad is None:
        return None
    expert = view.experts.view(np.int32)[bad]
    problem = "is negative" if expert < 0 else "is out of range"
    record = view.record_of_read(bad)
    return Problem(record, f"expert id {expert} {problem}: ids are 0..{num_experts - 1}")


def _check_distinct(view: View) -> Problem | None:
    bad = first_repeated(view.experts, view.record_start)
    if bad is None:
        return None
    expert = view.experts.view(np.int32)[bad]
    return Problem(view.record_of_read(bad), f"expert id {expert} appears twice in one record")


def _check_requests(view: View) -> Problem | None:
    # Requests are numbered as they first appear, so the number may only stay or rise by one.
    bad = _first(~np.isin(np.diff(view.request, prepend=0), (0, 1)))
    if bad is None:
        return None
    name = view.names[view.request[bad]]
    return Problem(
        bad, f"request {name!r} appears again after another one: keep its records together"
    )


def _check_steps(view: View) -> Problem | None:
    starts = np.diff(view.request, prepend=-1) != 0
    rise = np.diff(view.step, prepend=0)
    bad = _first(np.where(starts, view.step != 0, ~np.isin(rise, (0, 1))))
    if bad is None:
        return None
    if starts[bad]:
        name = view.names[view.request[bad]]
        return Problem(bad, f"request {name!r} starts at step {view.step[bad]}, not 0")
    before, step = view.step[bad - 1], view.step[bad]
    if step < before:
        return Problem(bad, f"step {step} comes after step {before}: records are out of order")
    return Problem(bad, f"step {step} follows step {before}: steps are not contiguous")


def _check_layers(view: View) -> Problem | None:
    last_layer = view.header.num_layers - 1
    found = []
    bad = _first(view.layer > last_layer)
    if bad is not None:
        layer = view.layer[bad]
        found.append(Problem(bad, f"layer {layer} is out of range: 0..{last_layer}"))
    starts = (np.diff(view.request, prepend=-1) != 0) | (np.diff(view.step, prepend=-1) != 0)
    before = np.concatenate((np.array([last_layer], np.int32), view.layer[:-1]))
    ended_early = starts & (before != last_layer)
    opened_late = starts & (view.layer != 0)
    # A fallback repeats each layer at once, or passes all layers a second time.
    again = (view.layer == before) | ((before == last_layer) & (view.layer == 0))
    jumped = ~starts & (view.layer != before + 1) & ~again
    bad = _first(ended_early | opened_late | jumped)
    if bad is not None:
        expected = 0 if opened_late[bad] and not ended_early[bad] else int(before[bad]) + 1
        found.append(Problem(bad, _layer_message(view, bad, expected, bool(ended_early[bad]))))
    return min(found, default=None, key=lambda problem: problem.record)


def _layer_message(view: View, record: int, expected: int, ended_early: bool) -> str:
    layer = view.layer[record]
    if ended_early:
        step = view.step[record - 1]
        return f"layer {expected} is missing: step {step} ended after layer {expected - 1}"
    if layer > expected:
        return f"layer {expected} is missing: step {view.step[record]} goes on with layer {layer}"
    return f"layer {layer} comes after layer {expected - 1}: layers are out of order"


_RULES: tuple[Callable[[View], Problem | None], ...] = (
    _check_widths,
    _check_ids,
    _check_distinct,
    _check_requests,
    _check_steps,
    _check_layers,
)
