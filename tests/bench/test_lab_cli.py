# SPDX-License-Identifier: Apache-2.0
"""`pagetier lab run`: what it asks of the lab, its exit codes and its document; no guest boots."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from pagetier.analysis.errors import InputError
from pagetier.analysis.results import Results
from pagetier.bench import cli
from pagetier.bench.lab import cli as lab_cli
from pagetier.bench.lab.run import LabRequest, LabRun

RUN = LabRun("6.12", "6.12.9-test", Path("out/kernel-6.12"), "emulated")
RunLab = Callable[[LabRequest, Console], tuple[list[LabRun], bool]]


def ended(interrupted: bool, asked: list[LabRequest]) -> RunLab:
    def run_lab(request: LabRequest, console: Console) -> tuple[list[LabRun], bool]:
        asked.append(request)
        return [RUN], interrupted

    return run_lab


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results without a cell, as of a guest that was interrupted in its first."""
    monkeypatch.setattr(lab_cli, "_has_results", lambda _: True)
    monkeypatch.setattr(
        lab_cli, "read_results", lambda _: Results(RUN.directory, {}, {}, {}, {}, (), ())
    )


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(lab_cli.lab_app, ["run", "c.yaml", *arguments])
    return result.exit_code, result.stdout


@pytest.mark.parametrize(("interrupted", "status"), [(False, 0), (True, 130)])
def test_exit_status_and_document(
    empty: None, monkeypatch: pytest.MonkeyPatch, interrupted: bool, status: int
) -> None:
    monkeypatch.setattr(lab_cli, "run_lab", ended(interrupted, []))
    code, output = invoke("--json")
    assert code == status
    (run,) = json.loads(output)["runs"]
    assert (run["kernel"], run["release"], run["clock"]) == ("6.12", "6.12.9-test", "emulated")
    assert run["report"]["cells"] == []


def test_options_reach_the_lab_in_bytes(empty: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[LabRequest] = []
    monkeypatch.setattr(lab_cli, "run_lab", ended(False, asked))
    options = ("--kernel", "6.1", "--kernel", "6.12", "--memory", "2 GiB", "--disk", "nvme")
    invoke("-o", "out", *options, "--disk-bytes", "5 MB", "--timeout", "7", "--resume", "--json")
    (request,) = asked
    assert request == LabRequest(
        campaign=Path("c.yaml"),
        output=Path("out"),
        kernels=("6.1", "6.12"),
        modules=None,
        memory_bytes=2 << 30,
        cpus=2,
        disk_kind="nvme",
        disk_bytes=5_000_000,
        silence_s=7.0,
        resume=True,
    )


def test_a_size_that_is_none_is_refused_before_the_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_cli, "run_lab", ended(False, []))
    result = CliRunner().invoke(lab_cli.lab_app, ["run", "c.yaml", "--memory", "much"])
    assert isinstance(result.exception, InputError)
    assert "much" in str(result.exception)


def test_a_campaign_of_an_engine_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "engine.yaml"
    path.write_text("engine: {model: m.gguf, prompts: p.txt, tokens: 3}\ncapacities: [1 GB]\n")
    monkeypatch.setattr(
        "sys.argv", ["pagetier", "lab", "run", str(path), "-o", str(tmp_path / "o")]
    )
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    assert "engine.yaml: 'engine' names a model of this host" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
