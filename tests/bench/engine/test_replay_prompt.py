# SPDX-License-Identifier: Apache-2.0
"""A replay with a prompt: read before a pass, and counted in none of it."""

from pathlib import Path

import numpy as np
import pytest

from pagetier.analysis.generate import default_trace
from pagetier.analysis.plans import Plan, build_plan
from pagetier.bench.driver import Driver
from pagetier.bench.worker import write_job, write_prompt
from pagetier.cgroups.roots import Roots
from pagetier.tiers.create import create_pool
from pagetier.tiers.evict import evict_pool
from tests.conftest import require

LAYERS, EXPERTS, EXPERT_BYTES = 2, 6, 8192
PLAN = build_plan(default_trace(layers=LAYERS, experts=EXPERTS, top_k=2, iterations=5, seed=1))
EVERYTHING = Plan(
    experts=np.arange(LAYERS * EXPERTS, dtype=np.uint32),
    record_start=np.array([0, EXPERTS, LAYERS * EXPERTS], dtype=np.uint64),
    iteration_start=np.array([0, 2], dtype=np.uint64),
    num_layers=LAYERS,
    num_experts=EXPERTS,
)


@pytest.mark.parametrize("prompted", [True, False])
def test_what_the_prompt_read_is_there_and_is_not_counted(tmp_path: Path, prompted: bool) -> None:
    pool = create_pool(tmp_path / "pool", layers=LAYERS, experts=EXPERTS, expert_bytes=EXPERT_BYTES)
    job = tmp_path / "job"
    job.mkdir()
    options = {"threads": 1, "mode": "pread", "barrier": "record", "advice": "random"}
    write_job(job, PLAN, pool.extent_table(), options)
    write_prompt(job, EVERYTHING)
    require(evict_pool(pool, Roots().proc).proven, f"{tmp_path} lies in memory, or is in use")
    with Driver(job, scope=None) as worker:
        worker.wait_ready()
        if prompted:
            worker.read_prompt()
        event = worker.replay(verify_every=1, content_seed=pool.seed, on_progress=lambda _: None)
    assert sum(event["reads"]) == PLAN.num_reads
    brought = sum(event["first_bytes"]) + sum(event["repeat_bytes"])
    assert brought == (0 if prompted else PLAN.distinct_experts * EXPERT_BYTES)
