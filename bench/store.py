# SPDX-License-Identifier: Apache-2.0
"""Writer of ``results.db``: one transaction per finished cell, durable before it is announced.

SQLite with WAL and synchronous=FULL: a committed cell survives kill -9 and power loss, and an
unfinished one leaves nothing.  The schema belongs to `pagetier.analysis.results`, which reads it.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Self

from pagetier.analysis.errors import InputError
from pagetier.analysis.results import SCHEMA, SCHEMA_VERSION, Cell, Pass

__all__ = ["Store"]


class Store:
    """An open results database; a context manager."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "results.db"
        self._db = sqlite3.connect(self.path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")

    @classmethod
    def create(cls, directory: Path, meta: Mapping[str, str]) -> "Store":
        """A new database; refuses a directory that holds one already."""
        if (directory / "results.db").exists():
            raise InputError(
                f"{directory}: holds results already; continue them with --resume or choose another"
            )
        directory.mkdir(parents=True, exist_ok=True)
        store = cls(directory)
        rows = {"schema_version": str(SCHEMA_VERSION), **meta}
        with store._transaction():
            for statement in filter(str.strip, SCHEMA.split(";")):
                store._db.execute(statement)
            store._db.executemany("INSERT INTO meta VALUES (?, ?)", rows.items())
        return store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; what was committed stays."""
        self._db.close()

    def durability(self) -> tuple[str, int]:
        """Journal mode and synchronous level in force; ("wal", 2) survives power loss."""
        (mode,) = self._db.execute("PRAGMA journal_mode").fetchone()
        (level,) = self._db.execute("PRAGMA synchronous").fetchone()
        return mode, level

    def finished_cells(self) -> set[str]:
        """Ids of the cells that need not be measured again, rejected ones included."""
        return {row[0] for row in self._db.execute("SELECT id FROM cells")}

    def set_meta(self, key: str, value: str) -> None:
        """Replace one fact of the campaign, such as which cells could not run this time."""
        with self._transaction():
            self._db.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))

    def add_cell(self, cell: Cell) -> None:
        """Store a finished cell; on return it is on stable storage."""
        with self._transaction():
            self._insert(cell)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _insert(self, cell: Cell) -> None:
        self._db.execute(
            "INSERT INTO cells (id, position, spec, state, reasons, labels, started, finished,"
            " enforced, facts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                cell.id,
                cell.position,
                json.dumps(cell.spec),
                cell.state,
                json.dumps(cell.reasons),
                json.dumps(cell.labels),
                cell.started,
                cell.finished,
                json.dumps(cell.enforced),
                json.dumps(cell.facts),
            ),
        )
        for replay in cell.passes.values():
            self._insert_pass(cell.id, replay)

    def _insert_pass(self, cell_id: str, replay: Pass) -> None:
        self._db.execute(
            "INSERT INTO passes (cell_id, name, before, after, result) VALUES (?, ?, ?, ?, ?)",
            (
                cell_id,
                replay.name,
                json.dumps(replay.before),
                json.dumps(replay.after),
                json.dumps(replay.result),
            ),
        )
        self._db.executemany(
            "INSERT INTO iterations (cell_id, pass, iteration, end_ns, wall_ns, bytes, reads,"
            " first_bytes, repeat_bytes, nominal_misses) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(cell_id, replay.name, *astuple(row)) for row in replay.iterations],
        )
        self._db.executemany(
            "INSERT INTO samples (cell_id, pass, at_ns, data) VALUES (?, ?, ?, ?)",
            [
                (cell_id, replay.name, sample.at_ns, json.dumps(sample.data))
                for sample in replay.samples
            ],
        )
