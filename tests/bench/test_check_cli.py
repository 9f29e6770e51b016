# SPDX-License-Identifier: Apache-2.0
"""`pagetier check` as a program: exit codes, a line per interval in a log, JSON, the live view."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from pagetier.bench.check import cli as check_cli
from pagetier.bench.check import view as check_view
from pagetier.bench.check.run import Look
from pagetier.bench.cli import app
from pagetier.cgroups.roots import Roots


def document(state: str = "healthy", **figures: Any) -> dict[str, Any]:
    pair = {"ratio": 2.5, "scanned_pages_per_s": 1.0, "stolen_pages_per_s": 1.0, "label": "x"}
    return {
        "state": state,
        "evidence": ["the heaviest line", "another"],
        "unseen": ["what pid 7 reads: run as root"],
        "requirements": [{"name": "proactive reclaim", "found": "DAMON", "remedy": "x"}],
        "mitigations": [
            {"name": "confine", "applies": True, "why": "because", "command": "do [this]"},
            {"name": "switch", "applies": False, "why": "it is off", "command": ""},
        ],
        "figures": {
            "read_bytes_per_s": 2e6,
            "miss_bytes_per_s": None,
            "amplification": 1.5,
            "reclaim": {"kswapd": pair, "cgroup": None},
            "refault_bytes_per_s": 0.0,
            "unevictable_share": 0.5,
            "swap_used_bytes": 0,
            "stalled": {"memory.some": 0.25, "memory.full": None},
            **figures,
        },
    }


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The documents that the command will see, by their states."""
    given: list[str] = []
    monkeypatch.setattr(check_cli, "looks", lambda look, roots: map(document, given))
    return given


@pytest.mark.parametrize(
    ("state", "status"), [("healthy", 0), ("suspect", 1), ("amplifying", 1), ("unknown", 2)]
)
def test_exit_status(states: list[str], state: str, status: int) -> None:
    states.append(state)
    shown = CliRunner().invoke(app, ["check", "--json"])
    assert shown.exit_code == status
    assert json.loads(shown.stdout)["state"] == state


def test_watch_in_a_log_is_one_line_per_interval(states: list[str]) -> None:
    states += ["healthy", "suspect", "healthy"]
    shown = CliRunner().invoke(app, ["check", "--watch", "--count", "2"])
    assert shown.exit_code == 1
    lines = shown.stdout.splitlines()
    assert len(lines) == 2
    assert lines[1].split(" ", 2)[2] == (
        "suspect: device 2.00 MB/s, misses n/a, amplification 1.50, kswapd scan/steal 2.50, "
        "refaults 0 B/s, unevictable 50.0%, memory stalls 25.0%"
    )


def test_watch_as_json_is_one_document_per_line(states: list[str]) -> None:
    states += ["healthy", "unknown"]
    shown = CliRunner().invoke(app, ["check", "--watch", "--json", "--count", "2"])
    assert shown.exit_code == 2
    assert [json.loads(line)["state"] for line in shown.stdout.splitlines()] == states


def page(state: str) -> str:
    out = io.StringIO()
    check_view.page(Console(file=out, width=60), document(state))
    return out.getvalue()


def test_page_has_the_mitigations_when_there_is_something_to_mitigate() -> None:
    assert "confine" not in page("healthy")
    text = page("suspect")
    assert text.startswith("suspect\n  the heaviest line\n")
    assert "  not seen: what pid 7 reads: run as root" in text
    assert "  note: proactive reclaim: DAMON" in text
    # Printed as it is: brackets are no markup, and a command is never broken over lines.
    assert "  1. confine: because\n     do [this]\n  2. switch (not here): it is off\n" in text


@pytest.mark.parametrize("missing", [False, True])
def test_live_view_keeps_its_rows_in_place(missing: bool) -> None:
    blank: dict[str, Any] = dict.fromkeys(
        ("read_bytes_per_s", "amplification", "unevictable_share", "swap_used_bytes")
    )
    blank["reclaim"] = {"kswapd": None, "cgroup": None}
    shown = document("amplifying", **(blank if missing else {}))
    out = io.StringIO()
    Console(file=out, width=80).print(check_view.live(shown, "12:00:00"))
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("amplifying  12:00:00")
    names = [line[:18].strip() for line in lines[2:12]]
    assert names[:4] == ["device reads", "computed misses", "amplification", "scan/steal kswapd"]
    assert lines[-1].startswith("not seen: what pid 7 reads")
    assert ("n/a" in lines[2]) is missing


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "sda"], "name the pool with --pool"),
        (["--capacity", "5 G"], "ambiguous"),
        (["--pid", "4194304"], "no such process"),
        (["--pool", "absent"], "is no pool"),
        (["--textfile", "/no/such/x.prom", "--interval", "0.1"], "cannot be written"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], message: str) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "pagetier.bench.cli", "check", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shown.returncode == 2
    assert message in shown.stderr
    assert shown.stderr.count("\n") == 1 and "Traceback" not in shown.stderr


def test_self_test_goes_first_and_uses_the_pools_disk(
    states: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    states.append("healthy")
    called: list[Path] = []

    def remember(directory: Path, place: Path, roots: Roots) -> None:
        called.append(place)

    monkeypatch.setattr(check_cli, "try_limit_counters", remember)
    (tmp_path / "pool").mkdir()
    shown = CliRunner().invoke(
        app, ["check", "--self-test", "--pool", str(tmp_path / "pool"), "--json"]
    )
    assert shown.exit_code == 0
    assert called == [tmp_path]


def test_options_reach_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Look] = []

    def remember(look: Look, roots: Roots) -> Any:
        seen.append(look)
        return iter([document()])

    monkeypatch.setattr(check_cli, "looks", remember)
    arguments = ["--interval", "3", "--pool", "p", "--device", "sda", "--device", "sdb"]
    arguments += ["--cgroup", "/c", "--pid", "5", "--feed", "-", "--capacity", "1 MiB"]
    assert CliRunner().invoke(app, ["check", "--json", *arguments]).exit_code == 0
    (look,) = seen
    assert look.interval_s == 3.0
    subject = look.subject
    assert (subject.pool, subject.device) == (Path("p"), ("sda", "sdb"))
    assert (subject.cgroup, subject.pid, subject.feed) == ("/c", 5, "-")
    assert subject.capacity_bytes == 1 << 20


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_watch(number: int, tmp_path: Path) -> None:
    textfile = tmp_path / "x.prom"
    command = [sys.executable, "-m", "pagetier.bench.cli", "check", "--watch", "--interval", "0.1"]
    with subprocess.Popen(
        [*command, "--textfile", str(textfile)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert ": device n/a" in process.stdout.readline()
        os.kill(process.pid, number)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.prom"]
