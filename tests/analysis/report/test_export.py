# SPDX-License-Identifier: Apache-2.0
import builtins
import csv
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pagetier.analysis.errors import CapabilityError, InputError
from pagetier.analysis.report.export import FORMATS, export
from pagetier.analysis.report.reading import Study
from pagetier.analysis.results import Cell, Sample

MakeCell = Callable[..., Cell]
MakeStudy = Callable[..., Study]


@pytest.fixture
def study(make_cell: MakeCell, make_study: MakeStudy) -> Study:
    """A kept cell with two samples, one that does not know its scope, and a rejected one."""
    cell = make_cell(seconds=[1.0, 2.0])
    samples = (
        Sample(1001 * 10**9, {"at_ns": 1001 * 10**9, "scope": {"file_bytes": 7}}),
        Sample(1002 * 10**9, {"at_ns": 1002 * 10**9, "scope": None}),
    )
    measured = cell.passes["measured"]
    passes = dict(cell.passes) | {
        "measured": type(measured)(
            measured.name,
            measured.before,
            measured.after,
            measured.result,
            measured.iterations,
            samples,
        )
    }
    kept = Cell(**{name: getattr(cell, name) for name in Cell.__slots__} | {"passes": passes})
    return make_study([kept, make_cell(repetition=2, state="rejected", tokens=None)])


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv_holds_every_row(study: Study, tmp_path: Path) -> None:
    files = export(study, tmp_path, "csv")
    assert [path.name for path in files] == ["cells.csv", "iterations.csv", "samples.csv"]
    cells, iterations, samples = map(read_csv, files)
    assert [cell["state"] for cell in cells] == ["kept", "rejected"]
    assert cells[0]["iteration_s.median"] == "1.5"
    assert (cells[0]["accepted_tokens"], cells[1]["accepted_tokens"]) == ("2", "")
    assert json.loads(cells[1]["reasons"]) == ["it was rejected"]
    measured = [row for row in iterations if row["pass"] == "measured"]
    assert len(iterations) == 8 and len(measured) == 4
    assert [row["wall_ns"] for row in measured[:2]] == ["1000000000", "2000000000"]
    assert [row["scope.file_bytes"] for row in samples] == ["7", ""]


def test_parquet_holds_the_same_with_types(study: Study, tmp_path: Path) -> None:
    parquet: Any = importlib.import_module("pyarrow.parquet")
    texts = {path.stem: read_csv(path) for path in export(study, tmp_path, "csv")}
    for path in export(study, tmp_path, "parquet"):
        rows = parquet.read_table(path).to_pylist()
        shown = [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]
        assert shown == texts[path.stem]
    table = parquet.read_table(tmp_path / "iterations.parquet")
    assert {str(field.type) for field in table.schema} == {"string", "int64"}
    cells = parquet.read_table(tmp_path / "cells.parquet")
    assert str(cells.schema.field("iteration_s.median").type) == "double"


@pytest.mark.parametrize("name", FORMATS)
def test_a_second_export_is_the_same(study: Study, tmp_path: Path, name: str) -> None:
    first = [path.read_bytes() for path in export(study, tmp_path, name)]
    assert [path.read_bytes() for path in export(study, tmp_path, name)] == first
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob(f"*.{name}")} == {0o644}


@pytest.mark.parametrize("name", FORMATS)
def test_an_empty_campaign_has_empty_tables(
    make_study: MakeStudy, tmp_path: Path, name: str
) -> None:
    assert len(export(make_study([]), tmp_path, name)) == 3


def test_without_pyarrow_the_remedy_is_named_and_nothing_is_left(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(CapabilityError, match=r"pip install 'pagetier\[parquet\]'"):
        export(study, tmp_path, "parquet")
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ""] == []


def test_a_place_that_cannot_be_written(study: Study, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cells\.csv: cannot be written"):
        export(study, tmp_path / "absent", "csv")


def test_a_failure_half_way_leaves_the_old_file(
    make_cell: MakeCell, make_study: MakeStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study([make_cell()])
    (path, *_) = export(study, tmp_path, "csv")
    before = path.read_bytes()

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(builtins, "open", full)
    with pytest.raises(InputError, match="No space left on device"):
        export(study, tmp_path, "csv")
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
