# SPDX-License-Identifier: Apache-2.0
"""``results.db``: the raw numbers of a campaign, and their reader.

Everything that a table or figure shows is derived from here, later and elsewhere: no derived number
is stored.  The reader opens the database read-only and needs neither root nor the machine.
Clocks are CLOCK_MONOTONIC nanoseconds of the measured host; a number that was not obtained is None.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagetier.analysis.errors import InputError

__all__ = [
    "SCHEMA",
    "SCHEMA_VERSION",
    "Cell",
    "Iteration",
    "Pass",
    "Results",
    "Sample",
    "read_cell_ids",
    "read_meta",
    "read_results",
]

# History of the schema; a reader accepts the versions it has a line for.
#   1  meta, cells, passes, iterations, samples.
SCHEMA_VERSION = 1

SCHEMA = """
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
CREATE TABLE cells (
    id TEXT PRIMARY KEY,
    position INTEGER NOT NULL,
    spec TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('kept', 'rejected')),
    reasons TEXT NOT NULL,
    labels TEXT NOT NULL,
    started TEXT NOT NULL,
    finished TEXT NOT NULL,
    enforced TEXT NOT NULL,
    facts TEXT NOT NULL
);
CREATE TABLE passes (
    cell_id TEXT NOT NULL REFERENCES cells (id),
    name TEXT NOT NULL CHECK (name IN ('warm-up', 'measured')),
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    result TEXT NOT NULL,
    PRIMARY KEY (cell_id, name)
);
CREATE TABLE iterations (
    cell_id TEXT NOT NULL REFERENCES cells (id),
    pass TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    wall_ns INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    reads INTEGER NOT NULL,
    first_bytes INTEGER,
    repeat_bytes INTEGER,
    nominal_misses INTEGER,
    PRIMARY KEY (cell_id, pass, iteration)
);
CREATE TABLE samples (
    cell_id TEXT NOT NULL REFERENCES cells (id),
    pass TEXT NOT NULL,
    at_ns INTEGER NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX samples_by_pass ON samples (cell_id, pass, at_ns);
"""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Iteration:
    """One engine step of a pass.  `first_bytes` and `repeat_bytes` are in-extent bytes that the
    device had to bring; `nominal_misses` counts experts that a simulated LRU would have missed."""

    iteration: int
    end_ns: int
    wall_ns: int
    bytes: int
    reads: int
    first_bytes: int | None
    repeat_bytes: int | None
    nominal_misses: int | None


@dataclass(frozen=True, slots=True)
class Sample:
    """A snapshot of the timeline, taken while a pass ran."""

    at_ns: int
    data: Json


@dataclass(frozen=True, slots=True)
class Pass:
    """One replay of the plan: snapshots around it, the reader's numbers, the timeline."""

    name: str
    before: Json
    after: Json
    result: Json
    iterations: tuple[Iteration, ...]
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """One measured point with the verdict it was stored with."""

    id: str
    position: int
    spec: Json
    state: str
    reasons: tuple[str, ...]
    labels: tuple[str, ...]
    started: str
    finished: str
    enforced: Json
    facts: Json
    passes: Mapping[str, Pass]


@dataclass(frozen=True, slots=True)
class Results:
    """A campaign as stored: `meta` holds the texts, the other fields what was JSON in them.

    `pools` maps the path of a pool to its digest; `not_run` names cells this host could not run.
    """

    path: Path
    meta: Mapping[str, str]
    campaign: Json
    host: Json
    pools: Json
    not_run: tuple[Json, ...]
    cells: tuple[Cell, ...]


def read_meta(directory: Path) -> dict[str, str]:
    """The campaign's identity alone, without its cells."""
    with _opened(directory) as db:
        return _meta(directory, db)


def read_cell_ids(directory: Path) -> frozenset[str]:
    """Which cells are measured, rejected ones included."""
    with _opened(directory) as db:
        _meta(directory, db)
        return frozenset(str(row[0]) for row in db.execute("SELECT id FROM cells"))


def read_results(directory: Path) -> Results:
    """Everything in `directory`, cells in the order they were measured."""
    with _opened(directory) as db:
        meta = _meta(directory, db)
        where = f"{directory / 'results.db'}: table meta"
        return Results(
            path=directory,
            meta=meta,
            campaign=_object(f"{where}, campaign", meta.get("campaign", "{}")),
            host=_object(f"{where}, host", meta.get("host", "{}")),
            pools=_object(f"{where}, pools", meta.get("pools", "{}")),
            not_run=_objects(f"{where}, not_run", meta.get("not_run", "[]")),
            cells=tuple(_cell(directory, db, row) for row in _cell_rows(db)),
        )


@contextmanager
def _opened(directory: Path) -> Iterator[sqlite3.Connection]:
    path = directory / "results.db"
    try:
        db = _connect(_existing(directory, path))
    except (OSError, sqlite3.Error) as error:
        raise InputError(f"{path}: cannot be opened ({error}): check who may read it") from error
    try:
        yield db
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"{path}: not a readable results database ({error}): name another"
        ) from error
    finally:
        db.close()


