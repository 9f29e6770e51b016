# SPDX-License-Identifier: Apache-2.0
"""`pagetier simulate`: its forms of output, its exit codes, its one-sentence errors."""

import csv
import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pagetier.analysis.simulators import conformance
from pagetier.bench.cli import app

RECORDS = [
    {"req": req, "step": step, "layer": layer, "experts": experts}
    for req, steps in (("a", [[[0, 1], [2, 3]], [[1, 2], [3, 0]]]), ("b", [[[1, 3], [0, 1]]]))
    for step, layers in enumerate(steps)
    for layer, experts in enumerate(layers)
]
ROW = {
    "policy",
    "scope",
    "replay",
    "budget_experts",
    "budget_bytes",
    "window",
    "accesses",
    "hits",
    "misses",
    "hit_rate",
    "miss_bytes_per_iteration",
}


def write_trace(path: Path, num_experts: int = 4, repeats: int = 1) -> Path:
    header = {
        "format": "moe-route-trace",
        "version": 1,
        "model": "tiny",
        "num_layers": 2,
        "num_experts": num_experts,
        "top_k": 2,
    }
    records = [{**r, "req": f"{r['req']}{n}"} for n in range(repeats) for r in RECORDS]
    path.write_text("\n".join(json.dumps(line) for line in [header, *records]) + "\n")
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "tiny.jsonl")


def run(*arguments: str | Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pagetier.bench.cli", "simulate", *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


def rows(*arguments: str | Path, cwd: Path) -> list[dict[str, object]]:
    done = run(*arguments, "--json", cwd=cwd)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)["rows"]
    assert isinstance(found, list)
    return found


def test_json(trace: Path, tmp_path: Path) -> None:
    found = rows(trace, "--budget", "1,2", "--expert-bytes", "10", cwd=tmp_path)
    assert [(row["policy"], row["budget_experts"]) for row in found] == [
        (policy, experts) for policy in ("lru", "lfu", "static", "belady") for experts in (1, 2)
    ]
    assert all(set(row) >= ROW for row in found)
    lru = found[1]
    # Layer 0: 0 1 | 1 2 | 1 3; layer 1: 2 3 | 3 0 | 0 1: one hit an event after the first.
    assert (lru["accesses"], lru["hits"], lru["misses"]) == (12, 4, 8)
    assert lru["hit_rate"] == pytest.approx(4 / 12)
    assert lru["miss_bytes_per_iteration"] == pytest.approx(80 / 3)
    assert (lru["budget_bytes"], lru["budget_total_experts"]) == (20, 4)
    assert (lru["scope"], lru["replay"], lru["window"]) == ("per-layer", "event", None)
    assert lru["tie_spread"] == {"seeds": [0, 1, 2], "min_misses": 8, "max_misses": 8}


def test_the_contract_that_was_asked_for(trace: Path, tmp_path: Path) -> None:
    options = ["--replay", "access", "--order", "ascending", "--scope", "global", "--warm-pass"]
    found = rows(
        trace, *options, "--cold-per-request", "--policy", "lru", "--budget", "50 %", cwd=tmp_path
    )
    names = ("replay", "order", "scope", "window", "cold_start", "budget_experts", "iterations")
    assert [found[0][name] for name in names] == [
        "access",
        "ascending",
        "global",
        "warm-pass",
        "per-request",
        4,
        3,
    ]


def test_window(trace: Path, tmp_path: Path) -> None:
    found = rows(trace, "--window", "0.6", "--policy", "demand", "--budget", "1", cwd=tmp_path)
    assert (found[0]["window"], found[0]["iterations"], found[0]["misses"]) == (0.6, 2, 8)


def test_csv_stands_alone(trace: Path, tmp_path: Path) -> None:
    done = run(trace, "--budget", "1,2", "--policy", "lru,static", "--csv", cwd=tmp_path)
    found = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(found) == 4 and set(found[0]) >= ROW
    assert [row["replay"] for row in found] == ["event"] * 4
    assert found[1]["misses"] == "8" and found[1]["tie_seeds"] == "3"


def test_table_names_the_contract(trace: Path, tmp_path: Path) -> None:
    done = run(trace, "--budget", "2", cwd=tmp_path)
    assert done.returncode == 0
    assert "event-atomic; one cache a layer; scored from a cold cache" in done.stdout
    assert "static set fitted on: same trace" in done.stdout


