# SPDX-License-Identifier: Apache-2.0
"""A results directory for the report: cells one at a time, and whatever of it can be read.

A campaign of millions of iterations does not fit into memory; a cell's passes are therefore read
when they are looked at and forgotten again.  A cell that cannot be read (a truncated or edited
database) becomes a problem, in one sentence, and the others are reported; a directory of which
nothing can be read raises InputError.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pagetier.analysis.counters import device_read_bytes, number
from pagetier.analysis.derive import CellFacts, derive_cell
from pagetier.analysis.errors import InputError
from pagetier.analysis.report.database import (
    Recent,
    cell_rows,
    count_cells,
    lazy_cell,
    meta_rows,
    pass_ends,
)
from pagetier.analysis.results import SCHEMA_VERSION, Cell, Results, read_meta

__all__ = ["PassRate", "Point", "Study", "read_study"]

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PassRate:
    """What the device gave during one pass; None where it did not count or no time was taken."""

    name: str
    device_bytes: int | None
    seconds: float | None

    @property
    def bytes_per_s(self) -> float | None:
        return self.device_bytes / self.seconds if self.device_bytes and self.seconds else None


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A kept cell with its facts and, per iteration of the measured pass, its time and simulated
    misses (None where one of them is missing).  `latency` has a row per bucket of the reader's
    histogram that is not empty: its number and its reads; None without a read."""

    cell: Cell
    facts: CellFacts
    wall_s: Float64
    nominal_misses: Float64 | None
    latency: Int64 | None
    rates: tuple[PassRate, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """A campaign as far as it could be read: its cells, the kept ones derived, what is wrong."""

    results: Results
    points: tuple[Point, ...]
    problems: tuple[str, ...]

    @property
    def times_count(self) -> bool:
        """Whether seconds are those of a real clock; bytes count either way."""
        return self.results.host.get("clock") != "emulated"


def read_study(directory: Path) -> Study:
    """All of `directory` that can be read; the cells in the order they were measured."""
    problems: list[str] = []
    meta = _identified(directory, problems)
    head = _head(directory, meta, problems)
    cells, points = [], []
    for cell in _cells(directory, problems):
        try:
            point = _point(directory, cell)
        except (InputError, ValueError, TypeError) as error:
            problems.append(_problem(directory, cell, error))
            continue
        cells.append(cell)
        if cell.state == "kept":
            points.append(point)
    return Study(replace(head, cells=tuple(cells)), tuple(points), tuple(problems))


def _problem(directory: Path, cell: Cell, error: Exception) -> str:
    if isinstance(error, InputError):
        return str(error)
    return f"{directory / 'results.db'}: cell {cell.id}: {error}: the database was edited"


# ---- the campaign -------------------------------------------------------------------------------


def _identified(directory: Path, problems: list[str]) -> dict[str, str]:
    """The campaign's texts; of another schema an InputError with what it says of itself."""
    try:
        return read_meta(directory)
    except InputError as error:
        try:
            meta = meta_rows(directory)
        except InputError:
            raise error from None
        if meta.get("schema_version") != str(SCHEMA_VERSION):
            raise InputError(f"{error} ({_identity(directory, meta)})") from error
        problems.append(
            f"{directory / 'results.db'}: damaged, maybe cut short: copy it again from where it was"
            " made"
        )
        return meta


def _identity(directory: Path, meta: Mapping[str, str]) -> str:
    try:
        cells = f"{count_cells(directory)} cells"
    except InputError:
        cells = "no table of cells"
    known = [text for text in (meta.get("name"), meta.get("created"), cells) if text]
    return f"{', '.join(known)}, written by pagetier {meta.get('pagetier_version', 'unknown')}"


def _head(directory: Path, meta: Mapping[str, str], problems: list[str]) -> Results:
    def decoded(key: str, kind: type, empty: str) -> Any:
        try:
            value = json.loads(meta.get(key, empty))
        except ValueError:
            value = None
        if isinstance(value, kind):
            return value
        problems.append(
            f"{directory / 'results.db'}: table meta, {key}: not a JSON {kind.__name__}:"
            " the database was edited"
        )
        return kind()

    return Results(
        path=directory,
        meta=meta,
        campaign=decoded("campaign", dict, "{}"),
        host=decoded("host", dict, "{}"),
        pools=decoded("pools", dict, "{}"),
        not_run=tuple(item for item in decoded("not_run", list, "[]") if isinstance(item, dict)),
        cells=(),
    )


# ---- cells --------------------------------------------------------------------------------------


def _cells(directory: Path, problems: list[str]) -> list[Cell]:
    """Every cell whose row can be read, in the order they were measured."""
    cells: list[Cell] = []
    recent = Recent()
    try:
        for row in cell_rows(directory):
            try:
                cells.append(lazy_cell(directory, row, recent))
            except (ValueError, TypeError) as error:
                where = f"{directory / 'results.db'}: cell {row[0]}"
                problems.append(f"{where}: {error}: the database was edited")
    except InputError as error:
        problems.append(f"{error}; {len(cells)} cells could be read")
    return sorted(cells, key=lambda cell: (cell.position, cell.id))


def _point(directory: Path, cell: Cell) -> Point:
    measured = cell.passes.get("measured")
    rows = () if measured is None else measured.iterations
    misses = [row.nominal_misses for row in rows]
    known = [count for count in misses if count is not None]
    return Point(
        cell=cell,
        facts=derive_cell(cell),
        wall_s=np.array([row.wall_ns for row in rows], dtype=np.float64) / 1e9,
        nominal_misses=np.array(known, dtype=np.float64) if len(known) == len(misses) else None,
        latency=None if measured is None else _histogram(measured.result),
        rates=tuple(_rates(directory, cell)),
    )


def _histogram(result: Mapping[str, Any]) -> Int64 | None:
    rows = result.get("latency_histogram")
    if not rows:
        return None
    histogram = np.array(rows, dtype=np.int64)
    if histogram.ndim != 2 or histogram.shape[1] != 2:
        raise ValueError("latency_histogram is no list of pairs")
    return histogram if histogram[:, 1].sum() else None


def _rates(directory: Path, cell: Cell) -> Iterator[PassRate]:
    for ends in pass_ends(directory, cell.id):
        start_ns = number(ends.replay.result, "start_ns")
        seconds = None
        if start_ns is not None and ends.end_ns is not None:
            seconds = (ends.end_ns - start_ns) / 1e9
        yield PassRate(ends.replay.name, device_read_bytes(ends.replay), seconds)
