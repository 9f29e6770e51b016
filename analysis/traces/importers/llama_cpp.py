# SPDX-License-Identifier: Apache-2.0
"""What llama.cpp's evaluation callbacks dump: there is no standard file, three are in use.

- ``pos,layer,id0,id1,...``: rows without a header; a negative position is of the prompt.
- ``layer_id,expert_ids``: ids apart by spaces, in call order; rows of one layer in a row are the
  positions of one pass.
- ``[EXPERT-TRACE] Layer N: Experts [a, b, ...]`` among other lines of a log, in call order.
"""

import re
from collections.abc import Iterator

from pagetier.analysis.traces.importers.builder import Record, RouteBuilder, as_union, whole_number
from pagetier.analysis.traces.importers.options import Format, ImportOptions
from pagetier.analysis.traces.importers.routes import Geometry, Routes
from pagetier.analysis.traces.importers.source import Source

__all__ = ["LLAMA_CALLS", "LLAMA_LOG", "LLAMA_POSITIONS"]

_POSITIONS = re.compile(rb"-?\d+,\d+(?:,\d+)+\s*")
_CALLS_HEADER = b"layer_id,expert_ids"
_LOG = re.compile(r"\[EXPERT-TRACE\] Layer (\d+): Experts?(?: IDs =)? \[([\d, -]*)\]")


def _read_positions(source: Source, options: ImportOptions) -> Routes:
    builder = RouteBuilder(source, steps=True)
    request, before, top_k = 0, -1, 0
    for number, text in source.lines():
        if not text:
            continue
        fields = text.split(",")
        if len(fields) < 3:
            raise source.error("expected pos,layer,id,id,...: the row is cut", number)
        position = whole_number(source, fields[0], "position", number, -(2**31) + 1)
        layer = whole_number(source, fields[1], "layer", number)
        experts = [whole_number(source, text, "expert id", number) for text in fields[2:]]
        # Decode counts from 0: a fall, or a prompt after decode, is the next run in this file.
        request += before >= 0 and position < before
        before = position
        prefill = position < 0
        top_k = top_k or len(experts)
        step = max(position, 0)
        builder.add(Record(number, layer, experts, request=request, step=step, prefill=prefill))
    return builder.routes(Geometry(top_k=top_k or None))


def _read_calls(source: Source, options: ImportOptions) -> Routes:
    return _from_calls(source, _csv_calls(source))


def _read_log(source: Source, options: ImportOptions) -> Routes:
    return _from_calls(source, _log_calls(source))


Call = tuple[int, int, list[int]]  # line, layer, ids


def _csv_calls(source: Source) -> Iterator[Call]:
    for number, text in source.lines():
        if not text or text.encode() == _CALLS_HEADER:
            continue
        layer, comma, ids = text.partition(",")
        if not comma or not ids.strip():
            raise source.error("expected layer_id,expert_ids: the row is cut", number)
        yield (
            number,
            whole_number(source, layer, "layer_id", number),
            [whole_number(source, expert, "expert id", number) for expert in ids.split()],
        )


def _log_calls(source: Source) -> Iterator[Call]:
    for number, text in source.lines():
        found = _LOG.search(text)
        if found is None:
            continue
        ids = [part for part in found[2].split(",") if part.strip()]
        if not ids:
            raise source.error("a pass without experts: the log is cut", number)
        yield (
            number,
            whole_number(source, found[1], "layer", number),
            [whole_number(source, expert, "expert id", number) for expert in ids],
        )


def _from_calls(source: Source, calls: Iterator[Call]) -> Routes:
    builder = RouteBuilder(source, steps=False)
    rows: list[list[int]] = []
    first: tuple[int, int] | None = None  # line, layer
    top_k = 0
    for number, layer, experts in calls:
        if first is not None and layer != first[1]:
            _add(source, builder, first, rows)
            rows = []
        if not rows:
            first = (number, layer)
        rows.append(experts)
        top_k = min(top_k or len(experts), len(experts))
    if first is not None:
        _add(source, builder, first, rows)
    return builder.routes(Geometry(top_k=top_k or None))


def _add(
    source: Source, builder: RouteBuilder, first: tuple[int, int], rows: list[list[int]]
) -> None:
    line, layer = first
    experts, _ = as_union(source, line, [(row, ()) for row in rows])
    builder.add(Record(line, layer, experts, positions=len(rows)))


LLAMA_POSITIONS = Format(
    name="llama-positions",
    description="llama.cpp rows pos,layer,id,id,... without a header",
    detects=lambda source: _POSITIONS.fullmatch(source.first_line) is not None,
    read=_read_positions,
)
LLAMA_CALLS = Format(
    name="llama-calls",
    description="llama.cpp CSV layer_id,expert_ids in call order",
    detects=lambda source: source.first_line.strip() == _CALLS_HEADER,
    read=_read_calls,
)
LLAMA_LOG = Format(
    name="llama-log",
    description="llama.cpp logs with [EXPERT-TRACE] lines",
    detects=lambda source: b"[EXPERT-TRACE] Layer " in source.head,
    read=_read_log,
)