def _existing(directory: Path, path: Path) -> Path:
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory: give the directory of a campaign")
    if not path.is_file():
        raise InputError(f"{directory}: no results.db in it: give the directory of a campaign")
    return path


def _connect(path: Path) -> sqlite3.Connection:
    wal = path.with_name(f"{path.name}-wal")
    # Even to read a WAL database SQLite makes a -wal and a -shm file beside it, which a reader who
    # may not write there cannot do, and which root would leave behind.  While nobody writes there
    # is no -wal: then the database file is complete and can be read alone.
    alone = not wal.exists() or wal.stat().st_size == 0
    mode = "mode=ro&immutable=1" if alone else "mode=ro"
    return sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)


def _meta(directory: Path, db: sqlite3.Connection) -> dict[str, str]:
    path = directory / "results.db"
    meta = {str(key): str(value) for key, value in db.execute("SELECT key, value FROM meta")}
    version = meta.get("schema_version")
    if version != str(SCHEMA_VERSION):
        raise InputError(
            f"{path}: schema version {version or 'missing'}, this program reads {SCHEMA_VERSION}:"
            " use the pagetier that wrote it"
        )
    return meta


def _cell_rows(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return db.execute(
        "SELECT id, position, spec, state, reasons, labels, started, finished, enforced, facts"
        " FROM cells ORDER BY position, id"
    ).fetchall()


def _cell(directory: Path, db: sqlite3.Connection, row: tuple[Any, ...]) -> Cell:
    cell_id, position, spec, state, reasons, labels, started, finished, enforced, facts = row
    where = f"{directory / 'results.db'}: cell {cell_id}"
    return Cell(
        id=cell_id,
        position=position,
        spec=_object(f"{where}, spec", spec),
        state=state,
        reasons=_texts(f"{where}, reasons", reasons),
        labels=_texts(f"{where}, labels", labels),
        started=started,
        finished=finished,
        enforced=_object(f"{where}, enforced", enforced),
        facts=_object(f"{where}, facts", facts),
        passes={replay.name: replay for replay in _passes(where, db, cell_id)},
    )


def _passes(where: str, db: sqlite3.Connection, cell_id: str) -> Iterator[Pass]:
    rows = db.execute(
        "SELECT name, before, after, result FROM passes WHERE cell_id = ? ORDER BY rowid",
        (cell_id,),
    ).fetchall()
    for name, before, after, result in rows:
        inside = f"{where}, {name} pass"
        yield Pass(
            name=name,
            before=_object(f"{inside}, before", before),
            after=_object(f"{inside}, after", after),
            result=_object(f"{inside}, result", result),
            iterations=_iterations(db, cell_id, name),
            samples=_samples(inside, db, cell_id, name),
        )


def _iterations(db: sqlite3.Connection, cell_id: str, name: str) -> tuple[Iteration, ...]:
    rows = db.execute(
        "SELECT iteration, end_ns, wall_ns, bytes, reads, first_bytes, repeat_bytes, nominal_misses"
        " FROM iterations WHERE cell_id = ? AND pass = ? ORDER BY iteration",
        (cell_id, name),
    )
    return tuple(Iteration(*row) for row in rows)


def _samples(where: str, db: sqlite3.Connection, cell_id: str, name: str) -> tuple[Sample, ...]:
    rows = db.execute(
        "SELECT at_ns, data FROM samples WHERE cell_id = ? AND pass = ? ORDER BY at_ns",
        (cell_id, name),
    )
    return tuple(Sample(at_ns, _object(f"{where}, sample", data)) for at_ns, data in rows)


def _decode(where: str, text: object) -> object:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError as error:
        raise InputError(f"{where}: not JSON ({error}): the database was edited") from error


def _object(where: str, text: object) -> dict[str, Any]:
    value = _decode(where, text)
    if not isinstance(value, dict):
        raise InputError(f"{where}: not a JSON object: the database was edited")
    return value


def _objects(where: str, text: object) -> tuple[dict[str, Any], ...]:
    value = _decode(where, text)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InputError(f"{where}: not a JSON list of objects: the database was edited")
    return tuple(value)


def _texts(where: str, text: object) -> tuple[str, ...]:
    value = _decode(where, text)
    if not isinstance(value, list):
        raise InputError(f"{where}: not a JSON list: the database was edited")
    return tuple(map(str, value))
