# SPDX-License-Identifier: Apache-2.0
"""Router records out of JSON Lines at the speed of the disk; the full JSON parser takes the rest.

`RouteParser.parse` takes plain records from a block of whole lines until one is not plain.  The
calls leave the GIL free.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagetier.native._core import ffi, lib

__all__ = ["Block", "NameChange", "RouteKeys", "RouteParser", "first_repeated"]

Int32 = npt.NDArray[np.int32]

_RECORDS = 1 << 15
_READS = 1 << 18


@dataclass(frozen=True, slots=True)
class RouteKeys:
    """The key of each column in the records; None where records have no such key."""

    layer: str
    experts: str
    request: str | None = None
    phase: str | None = None
    step: str | None = None
    weights: str | None = None


@dataclass(frozen=True, slots=True)
class NameChange:
    """From this record of the block on, the name is `token`: JSON text, quotes included."""

    record: int
    token: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Records of one parse; the arrays are the parser's own and change with its next parse."""

    taken_bytes: int
    requests: tuple[NameChange, ...]
    phases: tuple[NameChange, ...]
    step: Int32
    layer: Int32
    width: Int32
    experts: Int32
    weights: npt.NDArray[np.float64]


class RouteParser:
    """A parser for records with these keys, with room for one block of columns."""

    def __init__(self, keys: RouteKeys) -> None:
        self._names = {
            name: ffi.NULL if key is None else ffi.new("char[]", key.encode())
            for name, key in _keys(keys).items()
        }
        self._keys = ffi.new("struct pt_route_keys *", self._names)
        self._request = ffi.new("struct pt_route_name[]", _RECORDS)
        self._phase = ffi.new("struct pt_route_name[]", _RECORDS)
        self._step, self._layer, self._width = (np.empty(_RECORDS, np.int32) for _ in range(3))
        self._experts = np.empty(_READS, np.int32)
        self._weights = np.empty(_READS, np.float64)
        self._columns = ffi.new(
            "struct pt_route_columns *",
            {
                "request": self._request,
                "phase": self._phase,
                "step": ffi.from_buffer("int32_t[]", self._step),
                "layer": ffi.from_buffer("int32_t[]", self._layer),
                "width": ffi.from_buffer("int32_t[]", self._width),
                "experts": ffi.from_buffer("int32_t[]", self._experts),
                "weights": ffi.from_buffer("double[]", self._weights),
                "record_capacity": _RECORDS,
                "read_capacity": _READS,
            },
        )

    def parse(self, lines: bytes | memoryview) -> Block:
        """The plain records at the start of `lines`, as many as fit."""
        with ffi.from_buffer("char[]", lines) as text:
            taken = lib.pt_routes_parse(text, len(lines), self._keys, self._columns)
            columns = self._columns
            requests = _changes(text, self._request, columns.requests)
            phases = _changes(text, self._phase, columns.phases)
        records, reads = columns.records, columns.reads
        return Block(
            taken_bytes=taken,
            requests=requests,
            phases=phases,
            step=self._step[:records],
            layer=self._layer[:records],
            width=self._width[:records],
            experts=self._experts[:reads],
            weights=self._weights[:reads],
        )


def _keys(keys: RouteKeys) -> dict[str, str | None]:
    names = ("request", "phase", "step", "layer", "experts", "weights")
    return {name: getattr(keys, name) for name in names}


def _changes(text: object, changes: object, count: int) -> tuple[NameChange, ...]:
    whole = ffi.buffer(text)
    found = ffi.unpack(changes, count)
    return tuple(
        NameChange(change.record, bytes(whole[change.offset : change.offset + change.length]))
        for change in found
    )


def first_repeated(experts: npt.NDArray[np.uint32], starts: npt.NDArray[np.uint64]) -> int | None:
    """Index of the first id that its record holds already; None when all are distinct."""
    stamps = np.zeros(lib.PT_ROUTES_STAMPS, np.uint32)
    records = len(starts) - 1
    read = lib.pt_routes_distinct(
        ffi.from_buffer("uint32_t[]", np.ascontiguousarray(experts)),
        ffi.from_buffer("uint64_t[]", np.ascontiguousarray(starts)),
        records,
        ffi.from_buffer("uint32_t[]", stamps, require_writable=True),
    )
    return None if read == starts[-1] else int(read)
