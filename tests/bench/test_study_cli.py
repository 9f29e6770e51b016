# SPDX-License-Identifier: Apache-2.0
"""`pagetier simulate --regime`, `--off-domain`, `--paper`: forms of output and their errors."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pagetier.analysis.errors import InputError
from pagetier.bench.cli import app
from pagetier.bench.simulate.study_show import print_paper

HEADER = {
    "format": "moe-route-trace",
    "version": 1,
    "model": "tiny",
    "num_layers": 2,
    "num_experts": 4,
    "top_k": 2,
}
A = [[[0, 1], [2, 3]], [[1, 2], [3, 0]], [[0, 2], [2, 3]]]
B = [[[1, 3], [0, 1]], [[0, 1], [2, 1]]]
ROW = {
    "batch",
    "budget",
    "replay",
    "scope",
    "window",
    "iterations",
    "union_mean",
    "union_p95",
    "ratio_mean",
    "ratio_p95",
    "share_over_one",
    "union",
    "logical",
    "union_over_logical",
    "best_causal",
    "gap",
    "admission_share",
    "future_victim_share",
}


def write(path: Path, requests: list[Any], **header: Any) -> Path:
    records = [
        {"req": f"r{number}", "step": step, "layer": layer, "experts": experts}
        for number, steps in enumerate(requests)
        for step, layers in enumerate(steps)
        for layer, experts in enumerate(layers)
    ]
    path.write_text("\n".join(json.dumps(line) for line in [HEADER | header, *records]) + "\n")
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "two.jsonl", [A, B])


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


def document(*arguments: str | Path) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_regime_of_the_trace_as_recorded(trace: Path) -> None:
    found = document(trace, "--regime", "--budget", "2", "--expert-bytes", "10")
    (row,) = found["rows"]
    assert set(row) >= ROW
    assert found["contract"].startswith("event-atomic")
    assert (row["batch"], row["last_arrival"], row["iterations"]) == (None, None, 5)
    assert (row["union_mean"], row["ratio_mean"], row["share_over_one"]) == (2.0, 1.0, 0.0)
    assert (row["union"], row["logical"], row["accepted"]) == (20, 20, 5)
    policies = {one["policy"]: one for one in row["policies"]}
    assert policies["static"]["initial_load"] == 4
    lru = policies["lru"]
    assert lru["miss_fraction"] == lru["misses"] / 20
    assert lru["bytes_per_token"] == 10 * lru["misses"] / 5
    assert row["permuted"]["permutations"] == 3
    assert row["gap_by_tie_seed"]["seeds"] == 3
    assert {one["policy"] for one in row["replays"]} == set(policies)


def test_batches(trace: Path) -> None:
    found = document(
        trace, "--regime", "--budget", "1,50 %", "--batch", "1,2", "--last-arrival", "0"
    )
    rows = found["rows"]
    assert [(row["batch"], row["budget"]) for row in rows] == [
        (1, "1"),
        (1, "50 %"),
        (2, "1"),
        (2, "50 %"),
    ]
    # Steps 0 and 1 unite: 0 1 3 | 0 1 2 3 and 0 1 2 | 0 1 2 3; then A alone.
    together = rows[2]
    assert (together["iterations"], together["mean_active"]) == (3, 5 / 3)
    assert (together["union"], together["logical"]) == (3 + 4 + 3 + 4 + 4, 20)
    assert together["union_p95"] == 4


def test_a_window_leaves_the_permutation_out(trace: Path) -> None:
    (row,) = document(trace, "--regime", "--budget", "2", "--window", "0.6")["rows"]
    assert (row["window"], row["iterations"], row["permuted"]) == (0.6, 2, None)
    assert (row["union"], row["logical"], row["accepted"]) == (8, 8, 2)


def test_regime_as_csv_and_table(trace: Path) -> None:
    done = run(trace, "--regime", "--budget", "1,2", "--batch", "2", "--csv")
    found = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(found) == 2
    assert set(found[0]) >= ROW | {"miss_fraction_lru", "access_inflation_lru", "permuted_gap_min"}
    assert not any("{" in value or "[" in value for value in found[0].values())
    shown = run(trace, "--regime", "--budget", "2")
    assert shown.exit_code == 0
    for name in ("r mean", "future victim", "union/logical", "static's load", "access replay"):
        assert name in shown.stdout


def test_off_domain(trace: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other.jsonl", [B, A, A])
    arguments = (trace, "--off-domain", other, "--budget", "2", "--window", "0.6")
    found = document(*arguments)
    rows = found["rows"]
    assert [row["scored_on"] for row in rows] == [str(trace), str(other)]
    assert {row["trained_on"] for row in rows} == {f"{trace}, warm part"}
    assert rows[0]["table"] == rows[0]["own"]
    assert all(row["window"] == 0.6 and row["initial_load"] == 4 for row in rows)
    assert rows[1]["table_minus_lru"] == pytest.approx(rows[1]["table"] - rows[1]["lru"])
    done = run(*arguments, "--csv")
    assert len(list(csv.DictReader(io.StringIO(done.stdout)))) == 2
    assert "table - LRU" in run(*arguments).stdout


def test_nothing_to_gain_is_not_a_number(trace: Path) -> None:
    arguments = (trace, "--regime", "--budget", "2,4", "--warm-pass")
    whole = document(*arguments)["rows"][1]
    assert (whole["gap"], whole["gap_by_tie_seed"], whole["admission_share"]) == (None, None, None)
    found = list(csv.DictReader(io.StringIO(run(*arguments, "--csv").stdout)))
    assert [row["gap_tie_max"] == "" for row in found] == [False, True]
    assert "n/a" in run(*arguments).stdout


def test_paper(capsys: pytest.CaptureFixture[str]) -> None:
    found = document("--paper", "--seed", "1")
    assert found["seed"] == 1
    tokens = next(row for row in found["rows"] if row["unit"] == "tokens")
    assert (tokens["paper_low"], tokens["ours_low"], tokens["difference"]) == (1078, 1078, 0)
    nominal = [row for row in found["rows"] if row["where"] == "table 2"]
    assert len(nominal) == 4
    for row in nominal:
        assert row["difference"] == pytest.approx(row["ours_low"] / row["paper_low"] - 1)
        assert row["met"] is (abs(row["difference"]) <= row["goal"])
    assert {(point["model"], point["replay"]) for point in found["figure_1"]} == {
        ("kimi-k3", "access"),
        ("kimi-k3", "event"),
        ("qwen3-30b-a3b", "access"),
        ("qwen3-30b-a3b", "event"),
    }
    assert len(found["scopes"]) == 2 * 7 * 4
    off = found["figure_5"]
    assert [row["scored_on"] for row in off] == ["prose", "code", "math", "chat"] * 2
    published = {row["what"]: row for row in found["rows"]}
    there = published["B = 159, prose table off domain"]
    assert 100 * min(row["table"] for row in off[1:4]) == pytest.approx(there["ours_low"])
    print_paper(found["rows"], found, 1)
    shown = capsys.readouterr().out
    for name in (
        "published figures",
        "goals met",
        "figure 1",
        "figure 5",
        "one cache a layer",
        "1078 tokens",
    ):
        assert name in shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--regime", "--budget", "2", "--batch", "3"), "give --batch up to 2"),
        (("--regime", "--budget", "2", "--batch", "0"), "is not a list of batch sizes"),
        (("--regime", "--budget", "2", "--batch", "1,x"), "is not a list of batch sizes"),
        (("--regime", "--budget", "2", "--scope", "global"), "scope per-layer"),
        (("--regime", "--budget", "2", "--batch", "2", "--cold-per-request"), "served as a whole"),
        (("--budget", "2", "--batch", "2"), "--batch is for --regime"),
        (("--regime", "--paper"), "results of their own"),
        (("--regime",), "--budget"),
    ],
)
def test_errors(trace: Path, arguments: tuple[str, ...], says: str) -> None:
    done = run(trace, *arguments)
    assert isinstance(done.exception, InputError)
    assert says in str(done.exception)


def test_errors_of_traces(trace: Path, tmp_path: Path) -> None:
    merged = write(tmp_path / "merged.jsonl", [A], batch=2)
    done = run(merged, "--regime", "--budget", "2", "--batch", "1")
    assert "is a batch already" in str(done.exception)
    other = write(tmp_path / "other.jsonl", [[[[4, 1], [2, 3]]]], num_experts=5)
    done = run(trace, "--off-domain", other, "--budget", "2")
    assert "does not fit" in str(done.exception)
    done = run(trace, "--off-domain", trace, "--budget", "2")
    assert "give each once" in str(done.exception)
