# SPDX-License-Identifier: Apache-2.0
"""``results.db`` cell by cell: what is looked at is read, and forgotten with the next cell.

Raises InputError, in one sentence, for what is damaged; ValueError for a row that was edited.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from typing import Any

from pagetier.analysis.errors import InputError
from pagetier.analysis.results import Cell, Iteration, Pass, Sample

__all__ = [
    "ITERATION_COLUMNS",
    "PassEnds",
    "Recent",
    "cell_rows",
    "count_cells",
    "iteration_rows",
    "lazy_cell",
    "meta_rows",
    "opened",
    "pass_ends",
    "sample_rows",
]

ITERATION_COLUMNS = (
    "iteration",
    "end_ns",
    "wall_ns",
    "bytes",
    "reads",
    "first_bytes",
    "repeat_bytes",
    "nominal_misses",
)

_CELL_COLUMNS = "id, position, spec, state, reasons, labels, started, finished, enforced, facts"


@dataclass(frozen=True, slots=True)
class PassEnds:
    """A pass without its iterations and samples; `end_ns` is of its last iteration."""

    replay: Pass
    end_ns: int | None


@contextmanager
def opened(directory: Path) -> Iterator[sqlite3.Connection]:
    path = directory / "results.db"
    wal = path.with_name(f"{path.name}-wal")
    # As in `results`: without a -wal the file is complete, and is read without leaving one.
    alone = not wal.exists() or wal.stat().st_size == 0
    mode = "mode=ro&immutable=1" if alone else "mode=ro"
    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)
    except sqlite3.Error as error:
        raise InputError(f"{path}: cannot be opened ({error}): check who may read it") from error
    try:
        # SQLite refuses a file that is shorter than it says, except with a writable schema, which a
        # database that is opened read-only never has: then the pages that are there can be read.
        db.execute("PRAGMA writable_schema = ON")
        yield db
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"{path}: damaged ({error}): copy it again from where it was made"
        ) from error
    finally:
        db.close()


def meta_rows(directory: Path) -> dict[str, str]:
    """The campaign's texts, whatever the schema."""
    with opened(directory) as db:
        return {str(key): str(value) for key, value in db.execute("SELECT key, value FROM meta")}


def count_cells(directory: Path) -> int:
    """How many rows the table of cells has."""
    with opened(directory) as db:
        return int(db.execute("SELECT COUNT(*) FROM cells").fetchone()[0])


def cell_rows(directory: Path) -> Iterator[tuple[Any, ...]]:
    """Rows of cells in the order of the table: a sorted query of a truncated one gives none."""
    with opened(directory) as db:
        yield from db.execute(f"SELECT {_CELL_COLUMNS} FROM cells")


def lazy_cell(directory: Path, row: tuple[Any, ...], recent: "Recent") -> Cell:
    """The cell of a row of `cell_rows`; its passes are read when they are looked at."""
    cell_id, position, spec, state, reasons, labels, started, finished, enforced, facts = row
    return Cell(
        id=str(cell_id),
        position=int(position),
        spec=_object("spec", spec),
        state=state,
        reasons=_texts("reasons", reasons),
        labels=_texts("labels", labels),
        started=started,
        finished=finished,
        enforced=_object("enforced", enforced),
        facts=_object("facts", facts),
        passes=_Passes(directory, str(cell_id), recent),
    )


@dataclass(slots=True, eq=False)
class Recent:
    """The passes of the cell that was looked at last: a look at a cell is rarely a single one."""

    cell_id: str | None = None
    passes: dict[str, Pass] = field(default_factory=dict)

    def of(self, cell_id: str) -> dict[str, Pass]:
        if cell_id != self.cell_id:
            self.cell_id, self.passes = cell_id, {}
        return self.passes


@dataclass(frozen=True, slots=True, eq=False)
class _Passes(Mapping[str, Pass]):
    """The passes of a cell, read when they are asked for and forgotten with the next cell."""

    directory: Path
    cell_id: str
    recent: Recent

    def __getitem__(self, name: str) -> Pass:
        known = self.recent.of(self.cell_id)
        if name not in known:
            with opened(self.directory) as db:
                where = f"{self.directory / 'results.db'}: cell {self.cell_id}"
                known[name] = _pass(where, db, self.cell_id, name)
        return known[name]

    def __iter__(self) -> Iterator[str]:
        with opened(self.directory) as db:
            rows = db.execute("SELECT name FROM passes WHERE cell_id = ?", (self.cell_id,))
            names = sorted((str(row[0]) for row in rows), reverse=True)  # warm-up, measured
        yield from names

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _pass(where: str, db: sqlite3.Connection, cell_id: str, name: str) -> Pass:
    key = cell_id, name
    row = db.execute(
        "SELECT before, after, result FROM passes WHERE cell_id = ? AND name = ?", key
    ).fetchone()
    if row is None:
        raise KeyError(name)
    iterations = db.execute(
        f"SELECT {', '.join(ITERATION_COLUMNS)} FROM iterations"
        " WHERE cell_id = ? AND pass = ? ORDER BY iteration",
        key,
    )
    samples = db.execute(
        "SELECT at_ns, data FROM samples WHERE cell_id = ? AND pass = ? ORDER BY at_ns", key
    )
    try:
        before, after, result = map(_object, ("before", "after", "result"), row)
        return Pass(
            name=name,
            before=before,
            after=after,
            result=result,
            iterations=tuple(starmap(Iteration, iterations)),
            samples=tuple(Sample(at_ns, _object("sample", data)) for at_ns, data in samples),
        )
    except (ValueError, TypeError) as error:
        raise InputError(f"{where}, {name} pass: {error}: the database was edited") from error


def _object(name: str, text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not a JSON object")
    return value


def _texts(name: str, text: str) -> tuple[str, ...]:
    value = json.loads(text)
    if not isinstance(value, list):
        raise ValueError(f"{name} is not a JSON list")
    return tuple(map(str, value))


def pass_ends(directory: Path, cell_id: str) -> Iterator[PassEnds]:
    """Snapshots and last iteration of each pass, without the iterations in between."""
    with opened(directory) as db:
        rows = db.execute(
            "SELECT name, before, after, result, (SELECT MAX(end_ns) FROM iterations"
            " WHERE cell_id = passes.cell_id AND pass = passes.name)"
            " FROM passes WHERE cell_id = ? ORDER BY name",
            (cell_id,),
        ).fetchall()
    for name, *texts, end_ns in rows:
        before, after, result = map(_object, ("before", "after", "result"), texts)
        yield PassEnds(Pass(name, before, after, result, (), ()), end_ns)


def iteration_rows(directory: Path, cell_ids: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """(cell, pass, *ITERATION_COLUMNS) of the cells, in order."""
    query = (
        f"SELECT cell_id, pass, {', '.join(ITERATION_COLUMNS)} FROM iterations"
        " WHERE cell_id = ? ORDER BY pass DESC, iteration"
    )
    with opened(directory) as db:
        for cell_id in cell_ids:
            yield from db.execute(query, (cell_id,))


def sample_rows(
    directory: Path, cell_ids: Iterable[str]
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(cell, pass, snapshot) of the timelines, in order."""
    query = "SELECT pass, data FROM samples WHERE cell_id = ? ORDER BY pass DESC, at_ns"
    with opened(directory) as db:
        for cell_id in cell_ids:
            for name, data in db.execute(query, (cell_id,)):
                yield cell_id, name, _object("sample", data)
