# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pagetier.analysis.generate import default_trace
from pagetier.analysis.results import Cell, Iteration, Pass
from pagetier.analysis.traces import write_trace
from pagetier.bench import cli
from pagetier.bench.store import Store

MakeResults = Callable[..., Path]
GB = 10**9
PASSES = ("timeline-01", "timeline-02")


def made_cell(position: int, state: str = "kept", **spec: Any) -> Cell:
    """Two iterations of a second under a wall, 3 GB from the device in each."""
    rows = tuple(
        Iteration(at, (at + 1) * GB, GB + position, 4 * GB, 4, 0, 3 * GB, 3) for at in range(2)
    )
    shots = [
        {
            "at_ns": at * GB,
            "device": {"major": 259, "minor": 0, "sectors_read": at * 3 * GB // 512},
            "process": {"read_bytes": at * 3 * GB},
            "scope": {"file_bytes": GB},
        }
        for at in (0, 2)
    ]
    passes = {
        name: Pass(name, shots[0], shots[1], {"start_ns": 0}, rows, ())
        for name in ("warm-up", "measured")
    }
    whole = {"tier": "page-cache", "mechanism": "wall", "capacity_bytes": 10 * GB, "pool": "p"}
    return Cell(
        id=f"{position:012x}",
        position=position,
        spec={**whole, "layout": "files", "advice": "default", "repetition": 1, **spec},
        state=state,
        reasons=("foreign reads",) if state == "rejected" else (),
        labels=(),
        started=f"2026-01-01T00:00:{position:02}+00:00",
        finished="2026-01-01T01:00:00+00:00",
        enforced={},
        facts={"expert_bytes": GB, "accepted_tokens": 2},
        passes=passes,
    )


@pytest.fixture
def make_results(tmp_path: Path) -> MakeResults:
    """A results directory of cells."""
    numbers = iter(range(100))

    def make(*cells: Cell, **meta: str) -> Path:
        directory = tmp_path / f"results-{next(numbers)}"
        texts = {"name": "made", "created": "2026-01-01", "campaign": "{}", "pools": "{}"}
        texts |= {"host": '{"kernel": "6.12"}', "trace": "{}", "not_run": "[]"}
        with Store.create(directory, texts | {"plan_sha256": "plan1"} | meta) as store:
            for cell in cells:
                store.add_cell(cell)
        return directory

    return make


Run = Callable[..., tuple[int, str, str]]


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


def test_the_document_of_one_directory_keeps_its_shape(make_results: MakeResults, run: Run) -> None:
    code, out, _ = run("report", make_results(made_cell(1)), "--json")
    document = json.loads(out)
    assert code == 0
    assert {"campaign", "host", "cells"} <= document.keys()
    (cell,) = document["cells"]
    assert cell["device_bytes_per_iteration"] == pytest.approx(3 * GB)
    assert cell["iteration_s"]["median"] == pytest.approx(1.0)
    keys = [section["key"] for section in document["sections"]]
    assert keys == ["validity", "capacity", "ledger", "drift", "placement", "checklist"]
    assert document["problems"] == []


def test_text_ends_with_the_block_to_paste(make_results: MakeResults, run: Run) -> None:
    directory = make_results(made_cell(1))
    code, out, err = run("report", directory)
    assert (code, err) == (0, "")
    assert out.startswith("Validity\n========\n\nCells kept: 1 of 1.\n")
    assert "### pagetier: made, 1 cells" in out
    assert out.endswith(f"results: {directory}\n")


def test_a_rejected_cell_is_a_finding(make_results: MakeResults, run: Run) -> None:
    code, out, _ = run("report", make_results(made_cell(1), made_cell(2, "rejected")))
    assert code == 1
    assert "foreign reads" in out


def test_files_are_the_same_on_a_second_run(
    make_results: MakeResults, run: Run, tmp_path: Path
) -> None:
    directory = make_results(made_cell(1), made_cell(2, capacity_bytes=20 * GB))
    outputs = [tmp_path / name for name in ("first", "second")]
    told = [run("report", directory, "-o", output, "--export", "csv") for output in outputs]
    assert told[0] == told[1]
    names = [
        sorted(str(path.relative_to(output)) for path in output.rglob("*.*")) for output in outputs
    ]
    assert (
        names[0]
        == names[1]
        == [
            "cells.csv",
            *(
                f"figures/{key}.{form}"
                for key in ("capacity-device", "capacity-time", "ledger", *PASSES)
                for form in ("png", "svg")
            ),
            "iterations.csv",
            "report.html",
            "report.json",
            "report.md",
            "samples.csv",
        ]
    )
    for name in names[0]:
        assert (outputs[0] / name).read_bytes() == (outputs[1] / name).read_bytes()
    text = (outputs[0] / "report.md").read_text()
    assert text.startswith("### pagetier: made")
    assert "## Reporting checklist" in text


def test_several_directories_are_compared(
    make_results: MakeResults, run: Run, tmp_path: Path
) -> None:
    first, second = make_results(made_cell(1)), make_results(made_cell(2), host='{"kernel": "7"}')
    code, out, _ = run("report", first, second, "-o", tmp_path / "out")
    assert code == 0
    assert out.startswith("Comparison\n")
    assert "are not pooled, for they differ in: kernel." in " ".join(out.split())
    found = sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*"))
    assert found == [
        "1-results-0/figures/ledger.png",
        "1-results-0/figures/ledger.svg",
        "1-results-0/figures/timeline-01.png",
        "1-results-0/figures/timeline-01.svg",
        "1-results-0/report.html",
        "1-results-0/report.json",
        "1-results-0/report.md",
        "2-results-1/figures/ledger.png",
        "2-results-1/figures/ledger.svg",
        "2-results-1/figures/timeline-01.png",
        "2-results-1/figures/timeline-01.svg",
        "2-results-1/report.html",
        "2-results-1/report.json",
        "2-results-1/report.md",
        "comparison.html",
        "comparison.json",
        "comparison.md",
    ]
    _, out, _ = run("report", first, second, "--json")
    document = json.loads(out)
    assert (len(document["reports"]), document["unread"]) == (2, [])
    assert document["comparison"]["key"] == "comparison"


def test_of_several_the_unreadable_is_named_and_the_others_are_told(
    make_results: MakeResults, run: Run, tmp_path: Path
) -> None:
    good = make_results(made_cell(1))
    code, out, err = run("report", good, tmp_path / "absent", "--json")
    document = json.loads(out)
    assert code == 1
    assert "absent: no such directory" in err
    assert (len(document["reports"]), len(document["unread"])) == (1, 1)
    code, out, err = run("report", tmp_path / "absent", tmp_path / "gone")
    assert (code, out) == (2, "")
    assert err.endswith("pagetier: none of the directories can be read: see above\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--export", "csv"], "name their folder with -o"),
        (["--rates", "speed=3 GB"], "--rates"),
        (["--simulation", "absent.json"], "absent.json"),
        (["--trace", "absent.jsonl"], "absent.jsonl"),
    ],
)
def test_bad_usage_is_one_sentence(
    make_results: MakeResults, run: Run, arguments: list[str], told: str
) -> None:
    code, out, err = run("report", make_results(made_cell(1)), *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err


def test_a_folder_that_cannot_be_made(make_results: MakeResults, run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = run("report", make_results(made_cell(1)), "-o", tmp_path / "file")
    assert code == 2
    assert "cannot be made" in err


def test_a_trace_and_rates_answer_more(make_results: MakeResults, run: Run, tmp_path: Path) -> None:
    trace = default_trace(layers=2, experts=4, top_k=2, iterations=9, seed=1)
    write_trace(trace, tmp_path / "trace.jsonl")
    directory = make_results(made_cell(1))
    rates = "host=327 GB, hbm=2938 GB, stream=346 GB"
    code, out, _ = run("report", directory, "--rates", rates)
    assert code == 0
    assert "r* = 1.06" in out
    code, _, err = run("report", directory, "--trace", tmp_path / "trace.jsonl")
    assert code == 2
    assert "its reads are others" in err


def test_simulations_are_the_campaigns_own_and_other_domains(
    make_results: MakeResults, run: Run, tmp_path: Path
) -> None:
    options: list[object] = []
    for domain, rate in (("own", 0.5), ("other", 0.7)):
        row = {"policy": "lru", "budget_experts": 8, "hit_rate": rate, "scope": "per-layer"}
        path = tmp_path / f"{domain}.json"
        path.write_text(json.dumps({"rows": [row]}))
        options += ["--simulation", path]
    code, out, _ = run("report", make_results(made_cell(1)), *options, "--json")
    assert code == 0
    (section,) = [s for s in json.loads(out)["sections"] if s["key"] == "simulated"]
    (point,) = section["figures"][0]["series"][0]["points"]
    assert (point["min"], point["max"], point["n"]) == (0.5, 0.7, 2)


def test_a_page_of_nothing_kept_still_says_what_it_is(
    make_results: MakeResults, run: Run, tmp_path: Path
) -> None:
    code, _, _ = run("report", make_results(made_cell(1, "rejected")), "-o", tmp_path / "out")
    page = (tmp_path / "out/report.html").read_text()
    assert code == 1
    assert "Cells rejected: 1 of 1; no figure of this campaign can be used." in page
    # The ledger has its row, whose name stands beside its outlines in the file.
    assert "#1, rejected" in (tmp_path / "out/figures/ledger.svg").read_text()
    code, _, _ = run("report", make_results(), "-o", tmp_path / "empty")
    assert code == 0
    assert sorted(path.name for path in (tmp_path / "empty").iterdir()) == [
        "report.html",
        "report.json",
        "report.md",
    ]
