# SPDX-License-Identifier: Apache-2.0
"""The generic tables: CSV with a header and JSON Lines, a row per token position and layer.

Columns are found by the names that logs commonly give them, or by ``--columns``.  Experts are one
list (``[1, 2]``, ``1 2``), one column per choice (``expert_id_0``, ``expert_id_1``, ...), or one
choice per row, which are gathered.  Rows may be layer by layer: the positions sort them.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from pagetier.analysis.traces.importers.builder import (
    Record,
    RouteBuilder,
    weight_number,
    whole_number,
)
from pagetier.analysis.traces.importers.engine_jsonl import read_records
from pagetier.analysis.traces.importers.keys import POSITION_NAMES, find_keys, is_list_of_ids
from pagetier.analysis.traces.importers.options import Format, ImportOptions
from pagetier.analysis.traces.importers.routes import Geometry, Routes
from pagetier.analysis.traces.importers.source import Source
from pagetier.analysis.traces.records import RecordColumns
from pagetier.native.routes import RouteKeys

__all__ = ["CSV_TABLE", "JSONL_TABLE"]

_CHOICE = re.compile(r"(?:expert_id|expert|id|topk)_?(\d+)")
_WEIGHT = re.compile(r"(?:expert_weight|weight)_?(\d+)")
_SINGLE = ("expert", "expert_id", "expert_idx")
_COUNT_NAMES = {"count", "activations", "hits", "frequency"}
_PREFILL_NAMES = ("prefill", "prompt")


def _is_jsonl_table(source: Source) -> bool:
    record = source.first_object
    keys = find_keys(source, record, {})
    return (
        keys is not None
        and is_list_of_ids(record.get(keys.experts))
        and keys.step in POSITION_NAMES
    )


def _read_jsonl(source: Source, options: ImportOptions) -> Routes:
    keys = find_keys(source, source.first_object, options.columns)
    if keys is None or keys.step is None:
        raise source.error(
            "the first record has no position, layer and experts: name its keys with --columns", 1
        )
    return _sorted(read_records(source, RecordColumns(source.path, keys, 1), options))


def _sorted(routes: Routes) -> Routes:
    """By request, position and layer: tables are no logs of calls."""
    step = routes.step if routes.step is not None else np.zeros(len(routes), np.int32)
    return routes.take(np.lexsort((routes.layer, step, routes.request)))


def _header(source: Source) -> list[str]:
    try:
        text = source.first_line.decode()
        return [name.strip() for name in next(csv.reader([text]), [])]
    except (UnicodeDecodeError, csv.Error):
        return []


def _is_csv_table(source: Source) -> bool:
    header = _header(source)
    return _layer_of(source, header, {}) is not None and bool(_experts_of(header, {}))


def _layer_of(source: Source, header: Sequence[str], columns: "dict[str, str]") -> RouteKeys | None:
    """The columns but experts."""
    return find_keys(source, [*header, "\0"], {**columns, "experts": "\0"})


def _experts_of(header: Sequence[str], columns: "dict[str, str]") -> list[int]:
    """Places of the columns that hold ids."""
    named = columns.get("experts")
    if named is not None:
        return [header.index(named)] if named in header else []
    choices = _numbered(header, _CHOICE)
    if choices:
        return choices
    for name in ("experts", "expert_ids", "selected_experts", "topk_ids", *_SINGLE):
        if name in header:
            return [header.index(name)]
    return []


def _numbered(header: Sequence[str], pattern: "re.Pattern[str]") -> list[int]:
    """Places of the columns of a family such as expert_id_0, expert_id_1, by their numbers."""
    found = [(pattern.fullmatch(name), place) for place, name in enumerate(header)]
    return [place for _, place in sorted((int(m[1]), place) for m, place in found if m)]


def _read_csv(source: Source, options: ImportOptions) -> Routes:
    header, columns = _header(source), dict(options.columns)
    keys, places = _layer_of(source, header, columns), _experts_of(header, columns)
    if keys is None or not places:
        raise source.error(
            f"has no columns layer and experts but {', '.join(header[:20])}: name them with"
            " --columns layer=NAME,experts=NAME",
            1,
        )
    if _COUNT_NAMES & {*header} or keys.step is None:
        raise source.error(
            "counts without positions are a table, in which no order is left, and cannot be"
            " replayed: record the routes, or use it where a table of counts is asked for"
        )
    builder = RouteBuilder(source, steps=True)
    for record in _gathered(_csv_records(source, header, keys, places)):
        builder.add(record)
    return _sorted(builder.routes(Geometry()))


def _gathered(records: Iterator[Record]) -> Iterator[Record]:
    """Rows of one choice each, put together where request, position and layer are the same."""
    first: Record | None = None
    experts: list[int] = []
    weights: list[float] = []
    for record in records:
        place = (record.request, record.step, record.layer, record.prefill)
        if first is not None and place != (first.request, first.step, first.layer, first.prefill):
            yield _with_experts(first, experts, weights)
            experts, weights = [], []
        if not experts:
            first = record
        experts.extend(record.experts)
        weights.extend(record.weights)
    if first is not None:
        yield _with_experts(first, experts, weights)


def _with_experts(record: Record, experts: Sequence[int], weights: Sequence[float]) -> Record:
    return replace(record, experts=experts, weights=weights)


def _csv_records(
    source: Source, header: Sequence[str], keys: RouteKeys, places: Sequence[int]
) -> Iterator[Record]:
    def field(row: Sequence[str], name: str | None, otherwise: str) -> str:
        return otherwise if name is None else row[header.index(name)]

    weights = _numbered(header, _WEIGHT)
    weights = weights if len(weights) == len(places) else []
    for number, row in _csv_rows(source, len(header)):
        ids = [text for place in places for text in re.findall(r"[^\s,\[\]]+", row[place])]
        if not ids:
            raise source.error("the row has no experts: the table is cut", number)
        yield Record(
            line=number,
            layer=whole_number(source, field(row, keys.layer, ""), keys.layer, number),
            experts=[whole_number(source, text, "expert id", number, -1) for text in ids],
            weights=[weight_number(source, row[place], number) for place in weights],
            request=field(row, keys.request, "1"),
            step=whole_number(source, field(row, keys.step, ""), keys.step or "", number),
            prefill=field(row, keys.phase, "") in _PREFILL_NAMES,
        )


def _csv_rows(source: Source, fields: int) -> Iterator[tuple[int, list[str]]]:
    lines = source.lines()
    next(lines, None)
    # Tokens may hold commas, quotes and newlines: the csv module asks for lines as it needs them.
    reader = csv.reader((f"{text}\n" for _, text in lines), strict=True)
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise source.error(f"not CSV ({error}): save it again", reader.line_num + 1) from error
        if row is None:
            return
        if not row:
            continue
        if len(row) != fields:
            raise source.error(f"{len(row)} fields instead of {fields}", reader.line_num + 1)
        yield reader.line_num + 1, row


CSV_TABLE = Format(
    name="csv",
    description="CSV with a header: columns position, layer and experts",
    detects=_is_csv_table,
    read=_read_csv,
)
JSONL_TABLE = Format(
    name="jsonl",
    description="JSON Lines with keys position, layer and experts",
    detects=_is_jsonl_table,
    read=_read_jsonl,
)
