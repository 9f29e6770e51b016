# SPDX-License-Identifier: Apache-2.0
"""Reading the ``moe-route-trace`` format: JSON Lines, plain, gzip or zstd.

Line 1 is the header; each other line is a record, ``{"req","step","layer","experts"[,"weights"]}``,
in the order (request, step, layer).  Requests come one after another, steps count from 0, layers
from 0; each step passes every layer.  A layer that a step passes twice (speculation and its
fallback) has two records.  Expert ids are per layer.  Anything else raises InputError with the
file and the line; nothing is repaired.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.columns import Trace, TraceHeader, starts_of
from pagetier.analysis.traces.header import parse_header
from pagetier.analysis.traces.records import RecordColumns
from pagetier.analysis.traces.rules import View, first_problem
from pagetier.analysis.traces.stream import open_trace_file
from pagetier.native.routes import RouteKeys

__all__ = ["KEYS", "read_trace"]

KEYS = RouteKeys("layer", "experts", "req", step="step", weights="weights")


def read_trace(path: Path) -> Trace:
    """The trace in `path`, checked record by record."""
    with open_trace_file(path) as file:
        header, columns = _parse(path, file.blocks())
    return _checked(path, header, columns, file.sha256)


def _parse(path: Path, blocks: Iterator[bytes]) -> tuple[TraceHeader, RecordColumns]:
    first = next(blocks, None)
    if first is None:
        raise InputError(f"{path}: the file is empty: a trace starts with a header line")
    end = first.find(b"\n") + 1 or len(first)
    header = parse_header(path, first[:end])
    columns = RecordColumns(path, KEYS, first_line=2)
    try:
        columns.add_block(first[end:])
        for block in blocks:
            columns.add_block(block)
    except InputError:
        # What is wrong with an earlier record comes first, whichever check finds it.
        _check(columns, _view(header, columns))
        raise
    return header, columns


def _view(header: TraceHeader, columns: RecordColumns) -> View:
    return View(
        header=header,
        names=columns.request.names,
        request=columns.request.numbers[: len(columns)],
        step=columns.step,
        layer=columns.layer,
        record_start=starts_of(columns.width),
        experts=columns.experts.view(np.uint32),
    )


def _check(columns: RecordColumns, view: View) -> None:
    problem = first_problem(view)
    if problem is not None:
        raise InputError(f"{columns.where(problem.record)}: {problem.message}")


def _checked(path: Path, header: TraceHeader, columns: RecordColumns, sha256: str) -> Trace:
    if not len(columns):
        raise InputError(f"{path}:1: no records follow the header: record the trace again")
    view = _view(header, columns)
    _check(columns, view)
    last, layers = int(view.layer[-1]), header.num_layers
    if last != layers - 1:
        raise InputError(
            f"{columns.where(len(columns) - 1)}: the file ends in step {view.step[-1]} after"
            f" layer {last}: layer {last + 1} of 0..{layers - 1} is missing"
        )
    _check_accounts(path, header, view)
    return view.trace(columns.weights, sha256)


def _check_accounts(path: Path, header: TraceHeader, view: View) -> None:
    """The counts of a merged trace are those of the steps of its one request."""
    steps = int(view.step[-1]) + 1
    if header.batch is not None and len(view.names) > 1:
        raise InputError(f"{path}:1: header batch: a merged trace has one request, not several")
    for name, counts in (("accepted", header.accepted), ("positions", header.positions)):
        if counts is not None and len(counts) != steps:
            raise InputError(f"{path}:1: header {name} counts {len(counts)} steps of {steps}")