def test_a_frozen_table_names_its_source(trace: Path, tmp_path: Path) -> None:
    other = write_trace(tmp_path / "other.jsonl", repeats=2)
    found = rows(
        trace, "--table", other, "--policy", "static", "--budget", "2", "--tie-seeds", "1",
        cwd=tmp_path,
    )  # fmt: skip
    assert found[0]["static_fit"] == str(other)
    assert found[0]["initial_load_experts"] == 4


def test_sizes_of_a_pool(trace: Path, tmp_path: Path) -> None:
    geometry = ["--layers", "2", "--experts", "4", "--expert-bytes", "4096"]
    made = [sys.executable, "-m", "pagetier.bench.cli", "pool", "create", *geometry, "pool"]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    options = ["--pool", "pool", "--policy", "lru", "--scope", "global"]
    found = rows(trace, *options, "--budget", "16384 B", cwd=tmp_path)
    assert (found[0]["budget_experts"], found[0]["budget_bytes"]) == (4, 16384)
    missed = found[0]["misses"]
    assert isinstance(missed, int)
    assert found[0]["miss_bytes_per_iteration"] == missed * 4096 / 3


def test_conformance(tmp_path: Path) -> None:
    done = run("--conformance", cwd=tmp_path)
    assert done.returncode == 0
    assert "event-atomic" in done.stdout and "12 hits, 18 misses" in done.stdout
    assert "8 hits, 22 misses" in done.stdout and "10 hits, 20 misses" in done.stdout
    document = json.loads(run("--conformance", "--json", cwd=tmp_path).stdout)
    assert document["conforms"] is True
    assert [(row["hits"], row["misses"]) for row in document["rows"]] == [
        (12, 18),
        (8, 22),
        (10, 20),
    ]
    assert run("--conformance", "--csv", cwd=tmp_path).stdout.count("\n") == 4


def test_what_does_not_conform_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = (conformance.Expected(conformance.CONFORMANCE[0].contract, 13, 17),)
    monkeypatch.setattr(conformance, "CONFORMANCE", wrong)
    assert CliRunner().invoke(app, ["simulate", "--conformance"]).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "simulate replays a trace at given budgets: simulate TRACE --budget 8,16"),
        (["tiny.jsonl"], "simulate replays a trace at given budgets"),
        (["absent.jsonl", "--budget", "1"], "absent.jsonl"),
        (["tiny.jsonl", "--budget", "1x"], "'1x' is not a budget"),
        (["tiny.jsonl", "--budget", "1 GB"], "give --expert-bytes"),
        (["tiny.jsonl", "--budget", "1", "--policy", "lru,mru"], "there is no policy 'mru'"),
        (["tiny.jsonl", "--budget", "1", "--scope", "both"], "--scope both is not known"),
        (["tiny.jsonl", "--budget", "1", "--replay", "x"], "--replay x is not known"),
        (["tiny.jsonl", "--budget", "1", "--order", "random"], "leave --order out"),
        (["tiny.jsonl", "--budget", "1", "--window", "1"], "--window 1 leaves nothing to score"),
        (["tiny.jsonl", "--budget", "1", "--window", "nan"], "--window nan leaves nothing"),
        (["tiny.jsonl", "--budget", "1", "--window", "0.5", "--warm-pass"], "give one of them"),
        (["tiny.jsonl", "--budget", "1", "--expert-bytes", "0"], "give at least 1"),
        (["tiny.jsonl", "--budget", "1", "--csv", "--json"], "give one of them"),
        (["tiny.jsonl", "--budget", "1", "--table", "wide.jsonl"], "wide.jsonl: a table of 2"),
        (["tiny.jsonl", "--budget", "1", "--pool", "absent"], "absent"),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_2(
    arguments: list[str], message: str, trace: Path, tmp_path: Path
) -> None:
    write_trace(tmp_path / "wide.jsonl", num_experts=5)
    failed = run(*arguments, cwd=tmp_path)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert message in failed.stderr
    assert len(failed.stderr.strip().splitlines()) == 1


# Says when the first grid begins, for an interrupt that comes while modules load is another test's.
ANNOUNCED = """
import sys
import pagetier.bench.simulate.cli as module
from pagetier.bench.cli import main
begin = module.sweep
def announced(*arguments, **options):
    print("sweeping", file=sys.stderr, flush=True)
    return begin(*arguments, **options)
module.sweep = announced
main()
"""


def test_ctrl_c_ends_a_long_sweep(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "long.jsonl", repeats=3000)
    options = ["--budget", "1,2,3", "--policy", "lru,lfu,belady", "--tie-seeds", "1000"]
    process = subprocess.Popen(
        [sys.executable, "-c", ANNOUNCED, "simulate", str(trace), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "sweeping\n"
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (130, "")
    assert "Traceback" not in stderr
