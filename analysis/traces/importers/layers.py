# SPDX-License-Identifier: Apache-2.0
"""Numbers of layers and experts: those of the file become those of the trace.

A trace counts the layers that route, from 0; files often count the model's layers, of which the
dense ones never appear.  Expert-parallel engines number physical copies of experts.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.columns import Int32, Int64
from pagetier.analysis.traces.importers.routes import Routes

__all__ = ["map_layers", "map_physical"]

_MAX_LAYERS = 1 << 16


def map_layers(path: Path, routes: Routes, layers: tuple[int, ...] | None) -> Routes:
    """Layers 0, 1, ... for `layers`, or for those that the file routes; others are left out."""
    if not len(routes):
        return routes
    highest = int(routes.layer.max())
    if routes.layer.min() < 0 or highest >= _MAX_LAYERS:
        bad = int(np.argmax((routes.layer < 0) | (routes.layer >= _MAX_LAYERS)))
        raise InputError(f"{routes.where(bad)}: layer {routes.layer[bad]} is out of range")
    routing = _routing_layers(routes)
    if layers is None and routes.geometry.num_layers is not None:
        # The file counts its routing layers itself: a layer out of range is for the rules.
        return routes
    chosen = np.array(routing if layers is None else layers, np.int32)
    absent = sorted({*chosen.tolist()} - {*routing})
    if absent:
        raise InputError(
            f"{path}: layer {absent[0]} of --layers routes nothing here: name layers that do"
        )
    return _renumbered(routes, chosen)


def _routing_layers(routes: Routes) -> list[int]:
    """The layers with a recorded id."""
    recorded = routes.layer
    if routes.experts.size and routes.experts.min() < 0:
        recorded = np.repeat(routes.layer, routes.width)[routes.experts >= 0]
    return np.flatnonzero(np.bincount(recorded)).tolist() if len(recorded) else []


def _renumbered(routes: Routes, chosen: Int32) -> Routes:
    if np.array_equal(chosen, np.arange(int(routes.layer.max()) + 1)):
        return routes
    number = np.full(int(routes.layer.max()) + 1, -1, np.int32)
    number[chosen] = np.arange(len(chosen), dtype=np.int32)
    mapped = number[routes.layer]
    left_out = int(np.count_nonzero(mapped < 0))
    notes = []
    if len(chosen) and not np.array_equal(chosen, np.arange(len(chosen))):
        notes.append(f"layers {_spans(chosen)} of the file are layers 0-{len(chosen) - 1} here")
    if left_out:
        skipped = np.flatnonzero(np.bincount(routes.layer[mapped < 0]))
        notes.append(f"{left_out} records of layers {_spans(skipped)} were left out")
    kept = np.flatnonzero(mapped >= 0)
    geometry = replace(routes.geometry, num_layers=len(chosen))
    return replace(routes, layer=mapped, geometry=geometry).take(kept).with_notes(*notes)


def _spans(layers: Int32 | Int64) -> str:
    """1-3,5 for 1, 2, 3, 5."""
    breaks = np.flatnonzero(np.diff(layers) != 1) + 1
    runs = [(int(run[0]), int(run[-1])) for run in np.split(layers, breaks)]
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def map_physical(path: Path, routes: Routes, physical_map: Int64 | None) -> Routes:
    """Logical ids for physical ones, by a map [layer, physical id]."""
    if physical_map is None or not len(routes):
        return routes
    layers, copies = physical_map.shape
    layer = np.repeat(routes.layer, routes.width)
    bad = (layer >= layers) | (routes.experts >= copies) | (routes.experts < 0)
    if bad.any():
        read = int(np.argmax(bad))
        record = int(np.searchsorted(np.cumsum(routes.width), read, side="right"))
        raise InputError(
            f"{routes.where(record)}: layer {layer[read]}, expert {routes.experts[read]} is not in"
            f" the physical map of {layers} layers and {copies} copies: give the map of this run"
        )
    logical = physical_map[layer, routes.experts].astype(np.int32)
    return replace(routes, experts=logical).with_notes("physical ids were mapped to logical ones")
