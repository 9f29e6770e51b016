# SPDX-License-Identifier: Apache-2.0
"""What a simulator replays: events of experts, in iterations, in requests.

An event is what one record of a trace reads, or what a batch reads of one layer in one step; an
expert's global id is ``layer * num_experts + expert``.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagetier.analysis.plans import Plan, build_plan
from pagetier.analysis.traces import Trace

__all__ = ["Events", "events_of_plan", "events_of_trace"]

Int64 = npt.NDArray[np.int64]
Uint32 = npt.NDArray[np.uint32]
Uint64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Event e reads experts[event_start[e]:event_start[e + 1]], global ids in recorded order;
    iteration i is events iteration_start[i] to iteration_start[i + 1], of request[i]."""

    experts: Uint32
    event_start: Uint64
    iteration_start: Uint64
    request: Int64
    num_layers: int
    num_experts: int

    @property
    def num_iterations(self) -> int:
        return len(self.iteration_start) - 1

    @property
    def total_experts(self) -> int:
        """Experts of the model: the universe of the cache."""
        return self.num_layers * self.num_experts


def events_of_plan(plan: Plan, request: Int64 | None = None) -> Events:
    """The records of a plan; all of one request unless each iteration's is given."""
    if request is None:
        request = np.zeros(plan.num_iterations, dtype=np.int64)
    return Events(
        experts=plan.experts,
        event_start=plan.record_start,
        iteration_start=plan.iteration_start,
        request=request,
        num_layers=plan.num_layers,
        num_experts=plan.num_experts,
    )


def events_of_trace(trace: Trace) -> Events:
    """The records of a trace in recorded order, requests one after another."""
    plan = build_plan(trace)
    first_record = plan.iteration_start[:-1].astype(np.int64)
    return events_of_plan(plan, trace.request[first_record].astype(np.int64))
