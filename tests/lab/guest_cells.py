# SPDX-License-Identifier: Apache-2.0
"""Cells that must be rejected, run inside a guest by test_guest.py: here is a cgroup-v2 kernel.

Not collected on the host: its name is none of a test module.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pagetier.analysis.results import Cell, read_results
from pagetier.bench import frame
from pagetier.bench.inputs import RunRequest
from pagetier.bench.run import run_campaign
from pagetier.cgroups.detect import detect
from pagetier.cgroups.roots import Roots
from pagetier.tiers.evict import Eviction, evict_pool
from pagetier.tiers.pool import Pool

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("live")]

CAPACITY_BYTES = 24_000_000


def measure(folder: Path, **extra: Any) -> Cell:
    path = folder / "c.yaml"
    document = {
        "trace": {"generate": {"layers": 4, "experts": 16, "top_k": 2, "iterations": 20}},
        "pool": {
            "path": str(folder / "pool"),
            "create": {"layers": 4, "experts": 16, "expert_bytes": 500_001},
        },
        "mechanisms": ["wall"],
        "capacities": [CAPACITY_BYTES],
        "advice": "random",
        **extra,
    }
    path.write_text(json.dumps(document))
    request = RunRequest(path, folder / "out", None, None, False)
    run_campaign(request, Console(stderr=True))
    (cell,) = read_results(folder / "out").cells
    return cell


def test_this_is_cgroup_v2() -> None:
    support = detect(Roots())
    assert (support.memory, support.io, support.manager) == ("v2", "v2", "cgroupfs")


def test_a_warm_up_charged_to_another_cgroup_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warm_from_here(pool: Pool, proc: Path) -> Eviction:
        eviction = evict_pool(pool, proc)
        for file in pool.files():
            (pool.root / file).read_bytes()
        return eviction

    monkeypatch.setattr(frame, "evict_pool", warm_from_here)
    cell = measure(tmp_path)
    assert cell.state == "rejected"
    assert any("belong to another scope" in reason for reason in cell.reasons), asdict(cell)


def test_a_wall_below_what_the_worker_needs_is_rejected(tmp_path: Path) -> None:
    cell = measure(tmp_path, capacities=[8_000_000], headroom=4096)
    assert cell.state == "rejected"
    assert any("cannot be reclaimed" in reason for reason in cell.reasons), cell.reasons


def test_every_v2_counter_of_a_cell_is_there(tmp_path: Path) -> None:
    cell = measure(tmp_path)
    assert (cell.state, cell.reasons) == ("kept", ())
    after = cell.passes["measured"].after["scope"]
    assert not [name for name, value in after.items() if value is None]
    assert set(after["pressure"]) == {"some_total_us", "full_total_us"}
    assert after["events"]["max"] > 0
    assert after["events"]["oom_kill"] == 0
    assert sum(after["io"].values()) >= cell.facts["distinct_bytes_per_pass"]
    limit_bytes = cell.enforced["limit_bytes"]
    assert limit_bytes - (1 << 20) < after["peak_bytes"] <= limit_bytes
    assert cell.enforced["swap_limit_bytes"] == 0
