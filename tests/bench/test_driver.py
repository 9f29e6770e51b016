# SPDX-License-Identifier: Apache-2.0
"""Worker and driver over their pipe, without a scope: passes, failures, and nothing left behind."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pagetier.analysis.generate import default_trace
from pagetier.analysis.plans import Plan, build_plan
from pagetier.bench import driver
from pagetier.bench.driver import Driver, WorkerFailure
from pagetier.bench.worker import write_job
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
