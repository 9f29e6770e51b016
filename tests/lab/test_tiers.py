# SPDX-License-Identifier: Apache-2.0
"""Tiers and hints at equal memory in a booted guest: cgroup v2, another kernel, bytes alone."""

import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from pagetier.analysis.generate import default_trace
from pagetier.analysis.plans import build_plan

pytestmark = pytest.mark.lab

TRACE = {"layers": 8, "experts": 32, "top_k": 4, "iterations": 30, "seed": 3}
EXPERT_BYTES = 300_001
DEMAND_BYTES = 8 * 4 * EXPERT_BYTES
CAPACITY_BYTES = 40_000_000  # four iterations' demand, half of a 77 MB pool


@pytest.fixture(scope="module")
def report(lab: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("tiers")
    campaign = {
        "trace": {"generate": TRACE},
        "pool": {
            "path": "tier-pool",
            "create": {"layers": 8, "experts": 32, "expert_bytes": EXPERT_BYTES},
        },
        "tiers": ["page-cache", "arena", "hybrid", "direct", "dontcache", "drop-behind"],
        "mechanisms": ["wall"],
        "capacities": [CAPACITY_BYTES],
        "advice": "random",
        "threads": 2,
        "spine": 4_000_000,
        "variations": [{"tiers": ["page-cache"], "prefetch": {"plan": "oracle"}}],
    }
    path = folder / "tiers.yaml"
    path.write_text(json.dumps(campaign))
    options = ("-o", str(folder / "out"), "--memory", "1 GiB", "--timeout", "300", "--json")
    program = (sys.executable, "-m", "pagetier.bench.cli", "lab", "run")
    done = subprocess.run(
        [*program, str(path), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    found: dict[str, Any] = run["report"]
    return found


def cell(report: dict[str, Any], tier: str, *, hinted: bool = False) -> dict[str, Any]:
    (found,) = [
        cell
        for cell in report["cells"]
        if cell["tier"] == tier and (cell["prefetch"] is not None) == hinted
    ]
    return dict(found)


def test_all_are_kept_and_return_the_same_bytes(report: dict[str, Any]) -> None:
    assert [item["reasons"] for item in report["cells"] if item["state"] != "kept"] == []
    # RWF_DONTCACHE came with 6.14: the guest's 6.12 leaves that tier out and runs all others.
    tiers = Counter(item["tier"] for item in report["cells"])
    assert tiers == {"page-cache": 2, "arena": 1, "hybrid": 1, "direct": 1, "drop-behind": 1}
    assert len({item["content_hash"] for item in report["cells"]}) == 1


def test_locked_and_left_are_the_budget(report: dict[str, Any]) -> None:
    for item in report["cells"]:
        budget = item["budget"]
        assert budget["locked_read_bytes"] == budget["locked_asked_bytes"] > 0
        charged = budget["locked_read_bytes"] + budget["page_cache_read_bytes"]
        assert 0 <= charged - CAPACITY_BYTES < os.sysconf("SC_PAGE_SIZE")


def test_arena_hits_are_the_static_ones(report: dict[str, Any]) -> None:
    reads = Counter(build_plan(default_trace(**TRACE)).experts.tolist())
    for tier in ("arena", "hybrid"):
        found = cell(report, tier)
        held = found["budget"]["arena_experts"]
        hits = sum(count for _, count in reads.most_common(held))
        assert found["served"]["arena"] == hits / sum(reads.values())
        assert found["preload"]["admitted_bytes"] == 0


def test_the_page_cache_serves_nearly_what_an_lru_of_its_size_would(
    report: dict[str, Any],
) -> None:
    found = cell(report, "page-cache")
    assert CAPACITY_BYTES - 4_000_000 >= 2 * DEMAND_BYTES
    missed = found["effective_miss_bytes_per_iteration"] / found["demand_bytes_per_iteration"]
    assert abs(found["served_fraction"] - (1 - missed)) < 0.03


def test_hints_are_given_and_none_fails(report: dict[str, Any]) -> None:
    hints = cell(report, "page-cache", hinted=True)["hints"]
    assert hints["submitted"] == 8 * 30 - 1
    assert hints["submitted"] == hints["overwritten"] + hints["completed"]
    assert hints["failed"] == 0
    assert hints["resident_share"] >= 0.99
