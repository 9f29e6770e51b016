# SPDX-License-Identifier: Apache-2.0
"""What a tier holds and hints before anything starts, and which cells are refused."""

from pathlib import Path

import numpy as np
import pytest

from pagetier.analysis.generate import default_trace
from pagetier.analysis.plans import build_plan
from pagetier.bench.campaign_file import load_campaign
from pagetier.bench.cells import CellSpec, plan_cells
from pagetier.bench.estimate import estimate
from pagetier.bench.inputs import RunRequest, geometry_of, load_inputs
from pagetier.bench.tiering import Holding, load_advice, refusal

TRACE = default_trace(layers=2, experts=16, top_k=4, iterations=10, seed=3)
PLAN = build_plan(TRACE)
EXPERT_BYTES = 10_000
C = 800_000


def cells(tmp_path: Path, more: str) -> list[CellSpec]:
    path = tmp_path / "c.yaml"
    path.write_text(
        "trace: {generate: {layers: 2, experts: 16, top_k: 4, iterations: 10, seed: 3}}\n"
        f"pool: {{path: {tmp_path}/p, create: {{layers: 2, experts: 16, expert_bytes: 10000}}}}\n"
        f"threads: 2\n{more}"
    )
    return plan_cells(load_campaign(path))


def cell(tmp_path: Path, tier: str, more: str = "") -> CellSpec:
    (one,) = cells(tmp_path, f"mechanisms: [wall]\ncapacities: [{C // 4}]\ntiers: [{tier}]\n{more}")
    return one


def holding(spec: CellSpec) -> Holding:
    return Holding.of(spec, PLAN, EXPERT_BYTES, load_advice([spec], TRACE))


def test_an_arena_holds_the_most_frequent_experts(tmp_path: Path) -> None:
    held = holding(cell(tmp_path, "arena")).held
    counts = np.bincount(PLAN.experts, minlength=32)
    assert len(held) == (C // 4 - 2 * 2 * 12288) // 10_048 == 15
    assert min(counts[held]) >= max(np.delete(counts, held))


def test_the_page_cache_has_the_rest(tmp_path: Path) -> None:
    page_cache = holding(cell(tmp_path, "page-cache", "spine: 40000\n"))
    assert len(page_cache.held) == 0
    assert page_cache.cache_experts == (C // 4 - 40960) // EXPERT_BYTES
    assert holding(cell(tmp_path, "direct")).cache_experts == 0
    half = holding(cell(tmp_path, "hybrid"))
    assert half.cache_experts == (C // 4 - half.budget.arena_bytes) // EXPERT_BYTES
    assert half.arena_reads(PLAN) == np.isin(PLAN.experts, half.held).sum() > 0


def test_what_the_arena_holds_is_not_hinted(tmp_path: Path) -> None:
    made = holding(cell(tmp_path, "hybrid", "prefetch: {plan: oracle}\n"))
    assert made.hints is not None
    assert not np.isin(made.hints.experts, made.held).any()
    assert made.hints.num_hints == (~np.isin(PLAN.experts[4:], made.held)).sum()


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("tiers: [direct]\nprefetch: {plan: oracle}\n", "each would be read twice"),
        ("tiers: [dontcache]\nprefetch: {plan: oracle}\n", "each would be read twice"),
        ("tiers: [direct]\nread: mmap\n", "bypasses the page cache, read: mmap maps it"),
        ("tiers: [drop-behind]\nread: populate\n", "read: populate maps it"),
        ("tiers: [arena]\nmechanisms: [none]\n", "no limit is none: name a C"),
        ("tiers: [arena]\nmechanisms: [boot]\n", "checked by MemAvailable"),
        ("tiers: [hybrid]\nspine: 790000\n", "spine of 791 kB and an arena would fill C = 800 kB"),
        ("tiers: [page-cache]\nspine: 900000\n", "would fill C = 800 kB"),
    ],
)
def test_what_would_not_measure_its_name_is_refused(tmp_path: Path, more: str, reason: str) -> None:
    mechanisms = "" if "mechanisms" in more else "mechanisms: [wall]\n"
    (one,) = cells(tmp_path, f"{mechanisms}capacities: [{C}]\n{more}")
    found = refusal(one, EXPERT_BYTES, 32)
    assert found is not None and reason.replace("kB", "KB") in found.replace("kB", "KB")


@pytest.mark.parametrize("tier", ["page-cache", "arena", "hybrid", "direct", "dontcache"])
def test_the_rest_is_not(tmp_path: Path, tier: str) -> None:
    assert refusal(cell(tmp_path, tier), EXPERT_BYTES, 32) is None


def test_a_dry_run_says_what_is_refused_and_how_good_the_plans_are(tmp_path: Path) -> None:
    cells(
        tmp_path,
        f"mechanisms: [wall]\ncapacities: [{C // 4}]\ntiers: [page-cache, arena, direct]\n"
        "prefetch: {plan: [none, degraded], recall: 0.5}\n",
    )
    request = RunRequest(tmp_path / "c.yaml", None, None, None, False)
    inputs = load_inputs(request)
    pools = {source.path: geometry_of(source) for source in inputs.campaign.pool}
    document = estimate(inputs, pools)
    assert len(document["cells"]) == 5
    (refused,) = document["refused"]
    assert refused["cell"].startswith("direct") and "read twice" in refused["reason"]
    degraded, baseline = document["prefetch"]
    assert (degraded["plan"], degraded["recall"]) == ("degraded", 0.5)
    assert (baseline["plan"], len(baseline["layers"])) == ("previous-token", 2)
    direct = next(row for row in document["cells"] if row["cell"].startswith("direct"))
    assert direct["device_bytes"] == direct["demand_bytes"] == 2 * 80 * EXPERT_BYTES
