# SPDX-License-Identifier: Apache-2.0
"""`pagetier trace import`: one command per engine, notes on stderr, one document on stdout."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pagetier.analysis.traces import read_trace

DATA = Path(__file__).parents[1] / "analysis" / "importers" / "data"
EXPERTS = [4, 1, 0, 2, 1, 3, 2, 0, 5, 1, 4, 3]

# The commands of the README, with the file of this test that stands for the user's.
COMMANDS = [
    ("colibri.txt", "route.txt", "trace import route.txt --num-experts 6 -o mine.jsonl.gz"),
    ("vllm.json", "response.json", "trace import response.json --num-experts 6 -o mine.jsonl.gz"),
    (
        "sglang.json",
        "response.json",
        "trace import response.json --num-layers 2 --num-experts 6 --top-k 2 -o mine.jsonl.gz",
    ),
    ("llama_positions.csv", "moe.csv", "trace import moe.csv --num-experts 6 -o mine.jsonl.gz"),
    ("llama_calls.csv", "moe.csv", "trace import moe.csv --num-experts 6 -o mine.jsonl.gz"),
    ("bigmoe.csv", "route.csv", "trace import route.csv -o mine.jsonl.gz"),
    ("cache_lab.jsonl", "trace.jsonl", "trace import trace.jsonl -o mine.jsonl.gz"),
    ("engine.jsonl", "log.jsonl", "trace import log.jsonl --num-experts 6 -o mine.jsonl.gz"),
    ("wide.csv", "table.csv", "trace import table.csv --num-experts 6 -o mine.jsonl.gz"),
    (
        "listed.csv",
        "table.csv",
        "trace import table.csv --num-experts 6 --format csv -o mine.jsonl.gz --columns"
        " 'layer=Layer ID,step=Position,experts=Activated Expert IDs'",
    ),
    (
        None,
        "routes.npy",
        "trace import routes.npy --axes ltk --num-experts 6 --model tiny -o mine.jsonl.gz",
    ),
]


def run(command: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pagetier.bench.cli", *shlex.split(command)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(("fixture", "name", "command"), COMMANDS)
def test_one_command_per_engine(
    tmp_path: Path, fixture: str | None, name: str, command: str
) -> None:
    if fixture is None:
        np.save(tmp_path / name, np.array(EXPERTS).reshape(3, 2, 2).transpose(1, 0, 2))
    else:
        shutil.copy(DATA / fixture, tmp_path / name)
    done = run(command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "mine.jsonl.gz: 1 requests, 3 iterations, 6 records, 12 reads\n"
    assert done.stderr.startswith("format: ")
    assert read_trace(tmp_path / "mine.jsonl.gz").experts.tolist() == EXPERTS
    info = run("trace info mine.jsonl.gz --json", tmp_path)
    assert json.loads(info.stdout)["accepted_tokens"] == 3


def test_json_is_one_document_and_notes_go_to_stderr(tmp_path: Path) -> None:
    done = run(f"trace import {DATA / 'colibri.txt'} --num-experts 6 -o t.jsonl --json", tmp_path)
    document = json.loads(done.stdout)
    assert document["format"] == "colibri"
    assert document["record_types"] == {"normal": 6, "spec-accept": 0, "spec-fallback": 0}
    assert len(document["notes"]) == 2
    assert done.stderr.splitlines() == ["format: colibri", *document["notes"]]


def test_info_reads_what_can_be_imported(tmp_path: Path) -> None:
    shown = run(f"trace info {DATA / 'engine.jsonl'} --num-experts 6 --top-k 2 --json", tmp_path)
    assert json.loads(shown.stdout)["iterations"] == 3
    assert "format: engine-jsonl" in shown.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("trace import absent -o t", "absent: No such file or directory"),
        (f"trace import {DATA / 'engine.jsonl'} -o t", "give --num-experts"),
        (f"trace import {DATA / 'usage.coli_usage'} -o t", "cannot be replayed"),
        (f"trace import {DATA / 'wide.csv'} -o t --axes tkk", "--axes tkk: expected an order"),
        (f"trace import {DATA / 'wide.csv'} -o t --layers x", "--layers x: expected layers"),
        (f"trace import {DATA / 'wide.csv'} -o t --columns x", "--columns x: expected ROLE=NAME"),
        (f"trace import {DATA / 'wide.csv'} -o t --format x", "--format x is not known"),
        (
            f"trace import {DATA / 'wide.csv'} -o t --physical-map {DATA / 'wide.csv'}",
            "wide.csv: is no npy data",
        ),
        (f"trace import {DATA / 'wide.csv'} --num-experts 6 -o absent/t", "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(tmp_path: Path, command: str, message: str) -> None:
    failed = run(command, tmp_path)
    assert failed.returncode == 2
    last = failed.stderr.splitlines()[-1]
    assert last.startswith("pagetier: ") and message in last
    assert "Traceback" not in failed.stderr
    assert failed.stdout == ""
    assert list(tmp_path.iterdir()) == []
