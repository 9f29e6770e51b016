# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pagetier.analysis import results as results_module
from pagetier.analysis.errors import InputError
from pagetier.analysis.results import SCHEMA, Cell, read_meta, read_results

META = {
    "schema_version": "1",
    "created": "2026-01-01T00:00:00+00:00",
    "campaign": json.dumps({"threads": 8}),
    "host": json.dumps({"kernel": "6.1"}),
    "pools": json.dumps({"/data/p": "abc"}),
    "not_run": json.dumps([{"cell": "c", "reason": "r"}]),
}


def store(directory: Path, cells: list[Cell], meta: dict[str, str] = META) -> Path:
    """Writes results.db by hand, as the writer does."""
    db = sqlite3.connect(directory / "results.db")
    db.execute("PRAGMA journal_mode=WAL")
    db.executescript(SCHEMA)
    db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
    for cell in cells:
        texts = (cell.spec, cell.state, cell.reasons, cell.labels)
        spec, state, reasons, labels = texts
        db.execute(
            "INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                cell.id,
                cell.position,
                json.dumps(spec),
                state,
                json.dumps(reasons),
                json.dumps(labels),
                cell.started,
                cell.finished,
                json.dumps(cell.enforced),
                json.dumps(cell.facts),
            ),
        )
        for name, replay in cell.passes.items():
            parts = [json.dumps(part) for part in (replay.before, replay.after, replay.result)]
            db.execute("INSERT INTO passes VALUES (?, ?, ?, ?, ?)", (cell.id, name, *parts))
            for row in replay.iterations:
                db.execute(
                    "INSERT INTO iterations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        cell.id,
                        name,
                        row.iteration,
                        row.end_ns,
                        row.wall_ns,
                        row.bytes,
                        row.reads,
                        row.first_bytes,
                        row.repeat_bytes,
                        row.nominal_misses,
                    ),
                )
            for sample in replay.samples:
                values = (cell.id, name, sample.at_ns, json.dumps(sample.data))
                db.execute("INSERT INTO samples VALUES (?, ?, ?, ?)", values)
    db.commit()
    db.close()
    return directory


def test_what_was_stored_is_read(tmp_path: Path, cell: Cell) -> None:
    found = read_results(store(tmp_path, [cell]))
    assert found.cells == (cell,)
    assert found.meta == META
    assert found.campaign == {"threads": 8}
    assert found.host == {"kernel": "6.1"}
    assert found.pools == {"/data/p": "abc"}
    assert found.not_run == ({"cell": "c", "reason": "r"},)
    assert read_meta(tmp_path) == META


def test_reading_leaves_no_trace(tmp_path: Path, cell: Cell) -> None:
    store(tmp_path, [cell])
    before = (tmp_path / "results.db").read_bytes()
    read_results(tmp_path)
    assert os.listdir(tmp_path) == ["results.db"]
    assert (tmp_path / "results.db").read_bytes() == before


def test_cells_come_in_the_order_of_measurement(tmp_path: Path, amend: Callable[..., Cell]) -> None:
    base = amend(("facts", "note"), 1)
    cells = [dataclasses.replace(base, id=name, position=at) for name, at in (("a", 1), ("b", 0))]
    assert [cell.id for cell in read_results(store(tmp_path, cells)).cells] == ["b", "a"]


def test_a_name_with_signs_of_a_uri(tmp_path: Path, cell: Cell) -> None:
    odd = tmp_path / "a?b#c%20d e"
    odd.mkdir()
    assert read_results(store(odd, [cell])).cells == (cell,)


def test_a_campaign_that_is_still_running_can_be_read(tmp_path: Path, cell: Cell) -> None:
    """The writer holds the database open, its last cells still in the write-ahead log."""
    store(tmp_path, [cell])
    writer = sqlite3.connect(tmp_path / "results.db")
    writer.execute("INSERT INTO meta VALUES ('later', 'yes')")
    writer.commit()
    assert (tmp_path / "results.db-wal").exists()
    assert read_meta(tmp_path)["later"] == "yes"
    writer.close()


