# SPDX-License-Identifier: Apache-2.0
"""Results that came out of a guest: made whole, marked with the guest's facts, put in their place.

The guest's own database is never edited: what is marked is the copy.  `host` gains `clock`
(`emulated` or `kvm`; emulated times are no performance results) and `guest`.
"""

import contextlib
import json
import os
import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pagetier.analysis.errors import InputError
from pagetier.bench.cells import CellSpec

__all__ = ["finished_cells", "host_of", "publish"]

_FILES = ("campaign.yaml", "log.txt", "results.db")


def host_of(directory: Path) -> dict[str, Any]:
    """The host facts of the results there; empty without results."""
    path = directory / "results.db"
    if not path.exists():
        return {}
    with contextlib.closing(sqlite3.connect(path)) as db:
        row = db.execute("SELECT value FROM meta WHERE key = 'host'").fetchone()
    facts: dict[str, Any] = {} if row is None else json.loads(row[0])
    return facts


def finished_cells(directory: Path) -> set[str]:
    """Ids of the cells in the results there."""
    path = directory / "results.db"
    if not path.exists():
        return set()
    with contextlib.closing(sqlite3.connect(path)) as db:
        return {row[0] for row in db.execute("SELECT id FROM cells")}


def publish(
    copied: Path, directory: Path, facts: dict[str, Any], cells: Collection[CellSpec]
) -> None:
    """Move a copied results folder to `directory`, marked; whole files replace older ones."""
    database = copied / "results.db"
    if database.exists():
        try:
            _mark(database, facts, cells)
        except sqlite3.DatabaseError as error:
            raise InputError(f"{database}: what the guest left is no database ({error})") from None
    for name in _FILES:
        if (copied / name).exists():
            os.replace(copied / name, directory / name)


def _mark(database: Path, facts: dict[str, Any], cells: Collection[CellSpec]) -> None:
    """Opening replays what the guest had committed; closing leaves one file, without a log."""
    with contextlib.closing(sqlite3.connect(database)) as db, db:
        (text,) = db.execute("SELECT value FROM meta WHERE key = 'host'").fetchone()
        host = json.dumps({**json.loads(text), **facts})
        db.execute("UPDATE meta SET value = ? WHERE key = 'host'", (host,))
        measured = {row[0] for row in db.execute("SELECT id FROM cells")}
        done = {cell.describe() for cell in cells if cell.id in measured}
        (text,) = db.execute("SELECT value FROM meta WHERE key = 'not_run'").fetchone()
        # Each boot names the cells of the others: what another one measured did run.
        left = [item for item in json.loads(text) if item["cell"] not in done]
        db.execute("UPDATE meta SET value = ? WHERE key = 'not_run'", (json.dumps(left),))
