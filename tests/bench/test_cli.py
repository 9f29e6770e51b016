# SPDX-License-Identifier: Apache-2.0
"""The command line: exit codes, one-sentence errors, JSON on stdout, help with an example."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from pagetier.bench.cli import app

GEOMETRY = ["--layers", "2", "--experts", "3", "--expert-bytes", "5001"]


def run(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pagetier.bench.cli", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def commands(group: typer.Typer, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [
        (*prefix, command.name or str(command.callback and command.callback.__name__))
        for command in group.registered_commands
    ]
    for inner in group.registered_groups:
        assert inner.typer_instance is not None and inner.name is not None
        found += commands(inner.typer_instance, (*prefix, inner.name))
    return found


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pools")
    made = run("pool", "create", *GEOMETRY, "p", cwd=folder)
    assert made.returncode == 0, made.stderr
    return folder / "p"


@pytest.mark.parametrize("command", commands(app), ids=" ".join)
def test_every_command_has_help_with_an_example(command: tuple[str, ...], tmp_path: Path) -> None:
    shown = run(*command, "--help", cwd=tmp_path)
    assert shown.returncode == 0
    assert "Example: " in shown.stdout and "--json" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trace", "info", "absent.jsonl"], "absent.jsonl"),
        (["pool", "info", "absent"], "absent"),
        (
            ["pool", "create", "--layers", "1", "--experts", "1", "--expert-bytes", "5 XB", "q"],
            "XB",
        ),
        (["run", "absent.yaml"], "absent.yaml: cannot be read"),
        (["run", "--resume"], "--resume continues a results directory; name it with -o DIR"),
        (["report", "absent"], "absent: no such directory"),
        (["doctor", "--probe"], "doctor --probe reads a pool; name it with --pool"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    failed = run(*arguments, cwd=tmp_path)
    assert failed.returncode == 2
    assert message in failed.stderr
    assert len(failed.stderr.strip().splitlines()) == 1
    assert failed.stdout == ""
    assert list(tmp_path.iterdir()) == [], "something half-made was left behind"


@pytest.mark.parametrize("arguments", [["frobnicate"], ["run", "--frobnicate"], ["pool", "create"]])
def test_bad_usage_is_exit_2(arguments: list[str], tmp_path: Path) -> None:
    failed = run(*arguments, cwd=tmp_path)
    assert failed.returncode == 2
    assert "Traceback" not in failed.stderr


def test_pool_commands_agree(pool: Path) -> None:
    info = json.loads(run("pool", "info", str(pool), "--json", cwd=pool.parent).stdout)
    assert (info["num_layers"], info["num_experts"], info["experts"]) == (2, 3, 6)
    assert info["expert_bytes"] == {"min": 5001, "max": 5001, "mean": 5001}
    assert info["pool_bytes"] == 6 * 5001
    checked = run("pool", "check", str(pool), "--json", cwd=pool.parent)
    assert (checked.returncode, json.loads(checked.stdout)["ok"]) == (0, True)


def test_pool_check_names_the_first_bad_expert(pool: Path, tmp_path: Path) -> None:
    made = run("pool", "create", *GEOMETRY, "--flat", "q", cwd=tmp_path)
    assert made.returncode == 0
    (data,) = (path for path in (tmp_path / "q").rglob("*.bin"))
    with data.open("r+b") as file:
        file.seek(4 * 5001 + 17)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    checked = run("pool", "check", "q", "--json", cwd=tmp_path)
    assert checked.returncode == 1
    problem = json.loads(checked.stdout)["problem"]
    assert "layer 1" in problem and "expert 1" in problem and str(4 * 5001 + 17) in problem


def test_trace_check_finds_and_info_refuses(tmp_path: Path) -> None:
    header = '{"format":"moe-route-trace","version":1,"model":"m","num_layers":1,'
    good = header + '"num_experts":4,"top_k":1}' + '\n{"req":0,"step":0,"layer":0,"experts":[3]}\n'
    (tmp_path / "good.jsonl.gz").write_bytes(gzip.compress(good.encode()))
    (tmp_path / "bad.jsonl").write_text(good.replace("[3]", "[4]"))
    info = json.loads(run("trace", "info", "good.jsonl.gz", "--json", cwd=tmp_path).stdout)
    assert (info["records"], info["reads"], info["iterations"]) == (1, 1, 1)
    assert run("trace", "check", "good.jsonl.gz", cwd=tmp_path).returncode == 0
    found = run("trace", "check", "bad.jsonl", "--json", cwd=tmp_path)
    assert found.returncode == 1 and "bad.jsonl:2" in json.loads(found.stdout)["problem"]
    assert run("trace", "info", "bad.jsonl", cwd=tmp_path).returncode == 2


def test_dry_run_says_what_would_be_done_and_does_nothing(tmp_path: Path) -> None:
    planned = run("run", "--dry-run", "--json", cwd=tmp_path)
    assert planned.returncode == 0
    document = json.loads(planned.stdout)
    assert len(document["cells"]) == 8
    assert document["device_bytes"] > 0 and document["seconds"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_trace_of_another_shape_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "trace:\n  generate: {layers: 2, experts: 4, top_k: 1, iterations: 2}\n"
        "pool:\n  path: p\n  create: {layers: 2, experts: 5, expert_bytes: 100}\n"
        "mechanisms: [none]\n"
    )
    failed = run("run", "c.yaml", "-o", "out", cwd=tmp_path)
    assert failed.returncode == 2
    assert "p: the pool has 2 layers of 5 experts, the trace 2 of 4" in failed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


def test_doctor_document_has_its_stable_keys(pool: Path) -> None:
    shown = run("doctor", "--pool", str(pool), "--json", cwd=pool.parent)
    assert shown.returncode == 0, shown.stderr
    document = json.loads(shown.stdout)
    assert {"kernel", "page_bytes", "cgroup", "mglru", "psi", "memlock", "device"} < set(document)
    assert document["cgroup"]["memory"] in ("v1", "v2", "none")
    assert all({"name", "ok", "found", "remedy"} <= set(item) for item in document["requirements"])
