# SPDX-License-Identifier: Apache-2.0
"""The byte ledger and the audit in a guest, run by test_ledger.py: cgroup v2, MGLRU on and off.

Not collected on the host: its name is none of a test module.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pagetier.analysis.render_json import report_json
from pagetier.analysis.results import Results, read_results
from pagetier.bench.inputs import RunRequest
from pagetier.bench.run import run_campaign

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("live")]

EXPERTS, EXPERT_BYTES = 96, 1 << 20
WALL_BYTES = EXPERTS * EXPERT_BYTES // 3


def measure(folder: Path, steps: Iterable[list[int]], **extra: Any) -> Results:
    """Replay steps of four experts from one file of 96 MiB under a wall of a third of it."""
    header = {"format": "moe-route-trace", "version": 1, "model": "file", "num_layers": 1}
    lines: list[dict[str, Any]] = [{**header, "num_experts": EXPERTS, "top_k": 4}]
    lines += [
        {"req": "r", "step": step, "layer": 0, "experts": experts}
        for step, experts in enumerate(steps)
    ]
    trace = folder / "trace.jsonl"
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    shape = {"layers": 1, "experts": EXPERTS, "expert_bytes": EXPERT_BYTES, "layout": "flat"}
    document = {
        "trace": str(trace),
        "pool": {"path": str(folder / "pool"), "create": shape},
        "mechanisms": ["wall"],
        "capacities": [WALL_BYTES],
        "mglru": ["on", "off"],
        "advice": "random",
        "threads": 1,
        **extra,
    }
    path = folder / "c.yaml"
    path.write_text(json.dumps(document))
    run_campaign(RunRequest(path, folder / "out", None, None, False), Console(stderr=True))
    return read_results(folder / "out")


def test_a_file_of_three_walls_read_three_times(tmp_path: Path) -> None:
    scan = [list(range(start, start + 4)) for start in range(0, EXPERTS, 4)]
    results = measure(tmp_path, scan * 3)
    file_bytes = EXPERTS * EXPERT_BYTES
    for cell in results.cells:
        rows = cell.passes["warm-up"].iterations
        first = sum(row.first_bytes or 0 for row in rows)
        repeat = sum(row.repeat_bytes or 0 for row in rows)
        print(cell.spec["mglru"], first / file_bytes, repeat / file_bytes)
        assert first == pytest.approx(file_bytes, rel=0.01)
        assert repeat == pytest.approx(2 * file_bytes, rel=0.01)
        assert cell.state == "kept", cell.reasons
    for shown in report_json(results)["cells"]:
        device = shown["device_bytes_per_iteration"]
        assert abs(shown["ledger"]["residual"]) <= 0.01 * device
        pairs = shown["ledger_evidence"]["agreement"]["measured"]
        assert all(abs(pair["share"]) <= 0.01 for pair in pairs), pairs


def test_the_audit_says_what_each_reclaim_keeps(tmp_path: Path) -> None:
    steps = [[(7 * step * step + 5 * k * k) % EXPERTS for k in range(4)] for step in range(64)]
    distinct = [list(dict.fromkeys(step)) for step in steps]
    results = measure(tmp_path, [step for step in distinct if len(step) == 4], audit=True)
    shown = report_json(results)["cells"]
    assert {cell["mglru"] for cell in shown} == {"on", "off"}
    for cell in shown:
        audit = cell["audit"]
        overlaps = [round(point["overlap"], 3) for point in audit["points"]]
        same = [round(point["same_size_overlap"], 3) for point in audit["points"]]
        ages = [point["kept_instead_age"] for point in audit["points"]]
        trace = cell["ledger_evidence"]["traced"]
        print("mglru", cell["mglru"], "overlap", overlaps, same, "age", ages, trace)
        assert len(overlaps) == 4
        assert all(0.2 < overlap <= 1 for overlap in overlaps)
        assert trace["problem"] is None
        assert trace["over_read"] == 0, "one file, random advice"
        assert abs(trace["unexplained"]) <= 0.01 * trace["in_extent"]
        # How much reclaim takes from an extent under a reader is timing, mostly 0 to 5 %; the trace
        # accounts for it to the page, whatever it was.
        assert 0 <= trace["taken_while_reading"] <= 0.15 * trace["in_extent"]
