# SPDX-License-Identifier: Apache-2.0
"""Static residency: a fixed set of experts, chosen by how often each was used.

The quota rule is the scope's: the most used of each layer up to its quota, or the most used of all
up to the budget (in bytes: until one does not fit); equal counts go by a seeded ranking; an expert
that the fitted trace never used is not held.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError
from pagetier.analysis.simulators.budgets import Capacity
from pagetier.analysis.simulators.events import Events
from pagetier.analysis.simulators.prepare import Prepared
from pagetier.analysis.traces import widths

__all__ = ["StaticSet", "Table", "same_trace_table", "static_set", "table_of"]

Bool = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Uses of every expert that was used, by ascending global id, and where they were counted.

    geometry: layers, and experts of each, of the model that was counted.
    """

    experts: Int64
    uses: Int64
    geometry: tuple[int, int]
    source: str


@dataclass(frozen=True, slots=True, eq=False)
class StaticSet:
    """The held experts: by object number, and how many they are with those the trace lacks."""

    holds: Bool
    experts: Int64


def table_of(events: Events, source: str) -> Table:
    """The uses of a whole trace, once per event; to be frozen for other traces."""
    width = widths(events.event_start)
    event = np.repeat(np.arange(len(width)), width)
    universe = events.total_experts
    once = np.unique(event * universe + events.experts.astype(np.int64))
    experts, uses = np.unique(once % universe, return_counts=True)
    geometry = (events.num_layers, events.num_experts)
    return Table(experts, uses.astype(np.int64), geometry, source)


def same_trace_table(prepared: Prepared) -> Table:
    """Fitted on what warms the replay, on all of it where nothing does."""
    objects, source = prepared.stream.objects, "same trace"
    if prepared.scored is not None:
        objects = objects[~prepared.scored]
        source = "same trace" if prepared.contract.warm == "pass" else "warm part"
    numbers, uses = np.unique(objects, return_counts=True)
    experts = numbers if prepared.experts is None else prepared.experts[numbers]
    geometry = (prepared.events.num_layers, prepared.events.num_experts)
    return Table(experts.astype(np.int64), uses.astype(np.int64), geometry, source)


def static_set(prepared: Prepared, table: Table, capacity: Capacity) -> StaticSet:
    """What `table` puts into a cache of that capacity."""
    if table.geometry != (prepared.events.num_layers, prepared.events.num_experts):
        layers, experts = table.geometry
        raise InputError(
            f"{table.source}: a table of {layers} layers of {experts} experts does not fit "
            f"{prepared.events.num_layers} of {prepared.events.num_experts}: fit it on a trace of "
            "the same model"
        )
    layer = np.zeros(len(table.experts), dtype=np.int64)
    layers = 1
    if prepared.contract.scope == "per-layer":
        layer, layers = table.experts // prepared.events.num_experts, prepared.events.num_layers
    size = np.ones(len(layer), dtype=np.int64)
    if capacity.expert_size is not None:
        size = capacity.expert_size[table.experts]
    order = np.lexsort((-_rank(prepared, table), -table.uses, layer))
    filled = np.cumsum(size[order])
    before = np.concatenate(([0], np.cumsum(np.bincount(layer, size, layers))))[:-1]
    fits = filled - before[layer[order]] <= capacity.of_part[layer[order]]
    return _held(prepared, np.sort(table.experts[order[fits]]))


def _rank(prepared: Prepared, table: Table) -> Int64:
    """Of equal counts the higher rank is held, as a tied replay keeps it."""
    rank = prepared.stream.object_rank
    if prepared.experts is None and rank is not None:
        return rank[table.experts].astype(np.int64)
    return np.random.default_rng(prepared.contract.seed).permutation(len(table.experts))


def _held(prepared: Prepared, experts: Int64) -> StaticSet:
    if prepared.experts is not None:
        return StaticSet(np.isin(prepared.experts, experts), experts)
    holds = np.zeros(prepared.stream.num_objects, dtype=np.bool_)
    holds[experts] = True
    return StaticSet(holds, experts)
