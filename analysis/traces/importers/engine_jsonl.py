# SPDX-License-Identifier: Apache-2.0
"""JSON Lines as engines write them: one record per router pass of one layer, in issued order.

No line is a header and none tells what speculation did: k ids are one position, up to m times k ids
are m positions that were routed together, and a layer that comes twice is a draft that failed and
its fallback.  Iterations follow from the order of the layers, or from a step where one is recorded.
Lines that hold something else than a record are refused.  The same reader takes ``moe-route-trace``
files, of which the header says the geometry, so that a damaged one can be repaired.
"""

import json
from collections.abc import Iterator

import numpy as np

from pagetier.analysis.traces.columns import Int32
from pagetier.analysis.traces.header import FORMAT, parse_header
from pagetier.analysis.traces.importers.keys import POSITION_NAMES, find_keys, is_list_of_ids
from pagetier.analysis.traces.importers.options import Format, ImportOptions
from pagetier.analysis.traces.importers.routes import Geometry, Routes
from pagetier.analysis.traces.importers.source import Source
from pagetier.analysis.traces.read import KEYS
from pagetier.analysis.traces.records import RecordColumns

__all__ = ["CANONICAL", "ENGINE_JSONL", "prefill_phases", "read_records"]

# What recorders call the passes over a prompt.
_PREFILL_NAMES = ("prefill", "prompt", "decoder_prompt", 0)


def _is_canonical(source: Source) -> bool:
    return source.first_object.get("format") == FORMAT


def _is_engine_jsonl(source: Source) -> bool:
    record = source.first_object
    keys = find_keys(source, record, {})
    return (
        keys is not None
        and is_list_of_ids(record.get(keys.experts))
        and keys.step not in POSITION_NAMES
    )


def _read_canonical(source: Source, options: ImportOptions) -> Routes:
    header = parse_header(source.path, source.first_line)
    columns = RecordColumns(source.path, KEYS, first_line=2)
    routes = read_records(source, columns, options, skip_lines=1)
    geometry = Geometry(header.model, header.num_layers, header.num_experts, header.top_k)
    return routes.with_geometry(geometry)


def _read_engine_jsonl(source: Source, options: ImportOptions) -> Routes:
    keys = find_keys(source, source.first_object, options.columns)
    if keys is None:
        raise source.error(
            "the first record has no layer and experts: name its keys with"
            " --columns layer=NAME,experts=NAME",
            1,
        )
    return read_records(source, RecordColumns(source.path, keys, first_line=1), options)


def read_records(
    source: Source, columns: RecordColumns, options: ImportOptions, skip_lines: int = 0
) -> Routes:
    """The records after the first `skip_lines` lines, as they were issued."""
    notes = []
    blocks = _without_lines(source.blocks(), skip_lines)
    for block in blocks:
        whole = _whole_lines(block) if options.repair else block
        if len(whole) < len(block):
            notes.append("repaired: the last line was cut and was left out")
        columns.add_block(whole)
    return routes_of(columns).with_notes(*notes)


def _without_lines(blocks: Iterator[bytes], lines: int) -> Iterator[bytes]:
    for block in blocks:
        at = 0
        while lines and at < len(block):
            at = block.find(b"\n", at) + 1 or len(block)
            lines -= 1
        yield block[at:]


def _whole_lines(block: bytes) -> bytes:
    """Without a last line that was cut."""
    end = block.rfind(b"\n") + 1
    try:
        json.loads(block[end:] or b"{}")
    except ValueError:
        return block[:end]
    return block


def routes_of(columns: RecordColumns) -> Routes:
    """Collected records as routes in issued order."""
    keys = columns.keys
    records = len(columns)
    path, first_line = columns.path, columns.first_line
    return Routes(
        # Not columns.where, which would keep the columns after they were sorted or cut.
        where=lambda record: f"{path}:{record + first_line}",
        names=columns.request.names if keys.request is not None else ("1",),
        request=_or_zeros(columns.request.numbers, keys.request, records),
        step=None if keys.step is None else columns.step,
        layer=columns.layer,
        width=columns.width,
        experts=columns.experts,
        weights=columns.weights,
        prefill=None if keys.phase is None else prefill_phases(columns),
    )


def _or_zeros(numbers: Int32, key: str | None, records: int) -> Int32:
    return np.zeros(records, np.int32) if key is None else numbers


def prefill_phases(columns: RecordColumns) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which records are of a pass over a prompt."""
    is_prefill = np.array([name in _PREFILL_NAMES for name in columns.phase.names], np.bool_)
    flags: np.ndarray[tuple[int], np.dtype[np.bool_]] = is_prefill[columns.phase.numbers]
    return flags


CANONICAL = Format(
    name=FORMAT,
    description="the canonical form; importing it again serves --repair and --layers",
    detects=_is_canonical,
    read=_read_canonical,
)
ENGINE_JSONL = Format(
    name="engine-jsonl",
    description="JSON Lines, one router pass of one layer a line, in issued order",
    detects=_is_engine_jsonl,
    read=_read_engine_jsonl,
)
