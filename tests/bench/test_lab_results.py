# SPDX-License-Identifier: Apache-2.0
"""Results out of a guest: a write-ahead log is taken in, facts are added, files appear whole."""

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from pagetier.analysis.errors import InputError
from pagetier.bench.cells import CellSpec
from pagetier.bench.lab.results import finished_cells, host_of, publish
from pagetier.bench.store import Store

FACTS = {"clock": "emulated", "guest": {"boots": [1]}}


def cell(mechanism: str) -> CellSpec:
    return CellSpec(
        tier="page-cache",
        mechanism=mechanism,
        capacity_bytes=7,
        pool="p",
        mglru="keep",
        advice="random",
        read="pread",
        threads=8,
        barrier="record",
        headroom="auto",
        balloon_order=None,
        balloon_huge_pages=None,
        repetition=1,
    )


def torn_results(folder: Path, measured: CellSpec, waiting: CellSpec) -> Path:
    """As a guest that died leaves them: the last commit is in the log, not in the database."""
    not_run = [{"cell": spec.describe(), "reason": "waits"} for spec in (measured, waiting)]
    meta = {"host": json.dumps({"kernel": "6.12"}), "not_run": json.dumps(not_run)}
    live, torn = folder / "live", folder / "copied"
    with Store.create(live, meta):
        db = sqlite3.connect(live / "results.db")
        with db:
            row = (measured.id, 0, "{}", "kept", "[]", "[]", "", "", "{}", "{}")
            db.execute(f"INSERT INTO cells VALUES ({','.join('?' * 10)})", row)
        torn.mkdir()
        for path in live.iterdir():
            shutil.copy(path, torn)
        db.close()
    assert (torn / "results.db-wal").stat().st_size > 0
    (torn / "log.txt").write_text("log")
    (torn / "boot-steps.txt").write_text("of no use outside")
    return torn


def test_what_was_committed_is_published_with_its_facts(tmp_path: Path) -> None:
    measured, waiting = cell("wall"), cell("boot")
    torn, home = torn_results(tmp_path, measured, waiting), tmp_path / "home"
    home.mkdir()
    publish(torn, home, FACTS, [measured, waiting])
    assert sorted(os.listdir(home)) == ["log.txt", "results.db"]
    assert host_of(home) == {"kernel": "6.12", **FACTS}
    assert finished_cells(home) == {measured.id}
    db = sqlite3.connect(home / "results.db")
    (text,) = db.execute("SELECT value FROM meta WHERE key = 'not_run'").fetchone()
    db.close()
    assert [item["cell"] for item in json.loads(text)] == [waiting.describe()]


def test_a_folder_without_results_has_no_facts(tmp_path: Path) -> None:
    assert (host_of(tmp_path), finished_cells(tmp_path)) == ({}, set())
    publish(tmp_path, tmp_path, FACTS, [])
    assert os.listdir(tmp_path) == []


def test_a_broken_database_replaces_no_good_one(tmp_path: Path) -> None:
    copied, home = tmp_path / "copied", tmp_path / "home"
    for folder in (copied, home):
        folder.mkdir()
        (folder / "results.db").write_bytes(folder.name.encode() * 999)
    with pytest.raises(InputError, match="is no database"):
        publish(copied, home, FACTS, [])
    assert (home / "results.db").read_bytes() == b"home" * 999
