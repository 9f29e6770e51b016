# SPDX-License-Identifier: Apache-2.0
"""The results store: what was written comes back, a crash half way leaves no half cell."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from pagetier.analysis.errors import InputError
from pagetier.analysis.results import Cell, Iteration, Pass, Sample, read_meta, read_results
from pagetier.bench.store import Store

META = {"name": "t", "campaign": '{"seed":3}', "host": '{"kernel":"6.1"}'}


def make_pass(name: str) -> Pass:
    return Pass(
        name=name,
        before={"at_ns": 1},
        after={"at_ns": 2},
        result={"verified_reads": 5},
        iterations=(
            Iteration(0, 11, 12, 13, 14, 15, 16, 17),
            Iteration(1, 21, 22, 23, 24, None, None, 27),
        ),
        samples=(Sample(31, {"at_ns": 31}), Sample(32, {"at_ns": 32})),
    )


def make_cell(cell_id: str, passes: tuple[str, ...] = ("warm-up", "measured")) -> Cell:
    return Cell(
        id=cell_id,
        position=4,
        spec={"tier": "page-cache"},
        state="rejected",
        reasons=("because",),
        labels=("note",),
        started="a",
        finished="b",
        enforced={"limit_bytes": 6},
        facts={"expert_bytes": 7},
        passes={name: make_pass(name) for name in passes},
    )


def test_a_cell_comes_back_as_it_was(tmp_path: Path) -> None:
    cell = make_cell("one")
    with Store.create(tmp_path / "r", META) as store:
        store.add_cell(cell)
        assert store.finished_cells() == {"one"}
    results = read_results(tmp_path / "r")
    assert results.cells == (cell,)
    assert (results.campaign, results.host) == ({"seed": 3}, {"kernel": "6.1"})


def test_a_failed_write_leaves_no_part_of_the_cell(tmp_path: Path) -> None:
    whole = make_cell("two")
    measured = replace(whole.passes["measured"], before={"bad": {1}})  # a set is no JSON value
    broken = replace(whole, passes={**whole.passes, "measured": measured})
    with Store.create(tmp_path / "r", META) as store:
        store.add_cell(make_cell("one"))
        with pytest.raises(TypeError):
            store.add_cell(broken)
        assert store.finished_cells() == {"one"}
        store.add_cell(make_cell("two"))
    db = sqlite3.connect(tmp_path / "r" / "results.db")
    assert db.execute("SELECT count(*) FROM passes").fetchone() == (4,)
    db.close()


def test_an_unfinished_store_shows_only_committed_cells(tmp_path: Path) -> None:
    with Store.create(tmp_path / "r", META) as store:
        store.add_cell(make_cell("one"))
        assert [cell.id for cell in read_results(tmp_path / "r").cells] == ["one"]


def test_store_is_durable_by_its_settings(tmp_path: Path) -> None:
    with Store.create(tmp_path / "r", META) as store:
        assert store.durability() == ("wal", 2)


def test_create_refuses_a_directory_with_results(tmp_path: Path) -> None:
    Store.create(tmp_path / "r", META).close()
    with pytest.raises(InputError, match="holds results already"):
        Store.create(tmp_path / "r", META)
    assert read_meta(tmp_path / "r")["name"] == "t"
