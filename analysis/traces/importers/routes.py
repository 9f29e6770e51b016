# SPDX-License-Identifier: Apache-2.0
"""What an importer hands over: the routes of one file as columns, before any rule is applied."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from pagetier.analysis.traces.columns import Float64, Int32, starts_of

__all__ = ["Geometry", "Routes", "join", "regular_routes"]

Bools = npt.NDArray[np.bool_]
_T = TypeVar("_T", bound=np.generic)

_PIECE_RECORDS = 1 << 16


@dataclass(frozen=True, slots=True)
class Geometry:
    """What a file says about its model; None where it does not."""

    model: str | None = None
    num_layers: int | None = None
    num_experts: int | None = None
    top_k: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """One entry per router pass of one layer, in issued order.

    `request` indexes `names`.  `step` are the recorded steps or token positions; None where the
    order of the layers has to tell iterations apart.  Layer numbers are as recorded: dense layers
    may be missing among them.  Ids below 0 stand for routes that were not recorded.  `positions`
    is how many token positions a record holds, where that is known.  `where` names the place of a
    record for messages.
    """

    where: Callable[[int], str]
    names: tuple[str | int, ...]
    request: Int32
    step: Int32 | None
    layer: Int32
    width: Int32
    experts: Int32
    weights: Float64 | None = None
    prefill: Bools | None = None
    positions: Int32 | None = None
    geometry: Geometry = Geometry()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.layer)

    def take(self, records: npt.NDArray[np.integer]) -> "Routes":
        """These records, in this order."""
        if np.array_equal(records, np.arange(len(self))):
            return self
        where = self.where
        return replace(
            self,
            where=lambda record: where(int(records[record])),
            request=self.request[records],
            step=None if self.step is None else self.step[records],
            layer=self.layer[records],
            width=self.width[records],
            experts=_items(self.experts, self.width, records),
            weights=None if self.weights is None else _items(self.weights, self.width, records),
            prefill=None if self.prefill is None else self.prefill[records],
            positions=None if self.positions is None else self.positions[records],
        )

    def with_geometry(self, geometry: Geometry) -> "Routes":
        """The same with what the file says about its model."""
        return replace(self, geometry=geometry)

    def with_layers(self, layer: Int32) -> "Routes":
        """The same with other numbers of layers."""
        return replace(self, layer=layer)

    def with_prefill(self, prefill: Bools) -> "Routes":
        """The same with what is known to be prefill."""
        return replace(self, prefill=prefill)

    def with_notes(self, *notes: str) -> "Routes":
        """The same with more to say."""
        return replace(self, notes=self.notes + notes)


def _items(
    values: npt.NDArray[_T], width: Int32, records: npt.NDArray[np.integer]
) -> npt.NDArray[_T]:
    """The values of these records, whose lengths are `width`."""
    if len(width) and (width == width[0]).all():
        regular: npt.NDArray[_T] = values.reshape(len(width), int(width[0]))[records].reshape(-1)
        return regular
    starts = starts_of(width)[:-1].astype(np.int64)
    pieces = [values[:0]]
    # Piecewise, for an index per value would be twice as large as the values.
    for at in range(0, len(records), _PIECE_RECORDS):
        some = records[at : at + _PIECE_RECORDS]
        lengths = width[some]
        ends = np.cumsum(lengths, dtype=np.int64)
        index = np.repeat(starts[some] - ends + lengths, lengths)
        pieces.append(values[index + np.arange(len(index))])
    return np.concatenate(pieces)


def regular_routes(
    ids: npt.NDArray[np.integer],
    where: Callable[[int, int], str],
    name: str | int,
    geometry: Geometry,
    notes: tuple[str, ...] = (),
) -> Routes:
    """Routes of one request from ids[position, layer, k]; `where` takes position and layer."""
    positions, layers, top_k = ids.shape
    records = positions * layers
    return Routes(
        where=lambda record: where(record // layers, record % layers),
        names=(name,),
        request=np.zeros(records, np.int32),
        step=np.repeat(np.arange(positions, dtype=np.int32), layers),
        layer=np.tile(np.arange(layers, dtype=np.int32), positions),
        width=np.full(records, top_k, np.int32),
        experts=np.ascontiguousarray(ids, np.int32).reshape(-1),
        geometry=replace(geometry, top_k=geometry.top_k or top_k),
        notes=notes,
    )


def join(parts: Sequence[Routes]) -> Routes:
    """The requests of all parts, one after another, with the geometry of the first."""
    ends = np.cumsum([len(part) for part in parts])

    def where(record: int) -> str:
        part = int(np.searchsorted(ends, record, side="right"))
        return parts[part].where(record - int(ends[part]) + len(parts[part]))

    names: dict[str | int, int] = {}
    requests = []
    for part in parts:
        numbers = [names.setdefault(name, len(names)) for name in part.names]
        requests.append(np.array(numbers, np.int32)[part.request])
    steps = [part.step for part in parts if part.step is not None]
    prefills = [part.prefill for part in parts if part.prefill is not None]
    return Routes(
        where=where,
        names=tuple(names),
        request=np.concatenate(requests),
        step=np.concatenate(steps) if len(steps) == len(parts) else None,
        layer=np.concatenate([part.layer for part in parts]),
        width=np.concatenate([part.width for part in parts]),
        experts=np.concatenate([part.experts for part in parts]),
        prefill=np.concatenate(prefills) if len(prefills) == len(parts) else None,
        geometry=parts[0].geometry,
        notes=tuple(note for part in parts for note in part.notes),
    )
