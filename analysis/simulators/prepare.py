# SPDX-License-Identifier: Apache-2.0
"""Events laid out for the native replay under a contract: done once, used by every policy.

Every cache (layer, request or both) gets its accesses in one piece.  Object numbers are global
expert ids, or their ranks among the ids that occur where the model is much larger than the trace.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from pagetier.analysis.simulators.contract import Contract
from pagetier.analysis.simulators.events import Events
from pagetier.analysis.simulators.layout import Layout, lay_out
from pagetier.native.simulator import Stream

__all__ = ["Prepared", "prepare"]

Bool = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]
Uint32 = npt.NDArray[np.uint32]
Uint64 = npt.NDArray[np.uint64]

# Below this universe tables of the whole of it cost less than finding out what occurs.
_SMALL_UNIVERSE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A stream for the native replay, and what its accesses mean.

    part_layer: layer of each cache, -1 for all layers.  experts: global id of each object, None
    where they are the same.  scored: which accesses count, None for all.  iteration: of each
    access, from 0 at the first scored one; negative while warming.  scored_iterations: how many
    iterations count.
    """

    contract: Contract
    events: Events
    stream: Stream
    part_layer: Int64
    experts: Int64 | None
    scored: Bool | None
    iteration: Int64
    scored_iterations: int

    @property
    def accesses(self) -> int:
        """Accesses that are scored."""
        return len(self.iteration) if self.scored is None else int(np.count_nonzero(self.scored))

    def of_experts(self, per_expert: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """An array by global expert id as one by object number."""
        return per_expert if self.experts is None else per_expert[self.experts]

    def per_iteration(self, counted: Bool) -> Int64:
        """How many of the counted accesses each scored iteration has."""
        chosen = counted if self.scored is None else counted & self.scored
        return np.bincount(self.iteration[chosen], minlength=self.scored_iterations)


def prepare(events: Events, contract: Contract) -> Prepared:
    """Lay out `events`; costs about a sort of the accesses under event replay, little otherwise."""
    experts, objects, num_objects = _numbered(events)
    rank = np.random.default_rng(contract.seed).permutation(num_objects)
    layout = lay_out(events, contract, objects, rank)
    part, part_layer = _caches(events, contract, layout, experts)
    part_width = np.bincount(part, minlength=len(part_layer))
    if len(part_layer) > 1:
        layout = layout.taken(np.argsort(part, kind="stable"))
    numbers, warm = _windows(events, contract)
    return Prepared(
        contract=contract,
        events=events,
        stream=_stream(contract, layout, part_width, rank.astype(np.uint32)),
        part_layer=part_layer,
        experts=experts,
        scored=~warm[layout.iteration] if warm.any() else None,
        iteration=numbers[layout.iteration],
        scored_iterations=int(np.count_nonzero(~warm)),
    )


def _numbered(events: Events) -> tuple[Int64 | None, Int64, int]:
    """Global ids of the objects (None: the same), the object of each read, how many there are."""
    reads = events.experts.astype(np.int64)
    if events.total_experts <= max(_SMALL_UNIVERSE, 2 * len(reads)):
        return None, reads, events.total_experts
    experts, objects = np.unique(reads, return_inverse=True)
    return experts, objects.astype(np.int64), len(experts)


def _caches(
    events: Events, contract: Contract, layout: Layout, experts: Int64 | None
) -> tuple[Int64, Int64]:
    """The cache of each access, and the layer of each cache."""
    if contract.scope == "per-layer":
        ids = layout.objects if experts is None else experts[layout.objects]
        layer = ids // events.num_experts
        layers = np.arange(events.num_layers)
    else:
        layer = np.zeros(len(layout.objects), dtype=np.int64)
        layers = np.array([-1])
    if contract.start == "once":
        return layer, layers
    starts = _runs(events.request)
    run = np.repeat(np.arange(len(starts) - 1), starts[1:] - starts[:-1])
    run_of_access = run[layout.iteration % max(1, events.num_iterations)]
    return run_of_access * len(layers) + layer, np.tile(layers, len(starts) - 1)


def _stream(contract: Contract, layout: Layout, part_width: Int64, rank: Uint32) -> Stream:
    part_start = np.zeros(len(part_width) + 1, dtype=np.int64)
    np.cumsum(part_width, out=part_start[1:])
    first, group_start = np.arange(len(layout.objects)), None
    if contract.replay == "event":
        # An event that several caches share falls into as many groups.
        begins = np.ones(len(layout.objects), dtype=np.bool_)
        begins[1:] = layout.group[1:] != layout.group[:-1]
        begins[part_start[:-1][part_width > 0]] = True
        first = np.flatnonzero(begins)
        group_start = np.append(first, len(layout.objects)).astype(np.uint64)
        part_start = np.searchsorted(first, part_start)
    return Stream(
        objects=layout.objects.astype(np.uint32),
        part_start=part_start.astype(np.uint64),
        num_objects=len(rank),
        group_start=group_start,
        group_time=layout.group[first].astype(np.uint32),
        group_cycle=layout.iteration[first].astype(np.uint32),
        object_rank=rank,
    )


def _windows(events: Events, contract: Contract) -> tuple[Int64, Bool]:
    """The number of each replayed iteration among the scored ones, and which only warm."""
    count = events.num_iterations
    if contract.warm == "pass":
        warm = np.repeat([True, False], count)
    elif contract.warm == "nothing":
        warm = np.zeros(count, dtype=np.bool_)
    else:
        starts = _runs(events.request) if contract.start == "per-request" else np.array([0, count])
        width = starts[1:] - starts[:-1]
        share = Fraction(str(contract.warm))
        warm_count = np.array([int(share * length) for length in width.tolist()], dtype=np.int64)
        place = np.arange(count) - np.repeat(starts[:-1], width)
        warm = place < np.repeat(warm_count, width)
    return np.where(warm, -1, np.cumsum(~warm) - 1), warm


def _runs(values: Int64) -> Int64:
    """Where equal neighbours start, and the end."""
    changed = np.flatnonzero(values[1:] != values[:-1]) + 1
    first = [0] if len(values) else []
    return np.concatenate((first, changed, [len(values)])).astype(np.int64)
