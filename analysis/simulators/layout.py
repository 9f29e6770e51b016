# SPDX-License-Identifier: Apache-2.0
"""Accesses in the order in which a contract replays them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagetier.analysis.simulators.contract import Contract
from pagetier.analysis.simulators.events import Events
from pagetier.analysis.traces import widths

__all__ = ["Layout", "lay_out"]

Int64 = npt.NDArray[np.int64]

_MAX_ACCESSES = 2**32 - 2


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Object, group and iteration of each access; those of a second pass go on counting.

    A group is an event, or an access of its own under access replay.
    """

    objects: Int64
    group: Int64
    iteration: Int64

    def taken(self, order: npt.NDArray[np.intp]) -> "Layout":
        """The accesses in another order."""
        return Layout(self.objects[order], self.group[order], self.iteration[order])


def lay_out(events: Events, contract: Contract, objects: Int64, rank: Int64) -> Layout:
    """`objects` are the reads of the events by object number, `rank` settles ties between them."""
    width = widths(events.event_start)
    event = np.repeat(np.arange(len(width)), width)
    if contract.replay == "event":
        objects, event = _distinct_by_rank(objects, event, rank)
    elif contract.order != "recorded":
        objects = objects[_order_within(events, contract, event)]
    per_iteration = widths(events.iteration_start)
    iteration = np.repeat(np.arange(len(per_iteration)), per_iteration)[event]
    by_event = contract.replay == "event"
    layout = Layout(objects, event if by_event else np.arange(len(objects)), iteration)
    passes = 2 if contract.warm == "pass" else 1
    if passes * len(objects) > _MAX_ACCESSES:
        raise ValueError(f"{passes * len(objects)} accesses are more than the simulator can number")
    num_groups = len(width) if by_event else len(objects)
    return layout if passes == 1 else _twice(layout, num_groups, events.num_iterations)


def _distinct_by_rank(objects: Int64, event: Int64, rank: Int64) -> tuple[Int64, Int64]:
    """The distinct members of every event in ascending order of rank, and their event."""
    keys = event * max(1, len(rank)) + rank[objects]
    keys.sort()
    first = np.ones(len(keys), dtype=np.bool_)
    first[1:] = keys[1:] != keys[:-1]
    kept_event, kept_rank = np.divmod(keys[first], max(1, len(rank)))
    by_rank = np.empty(len(rank), dtype=np.int64)
    by_rank[rank] = np.arange(len(rank))
    return by_rank[kept_rank], kept_event


def _order_within(events: Events, contract: Contract, event: Int64) -> npt.NDArray[np.intp]:
    if contract.order == "ascending":
        return np.lexsort((events.experts, event))
    drawn = np.random.default_rng(contract.seed).random(len(event))
    return np.lexsort((drawn, event))


def _twice(layout: Layout, num_groups: int, num_iterations: int) -> Layout:
    again = np.repeat([0, 1], len(layout.objects))
    return Layout(
        objects=np.tile(layout.objects, 2),
        group=np.tile(layout.group, 2) + again * num_groups,
        iteration=np.tile(layout.iteration, 2) + again * num_iterations,
    )