READ_AS_NOBODY = """
import os, sys
from pathlib import Path
from pagetier.analysis.results import read_results
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
print(len(read_results(Path(sys.argv[1])).cells))
"""

LEAVE_A_LOG = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("INSERT INTO meta VALUES ('later', 'yes')")
db.commit()
os._exit(9)
"""


@pytest.mark.parametrize("killed", [False, True])
def test_a_reader_who_may_not_write_there(cell: Cell, killed: bool) -> None:
    """A plain user reads what root measured, also when the harness was killed half way.

    Only the effective user changes, for the interpreter itself may lie in a closed directory.
    """
    # Not in pytest's own folder, which is closed to other users.
    with tempfile.TemporaryDirectory() as folder:
        directory = store(Path(folder), [cell])
        if killed:
            log = [sys.executable, "-c", LEAVE_A_LOG, str(directory / "results.db")]
            subprocess.run(log, check=False)
            assert (directory / "results.db-wal").stat().st_size > 0
        directory.chmod(0o555)
        layout = Path(results_module.__file__).parent.parent.parent
        done = subprocess.run(
            [sys.executable, "-c", READ_AS_NOBODY, directory],
            env={"PYTHONPATH": str(layout)},
            capture_output=True,
            text=True,
            check=False,
        )
        directory.chmod(0o755)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda d: d.rmdir(), "no such directory"),
        (lambda d: None, "no results.db in it"),
        (lambda d: (d / "results.db").mkdir(), "no results.db in it"),
        (lambda d: (d / "results.db").write_text("not a database" * 99), "not a readable results"),
        (lambda d: (d / "results.db").write_bytes(b""), "not a readable results"),
        (lambda d: store(d, [], {**META, "schema_version": "2"}), "schema version 2"),
        (lambda d: store(d, [], {}), "schema version missing"),
        (lambda d: store(d, [], {**META, "host": "{"}), "table meta, host: not JSON"),
        (lambda d: store(d, [], {**META, "host": "[]"}), "table meta, host: not a JSON object"),
        (lambda d: store(d, [], {**META, "not_run": "[1]"}), "not_run: not a JSON list of obj"),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, prepare: Callable[[Path], object], message: str
) -> None:
    directory = tmp_path / "results"
    directory.mkdir()
    prepare(directory)
    with pytest.raises(InputError, match=message) as caught:
        read_results(directory)
    assert str(directory) in str(caught.value)


@pytest.mark.parametrize(
    ("table", "column", "text", "message"),
    [
        ("cells", "spec", "{", "cell c1, spec: not JSON"),
        ("cells", "reasons", "{}", "cell c1, reasons: not a JSON list"),
        ("passes", "after", "[]", "cell c1, warm-up pass, after: not a JSON object"),
        ("samples", "data", "7", "cell c1, measured pass, sample: not a JSON object"),
    ],
)
def test_an_edited_cell_is_named(
    tmp_path: Path, cell: Cell, table: str, column: str, text: str, message: str
) -> None:
    store(tmp_path, [cell])
    db = sqlite3.connect(tmp_path / "results.db")
    db.execute(f"UPDATE {table} SET {column} = ?", (text,))
    db.commit()
    db.close()
    with pytest.raises(InputError, match=message):
        read_results(tmp_path)


def test_states_and_passes_have_known_names(tmp_path: Path, cell: Cell) -> None:
    store(tmp_path, [cell])
    db = sqlite3.connect(tmp_path / "results.db")
    for statement in ("UPDATE cells SET state = 'ok'", "UPDATE passes SET name = 'third'"):
        with pytest.raises(sqlite3.IntegrityError):
            db.execute(statement)
    db.close()


def test_the_schema_can_be_split_at_its_semicolons() -> None:
    statements = [part.strip() for part in SCHEMA.split(";") if part.strip()]
    assert all(part.startswith("CREATE ") for part in statements)
