# SPDX-License-Identifier: Apache-2.0
"""colibri's ROUTE_TRACE: a line per batch row of an MoE call, `call row layer id:gate id:gate ...`.

A call is one layer of one pass; its rows are the positions of that pass (a speculative draft, or a
prompt).  The rows of a call become one record: the set of their experts, gates added up.  There are
no steps and no requests: iterations follow from the order of the layers, requests from prefill.
"""

import re

from pagetier.analysis.traces.importers.builder import (
    Record,
    RouteBuilder,
    as_union,
    weight_number,
    whole_number,
)
from pagetier.analysis.traces.importers.options import Format, ImportOptions
from pagetier.analysis.traces.importers.routes import Geometry, Routes
from pagetier.analysis.traces.importers.source import Source

__all__ = ["ROUTE_TRACE"]

_LINE = re.compile(rb"\d+ \d+ \d+(?: -?\d+:[-+\w.]+)+\s*")

Row = tuple[list[int], list[float]]


def _detects(source: Source) -> bool:
    return _LINE.fullmatch(source.first_line) is not None


def _read(source: Source, options: ImportOptions) -> Routes:
    builder = RouteBuilder(source, steps=False)
    top_k = 0
    call: tuple[int, int, int] | None = None  # call, layer, first line
    rows: list[Row] = []
    for number, text in source.lines():
        if not text.strip():
            continue
        called, row, layer, routed = _parse(source, number, text)
        if call is not None and called != call[0]:
            _add(source, builder, call, rows)
            rows = []
        if not rows:
            call = (called, layer, number)
        if call is None or layer != call[1] or row != len(rows):
            raise source.error(
                f"call {called}, row {row}, layer {layer} does not follow the row before: the rows"
                " of a call count from 0 in one layer",
                number,
            )
        rows.append(routed)
        top_k = top_k or len(routed[0])
    if call is not None:
        _add(source, builder, call, rows)
    return builder.routes(Geometry(top_k=top_k or None))


def _add(
    source: Source, builder: RouteBuilder, call: tuple[int, int, int], rows: list[Row]
) -> None:
    _, layer, line = call
    experts, weights = as_union(source, line, rows)
    builder.add(Record(line, layer, experts, weights, positions=len(rows)))


def _parse(source: Source, number: int, text: str) -> tuple[int, int, int, Row]:
    fields = text.split()
    if len(fields) < 4:
        raise source.error("expected <call> <row> <layer> <id>:<gate> ...: the line is cut", number)
    call, row, layer = (
        whole_number(source, field, name, number)
        for field, name in zip(fields, ("call", "row", "layer"), strict=False)
    )
    experts, gates = [], []
    for field in fields[3:]:
        expert, _, gate = field.partition(":")
        experts.append(whole_number(source, expert, "expert id", number))
        gates.append(weight_number(source, gate, number))
    return call, row, layer, (experts, gates)


ROUTE_TRACE = Format(
    name="colibri",
    description="colibri ROUTE_TRACE text",
    detects=_detects,
    read=_read,
)
