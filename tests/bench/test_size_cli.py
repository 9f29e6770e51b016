# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pagetier.analysis.results import Cell, Iteration, Pass
from pagetier.bench import cli
from pagetier.bench.store import Store

GB = 10**9
Run = Callable[..., tuple[int, str, str]]


def made_cell(position: int, capacity_bytes: int, wall_ns: int) -> Cell:
    shot = {"at_ns": 0, "device": {"major": 259, "minor": 0, "sectors_read": 0}}
    rows = (Iteration(0, wall_ns, wall_ns, GB, 1, 0, GB, 1),)
    return Cell(
        id=f"{position:012x}",
        position=position,
        spec={"tier": "page-cache", "mechanism": "wall", "capacity_bytes": capacity_bytes},
        state="kept",
        reasons=(),
        labels=(),
        started="2026-01-01T00:00:00+00:00",
        finished="2026-01-01T01:00:00+00:00",
        enforced={},
        facts={"expert_bytes": GB, "accepted_tokens": 1},
        passes={"measured": Pass("measured", shot, shot, {"start_ns": 0}, rows, ())},
    )


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """3 s at 10 GB, 1 s at 20 GB."""
    directory = tmp_path / "results"
    texts = {"campaign": "{}", "host": "{}", "trace": "{}", "pools": "{}", "not_run": "[]"}
    with Store.create(directory, texts) as store:
        store.add_cell(made_cell(1, 10 * GB, 3 * GB))
        store.add_cell(made_cell(2, 20 * GB, 1 * GB))
    return directory


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The program with these arguments: exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["pagetier", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        code = caught.value.code
        return (int(code) if code is not None else 0, *capsys.readouterr())

    return call


def test_a_capacity_that_meets_it(results: Path, run: Run) -> None:
    code, out, _ = run("size", results, "--target-seconds", "2", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["state"] == "met"
    assert (document["capacity_bytes"], document["measured_bytes"]) == (15 * GB, 20 * GB)
    assert document["upper_bound"] is False


def test_no_capacity_meets_it(results: Path, run: Run) -> None:
    code, out, _ = run("size", results, "--target-seconds", "0.5")
    assert code == 1
    assert "No C meets 0.5 s: at the largest measured C, 20.0 GB, it takes 1 (n=1) s" in out


def test_a_rate_adds_tokens_and_the_four_cases(results: Path, run: Run) -> None:
    arguments = ["--target-seconds", "2", "--target-tokens-per-second", "0.5"]
    code, out, _ = run("size", results, *arguments)
    assert code == 0
    assert "Seconds per accepted token" in out
    assert "What a gap means" in out


@pytest.mark.parametrize("target", ["0", "-1", "nan", "inf"])
def test_a_target_is_above_0(results: Path, run: Run, target: str) -> None:
    code, out, err = run("size", results, f"--target-seconds={target}")
    assert (code, out) == (2, "")
    assert "give a number above 0" in err


def test_what_an_engine_decoded_has_no_size(tmp_path: Path, run: Run) -> None:
    directory = tmp_path / "engine"
    texts = {"campaign": '{"engine": {}}', "host": "{}", "trace": "{}", "pools": "{}"}
    cell = made_cell(1, 10 * GB, 3 * GB)
    with Store.create(directory, {**texts, "not_run": "[]"}) as store:
        store.add_cell(replace(cell, spec={**cell.spec, "tier": "llama.cpp mmap", "arm": "mmap"}))
    code, _, error = run("size", directory, "--target-seconds", "2")
    assert code == 2
    assert "an engine decoded here" in error
