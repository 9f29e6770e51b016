# SPDX-License-Identifier: Apache-2.0
"""`pagetier trace merge | synth` and the comparing form of `trace info`."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces import read_trace
from pagetier.bench.trace.cli import trace_app

TARGETS = """\
model: tiny
layers: 3
experts: 24
top_k: 3
domains:
  prose: {group: text, iterations: 30}
  code: {group: code, iterations: 30, accepts: 3, fallbacks: 2}
targets: {reuse_1: [0.01, 0.9], jaccard: [0, 1]}
free: [phrase]
"""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(trace_app, [str(argument) for argument in arguments])


def document(*arguments: str | Path) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TARGETS)
    return path


@pytest.fixture
def fixed(tmp_path: Path) -> Path:
    """The same with parameters: no calibration."""
    path = tmp_path / "fixed.yaml"
    path.write_text(TARGETS + "parameters: {phrase: 2.5}\n")
    return path


def test_synth_writes_a_trace_of_the_domain(fixed: Path, tmp_path: Path) -> None:
    out = tmp_path / "code.jsonl.gz"
    shown = document("synth", "--model", fixed, "--domain", "code", "--seed", "4", "-o", out)
    assert shown["domain"] == "code"
    assert shown["iteration_types"] == {"normal": 25, "spec-accept": 3, "spec-fallback": 2}
    assert shown["accepted_tokens"] == 33
    assert "parameters" not in shown
    trace = read_trace(out)
    assert trace.header.domain == "code" and trace.header.num_experts == 24


def test_the_first_domain_and_the_published_length_are_the_defaults(
    fixed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "t.jsonl"
    assert document("synth", "--model", fixed, "-o", out)["iterations"] == 30
    assert read_trace(out).header.domain == "prose"
    shown = document("synth", "--model", fixed, "--iterations", "7", "-o", out)
    assert shown["iterations"] == 7


def test_targets_without_parameters_are_calibrated_to(model: Path, tmp_path: Path) -> None:
    shown = document("synth", "--model", model, "-o", tmp_path / "t.jsonl")
    assert shown["parameters"]["phrase"] != 1.9
    assert shown["parameters"]["topic"] == 1.3


def test_check_keeps_fitted_and_predicted_apart(fixed: Path) -> None:
    shown = document("synth", "--model", fixed, "--check")["check"]
    assert shown["fitted_parameters"] == ["phrase", "shared"]
    assert [row["statistic"] for row in shown["targets"]] == [
        "accepted_reuse_1",
        "reuse_1",
        "served_reuse_1",
        "jaccard",
    ]
    assert shown["predictions"] == []


def test_check_in_words(fixed: Path) -> None:
    result = run("synth", "--model", fixed, "--check")
    assert result.exit_code == 0
    assert "calibrated to (fitted: phrase, shared)" in result.stdout
    assert "inside" in result.stdout


def test_a_missed_target_is_a_finding(fixed: Path) -> None:
    fixed.write_text(fixed.read_text().replace("[0.01, 0.9]", "[0.95, 0.99]"))
    result = run("synth", "--model", fixed, "--check")
    assert result.exit_code == 1
    assert "missed" in result.stdout


def test_the_control_has_no_locality(fixed: Path, tmp_path: Path) -> None:
    for name, option in (("real", []), ("control", ["--uniform"])):
        out = tmp_path / f"{name}.jsonl"
        document("synth", "--model", fixed, "--iterations", "300", "-o", out, *option)
    real, control = (
        document("info", tmp_path / f"{name}.jsonl")["reuse"]["1"] for name in ("real", "control")
    )
    assert control == pytest.approx(3 / 24, abs=0.03)
    assert real > 2 * control
    assert "control" in str(read_trace(tmp_path / "control.jsonl").header.source)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a trace to write with -o"),
        (["--model", "kimi", "-o", "x"], "is not known"),
        (["--iterations", "1000000", "-o", "x"], "ask for fewer"),
        (["--domain", "poetry", "-o", "x"], "give prose, code, math, chat"),
    ],
)
def test_synth_says_what_is_wrong(arguments: list[str], message: str) -> None:
    error = run("synth", *arguments).exception
    assert isinstance(error, InputError)
    assert message in str(error)


def test_merge_and_its_facts(fixed: Path, tmp_path: Path) -> None:
    parts = [tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"]
    for part, domain in zip(parts, ("prose", "code"), strict=True):
        document("synth", "--model", fixed, "--domain", domain, "-o", part)
    out = tmp_path / "batch.jsonl.gz"
    shown = document("merge", *parts, "-o", out)
    assert (shown["batch"], shown["steps"], shown["accepted_tokens"]) == (2, 30, 63)
    assert shown["dedup"] == pytest.approx(shown["logical_reads"] / shown["union_reads"])
    facts = document("info", out)
    assert facts["accepted_tokens"] == 63
    assert facts["reads"] == shown["union_reads"]
    queue = document("merge", *parts, "--batch", "2", "-o", out)
    assert queue["steps"] == 30
    assert run("merge", *parts, "-o", out).exit_code == 0


def test_info_compares_several_traces(fixed: Path, tmp_path: Path) -> None:
    parts = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for part, domain in zip(parts, ("prose", "code"), strict=True):
        document("synth", "--model", fixed, "--domain", domain, "-o", part)
    shown = document("info", *parts, "--top", "5", "--reuse", "2")
    assert list(shown["traces"]) == [str(part) for part in parts]
    assert list(shown["traces"][str(parts[0])]["reuse"]) == ["2"]
    assert shown["jaccard"]["top"] == 5
    pair = shown["jaccard"]["pairs"][0]
    assert 0 < pair["mean"] < 1
    words = run("info", *parts).stdout
    assert "Jaccard" in words and "coverage after" in words and "W64" in words


def test_info_refuses_windows_that_are_no_numbers(fixed: Path, tmp_path: Path) -> None:
    part = tmp_path / "a.jsonl"
    document("synth", "--model", fixed, "-o", part)
    error = run("info", part, "--reuse", "1;8").exception
    assert isinstance(error, InputError)
    assert "--reuse 1;8" in str(error)
