# SPDX-License-Identifier: Apache-2.0
"""Worker and driver over their pipe, without a scope: passes, failures, and nothing left behind."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagetier.analysis.generate import default_trace
from pagetier.analysis.hints import HintPlan
from pagetier.analysis.plans import Plan, build_plan
from pagetier.bench import driver
from pagetier.bench.driver import Driver, WorkerFailure
from pagetier.bench.worker import TierJob, write_job
from pagetier.capacity.procstatus import read_status
from pagetier.cgroups.roots import Roots
from pagetier.tiers.budget import arena_region
from pagetier.tiers.create import create_pool
from pagetier.tiers.pool import Pool

OPTIONS = {"threads": 2, "mode": "pread", "barrier": "record", "advice": "default"}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    return create_pool(
        tmp_path_factory.mktemp("p") / "pool", layers=2, experts=4, expert_bytes=70_001, seed=9
    )


@pytest.fixture
def plan() -> Plan:
    return build_plan(default_trace(layers=2, experts=4, top_k=2, iterations=50, seed=1))


@pytest.fixture
def worker(tmp_path: Path, pool: Pool, plan: Plan) -> Iterator[Driver]:
    write_job(tmp_path, plan, pool.extent_table(), OPTIONS)
    with Driver(tmp_path, scope=None) as started:
        yield started


def ignore(_: dict[str, Any]) -> None:
    """Progress nobody looks at."""


def replay(worker: Driver, verify_every: int = 0, seed: int = 9) -> dict[str, Any]:
    return worker.replay(verify_every=verify_every, content_seed=seed, on_progress=ignore)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_passes_account_for_every_read(worker: Driver, plan: Plan) -> None:
    ready = worker.wait_ready()
    assert ready["pid"] == worker.pid
    warm_up, measured = replay(worker, verify_every=3), replay(worker)
    for event in (warm_up, measured):
        assert sum(event["reads"]) == plan.num_reads == 200
        assert event["bytes"] == plan.demand_bytes(70_001).tolist()
        assert sum(count for _, count in event["latency_histogram"]) == 200
        assert sorted(event["end_ns"]) == event["end_ns"]
    assert warm_up["verified_reads"] == 67  # reads 0, 3, ... 198
    assert measured["verified_reads"] == 0
    assert measured["start_ns"] >= warm_up["end_ns"][-1]


def test_wrong_content_is_a_failure_that_names_the_file(worker: Driver) -> None:
    worker.wait_ready()
    with pytest.raises(WorkerFailure, match=r"replay failed: .*not what the pool was filled with"):
        replay(worker, verify_every=1, seed=8)


def test_a_killed_worker_is_reported_as_killed(worker: Driver) -> None:
    worker.wait_ready()
    os.kill(worker.pid, signal.SIGKILL)
    time.sleep(0.1)
    with pytest.raises(WorkerFailure, match=r"killed \(SIGKILL\): out of memory"):
        replay(worker)


def test_a_stalled_worker_is_ended(worker: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "STALL_TIMEOUT_S", 0.3)
    worker.wait_ready()
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(WorkerFailure, match="completed no read for 0 s; it was ended"):
        replay(worker)


def test_a_missing_expert_file_names_its_path(tmp_path: Path, pool: Pool, plan: Plan) -> None:
    table = pool.extent_table()
    broken = type(table)(
        ("/absent/expert.bin", *table.paths[1:]), table.extents, table.expert_start
    )
    write_job(tmp_path, plan, broken, OPTIONS)
    with (
        Driver(tmp_path, scope=None) as started,
        pytest.raises(WorkerFailure, match=r"No such file or directory.*/absent/expert\.bin"),
    ):
        started.wait_ready()


@pytest.mark.parametrize("stopped", [False, True])
def test_leaving_ends_the_worker(tmp_path: Path, pool: Pool, plan: Plan, stopped: bool) -> None:
    write_job(tmp_path, plan, pool.extent_table(), OPTIONS)
    with Driver(tmp_path, scope=None) as started:
        started.wait_ready()
        if stopped:
            os.kill(started.pid, signal.SIGSTOP)
    assert gone(started.pid)


def test_the_message_of_a_crash_is_its_last_line(tmp_path: Path) -> None:
    with (
        Driver(tmp_path, scope=None) as started,
        pytest.raises(WorkerFailure, match=r"ended with status 1: FileNotFoundError.*job\.json"),
    ):
        started.wait_ready()


def test_a_tier_is_locked_loaded_and_hinted(tmp_path: Path, pool: Pool, plan: Plan) -> None:
    """The page is the unit of what is locked: 8 KiB of spine, four experts in 64-byte slots."""
    held = np.array([7, 2, 0, 5], dtype=np.uint32)
    hints = HintPlan.for_records(plan.experts[2:], np.repeat(np.arange(1, 100), 2), 100)
    hints = hints.keep(~np.isin(hints.experts, held))
    tier = TierJob(held, 8192, hints, {"how": "advice", "chunk_bytes": 0})
    write_job(tmp_path, plan, pool.extent_table(), OPTIONS, tier)
    with Driver(tmp_path, scope=None) as started:
        ready = started.wait_ready()
        locked = 8192 + arena_region(4, 70_001)
        assert ready["locked_bytes"] == locked
        status = read_status(Roots(), started.pid)
        assert status is not None and status.vm_lck_bytes == locked
        preload = ready["preload"]
        assert (preload["bytes"], preload["admitted_bytes"]) == (4 * 70_001, 0)
        event = started.replay(
            verify_every=1, content_seed=9, hash_content=True, on_progress=ignore
        )
    assert event["arena_reads"] == int(np.isin(plan.experts, held).sum())
    assert event["arena_bytes"] == event["arena_reads"] * 70_001
    assert event["hints"]["submitted"] == len(np.unique(hints.target))
    assert event["hints"]["failed"] == 0 and event["hints"]["first_failure"] is None
    assert len(event["content_hash"]) == 16


def test_what_cannot_be_locked_says_why_before_anything_is_read(
    tmp_path: Path, pool: Pool, plan: Plan
) -> None:
    """More than an address space holds: the mapping fails, and the worker is gone."""
    tier = TierJob(spine_bytes=1 << 50)
    write_job(tmp_path, plan, pool.extent_table(), OPTIONS, tier)
    with (
        Driver(tmp_path, scope=None) as started,
        pytest.raises(
            WorkerFailure,
            match=r"Cannot allocate memory \(mmap of a spine of 1125899906842624 bytes\): RLIMIT",
        ),
    ):
        started.wait_ready()
    assert gone(started.pid)
