# SPDX-License-Identifier: Apache-2.0
"""What a cell is told of a mapped pool: bytes where its experts differ in size, and its content."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from pagetier.analysis.errors import InputError
from pagetier.analysis.generate import default_trace
from pagetier.analysis.nominal import tier_misses
from pagetier.analysis.plans import build_plan
from pagetier.bench.campaign_file import load_campaign
from pagetier.bench.cell_facts import plan_facts
from pagetier.bench.cells import CellSpec, plan_cells
from pagetier.bench.doctor import doctor
from pagetier.bench.driver import Driver, WorkerFailure
from pagetier.bench.estimate import estimate
from pagetier.bench.inputs import RunRequest, geometry_of, load_inputs
from pagetier.bench.lab.campaign import campaign_for_guest
from pagetier.bench.preflight import examine
from pagetier.bench.probe import _plan
from pagetier.bench.tiering import Holding, load_advice
from pagetier.bench.worker import write_job
from pagetier.cgroups.roots import Roots
from pagetier.native.arena import region_bytes
from pagetier.tiers.create import create_pool
from pagetier.tiers.expected import expected_content
from pagetier.tiers.models.map import map_model
from pagetier.tiers.models.pool import MappedPool

SHAPE = {"layers": 2, "experts": 6, "top_k": 2, "iterations": 20, "seed": 3}
TRACE = default_trace(**SHAPE)
PLAN = build_plan(TRACE)
SMALL, LARGE = 3 * 2 * 640, 3 * 4 * 640  # float16 in the first layer, float32 in the second


@pytest.fixture
def pool(tmp_path: Path) -> MappedPool:
    """Two layers of six experts; those of the second are larger."""
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_block_count(2)
    writer.add_expert_count(6)
    writer.add_expert_used_count(2)
    random = np.random.default_rng(1)
    for layer, kind in enumerate((np.float16, np.float32)):
        for role, shape in (("gate", (6, 16, 40)), ("up", (6, 16, 40)), ("down", (6, 40, 16))):
            stack = random.random(shape).astype(kind)
            writer.add_tensor(f"blk.{layer}.ffn_{role}_exps.weight", stack)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return map_model(path, tmp_path / "pool")


def cells(folder: Path, capacity: int, more: str = "") -> list[CellSpec]:
    path = folder / "c.yaml"
    path.write_text(
        f"trace: {{generate: {json.dumps(SHAPE)}}}\npool: {folder}/pool\nthreads: 1\n"
        f"mechanisms: [wall]\ncapacities: [{capacity}]\n{more}"
    )
    return plan_cells(load_campaign(path))


def test_the_pool_has_two_sizes(pool: MappedPool) -> None:
    assert pool.expert_sizes.tolist() == [SMALL] * 6 + [LARGE] * 6
    assert pool.size_of_experts is not None
    assert np.array_equal(pool.size_of_experts, pool.expert_sizes)


def test_a_made_pool_has_one_size(tmp_path: Path) -> None:
    made = create_pool(tmp_path / "made", layers=2, experts=3, expert_bytes=777)
    assert made.size_of_experts == 777 and isinstance(made.size_of_experts, int)
    expected = expected_content(made, np.zeros(1, dtype=np.uint32))
    assert (expected.seed, expected.digests) == (made.seed, None)


def test_an_arena_takes_the_most_frequent_by_their_own_sizes(
    pool: MappedPool, tmp_path: Path
) -> None:
    (spec,) = cells(tmp_path, 60_000, "tiers: [hybrid]\narena: {table: oracle, fraction: 0.4}\n")
    made = Holding.of(spec, PLAN, pool.size_of_experts, load_advice([spec], TRACE))
    counts = np.bincount(PLAN.experts, minlength=12)
    ranked = np.lexsort((np.arange(12), -counts))
    assert 0 < len(made.held) < 12
    assert made.held.tolist() == ranked[: len(made.held)].tolist()
    assert made.budget.arena_bytes == region_bytes(pool.extent_table(), made.held)
    one_more = region_bytes(pool.extent_table(), ranked[: len(made.held) + 1])
    assert made.budget.arena_bytes - 4096 < 0.4 * 60_000 < one_more
    assert made.cache_bytes == 60_000 - made.budget.arena_bytes
    assert made.cache_experts is None


def test_facts_are_bytes_where_no_number_of_experts_stands_for_them(
    pool: MappedPool, tmp_path: Path
) -> None:
    (spec,) = cells(tmp_path, 30_000)
    made = Holding.of(spec, PLAN, pool.size_of_experts, load_advice([spec], TRACE))
    facts = plan_facts(PLAN, spec, pool, made)
    missed = tier_misses(PLAN, made.held, 30_000, pool.expert_sizes)
    assert 0 < missed.bytes < int(pool.expert_sizes[PLAN.experts].sum())
    assert facts["nominal_miss_bytes"] == missed.bytes
    assert facts["nominal_misses"] == missed.total
    assert (facts["expert_bytes"], facts["nominal_capacity_experts"]) == (None, None)
    assert (facts["largest_expert_bytes"], facts["pool_bytes"]) == (LARGE, 6 * (SMALL + LARGE))
    assert facts["demand_bytes_per_pass"] == pool.expert_sizes[PLAN.experts].sum()
    assert facts["distinct_bytes_per_pass"] == pool.expert_sizes[np.unique(PLAN.experts)].sum()


def test_facts_of_one_size_are_what_they_were(tmp_path: Path) -> None:
    made = create_pool(tmp_path / "pool", layers=2, experts=6, expert_bytes=10_000)
    (spec,) = cells(tmp_path, 80_000)
    holding = Holding.of(spec, PLAN, made.size_of_experts, load_advice([spec], TRACE))
    facts = plan_facts(PLAN, spec, made, holding)
    assert facts["expert_bytes"] == 10_000
    assert facts["nominal_capacity_experts"] == 8
    assert facts.keys().isdisjoint({"nominal_miss_bytes", "largest_expert_bytes", "pool_bytes"})
    json.dumps(facts)


def test_an_estimate_adds_up_their_bytes(pool: MappedPool, tmp_path: Path) -> None:
    cells(tmp_path, 40_000, "tiers: [page-cache, direct, hybrid]\n")
    inputs = load_inputs(RunRequest(tmp_path / "c.yaml", None, None, None, False))
    pools = {source.path: geometry_of(source) for source in inputs.campaign.pool}
    found = estimate(inputs, pools)
    rows = {row["cell"].split(",")[0].split(" ")[0]: row for row in found["cells"]}
    assert found["refused"] == []
    demand = 2 * int(pool.expert_sizes[PLAN.experts].sum())
    assert {row["demand_bytes"] for row in rows.values()} == {demand}
    assert rows["direct"]["device_bytes"] == demand
    assert 0 < rows["page-cache"]["device_bytes"] < demand
    json.dumps(list(rows.values()))


def test_a_preflight_takes_them(pool: MappedPool, tmp_path: Path) -> None:
    """Told from the cells, whatever this host can enforce: none is refused for its sizes."""
    path = tmp_path / "c.yaml"
    path.write_text(
        f"trace: {{generate: {json.dumps(SHAPE)}}}\npool: {pool.root}\nmechanisms: [none]\n"
    )
    campaign = load_campaign(path)
    found = examine(plan_cells(campaign), campaign.pool, 0, Roots())
    assert len(found.runnable) == 1


def replayed(folder: Path, pool: MappedPool, digests: Any) -> dict[str, Any]:
    options = {"threads": 2, "mode": "pread", "barrier": "record", "advice": "default"}
    folder.mkdir()
    write_job(folder, PLAN, pool.extent_table(), options, digests=digests)
    with Driver(folder, scope=None) as worker:
        worker.wait_ready()
        return worker.replay(verify_every=4, content_seed=0, on_progress=lambda _: None)


def test_a_worker_compares_with_the_digests_of_what_was_read(
    pool: MappedPool, tmp_path: Path
) -> None:
    """Of the reads that are compared alone: another expert's digest is not asked for."""
    expected = expected_content(pool, PLAN.experts[::4])
    assert expected.digests is not None
    assert replayed(tmp_path / "good", pool, expected.digests)["verified_reads"] == 20
    wrong = expected.digests.copy()
    wrong[PLAN.experts[8]] += np.uint64(1)
    with pytest.raises(WorkerFailure, match="content is not what the pool was filled with"):
        replayed(tmp_path / "bad", pool, wrong)


def test_a_probe_reads_as_many_as_its_sample_holds(pool: MappedPool) -> None:
    counts = [len(_plan(pool, size).experts) for size in (1, SMALL, 6 * SMALL + LARGE, 1 << 40)]
    assert counts == [1, 1, 7, 12]


def test_a_doctor_looks_at_one_read_and_keeps_the_weights(pool: MappedPool) -> None:
    items = {item["name"]: item for item in doctor(Roots(), pool)["requirements"]}
    over_read = items["readahead against expert size"]
    assert f"layout mapped, extents of {4 * 640} bytes" in over_read["found"]
    assert "`advice: random`" in over_read["remedy"]
    assert "one file per expert" not in over_read["remedy"]
    assert "map the model again" in items["pool"]["remedy"]


def test_a_guest_has_no_model(pool: MappedPool, tmp_path: Path) -> None:
    cells(tmp_path, 120_000)
    with pytest.raises(InputError, match="a model on this host, which a guest has not"):
        campaign_for_guest(load_campaign(tmp_path / "c.yaml"))
