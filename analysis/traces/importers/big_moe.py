# SPDX-License-Identifier: Apache-2.0
"""BigMoeOnEdge ``--route-trace`` CSV: a `#` preamble with the shape, then a row per routed expert.

Columns go by name, as its documentation asks.  Phase 0 is prefill.  `step` is the position in the
context, `slot` the rank in the router's order.  A routing that its cache policy dropped was the
router's choice all the same and stays.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pagetier.analysis.traces.importers.builder import (
    Record,
    RouteBuilder,
    weight_number,
    whole_number,
)
from pagetier.analysis.traces.importers.options import Format, ImportOptions
from pagetier.analysis.traces.importers.routes import Geometry, Routes
from pagetier.analysis.traces.importers.source import Source

__all__ = ["BIG_MOE"]

_COLUMNS = ("turn", "phase", "step", "layer", "slot", "expert")
_WEIGHT = "weight"
_PREFILL = 0


def _detects(source: Source) -> bool:
    lines = [line for line in source.head.splitlines() if line and not line.startswith(b"#")]
    return bool(lines) and lines[0].startswith(",".join(_COLUMNS).encode())


@dataclass(frozen=True, slots=True)
class _Row:
    """One routed expert."""

    line: int
    cell: tuple[int, ...]  # turn, phase, step, layer
    slot: int
    expert: int
    weight: float


def _read(source: Source, options: ImportOptions) -> Routes:
    preamble: dict[str, str] = {}
    builder = RouteBuilder(source, steps=True)
    gathered: list[_Row] = []
    for row in _rows(source, preamble):
        if gathered and row.cell != gathered[0].cell:
            builder.add(_record(gathered))
            gathered = []
        if row.slot != len(gathered):
            raise source.error(f"slot {row.slot} comes where {len(gathered)} should be", row.line)
        gathered.append(row)
    if gathered:
        builder.add(_record(gathered))
    return builder.routes(_geometry(source, preamble))


def _record(rows: Sequence[_Row]) -> Record:
    turn, phase, step, layer = rows[0].cell
    return Record(
        line=rows[0].line,
        layer=layer,
        experts=[row.expert for row in rows],
        weights=[row.weight for row in rows],
        request=turn,
        step=step,
        prefill=phase == _PREFILL,
    )


def _rows(source: Source, preamble: dict[str, str]) -> Iterator[_Row]:
    places: list[int] | None = None
    for number, text in source.lines():
        if text.startswith("#"):
            pairs = (token.partition("=") for token in text[1:].split())
            preamble.update({name: value for name, _, value in pairs if name not in preamble})
            continue
        fields = text.split(",")
        if not text:
            continue
        if places is None:
            absent = [name for name in _COLUMNS if name not in fields]
            if absent:
                raise source.error(
                    f"the header has no column {absent[0]}: it is no route trace", number
                )
            places = [fields.index(name) for name in (*_COLUMNS, _WEIGHT) if name in fields]
            continue
        if len(fields) <= max(places):
            raise source.error("the row is cut: it has fewer fields than the header", number)
        *cell, slot, expert = (
            whole_number(source, fields[place], name, number)
            for place, name in zip(places, _COLUMNS, strict=False)
        )
        weighted = len(places) > len(_COLUMNS)
        weight = weight_number(source, fields[places[-1]], number) if weighted else math.nan
        yield _Row(number, tuple(cell), slot, expert, weight)


def _geometry(source: Source, preamble: dict[str, str]) -> Geometry:
    def count(name: str) -> int | None:
        return whole_number(source, preamble[name], name, 1, 1) if name in preamble else None

    return Geometry(
        model=preamble.get("model"),
        num_experts=count("n_expert"),
        top_k=count("n_expert_used"),
    )


BIG_MOE = Format(
    name="bigmoe",
    description="BigMoeOnEdge --route-trace CSV",
    detects=_detects,
    read=_read,
)
