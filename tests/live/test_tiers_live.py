# SPDX-License-Identifier: Apache-2.0
"""Tiers for real: the same bytes, exact arena hits, hints that arrive, and nothing left behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagetier.analysis.generate import default_trace
from pagetier.analysis.plans import build_plan
from pagetier.bench.device import resolve
from pagetier.bench.journal import state_dir
from pagetier.bench.kernel.text import read_count
from pagetier.capacity.procstatus import read_status
from pagetier.cgroups.detect import detect
from pagetier.cgroups.roots import Roots
from pagetier.tiers.evict import resident_bytes
from pagetier.tiers.mappings import find_holders
from pagetier.tiers.pool import open_pool

pytestmark = pytest.mark.live

SHAPE = {"layers": 8, "experts": 24, "top_k": 4}
TRACE = {**SHAPE, "iterations": 30, "seed": 3}
EXPERT_BYTES = 300_001
DEMAND_BYTES = 8 * 4 * EXPERT_BYTES
CAPACITY_BYTES = 30_000_000  # three iterations' demand, half of a 58 MB pool

Document = dict[str, Any]


def write_campaign(folder: Path, **extra: object) -> Path:
    document: Document = {
        "trace": {"generate": TRACE},
        "pool": {
            "path": str(folder / "pool"),
            "create": {"layers": 8, "experts": 24, "expert_bytes": EXPERT_BYTES},
        },
        "mechanisms": ["wall"],
        "capacities": [CAPACITY_BYTES],
        "advice": ["random"],
        "threads": 4,
        # Other readers of a shared disk may not decide over these tests.
        "limits": {"foreign_share": 1, "disagreement_share": 1},
        **extra,
    }
    path = folder / "c.yaml"
    path.write_text(json.dumps(document))  # JSON is YAML
    return path


def command(path: Path, results: Path) -> list[str]:
    program = [sys.executable, "-m", "pagetier.bench.cli", "run", str(path), "-o", str(results)]
    return [*program, "--json"]


def measure(folder: Path, **extra: object) -> list[Document]:
    """The cells of a campaign, all of them kept."""
    path = write_campaign(folder, **extra)
    done = subprocess.run(
        command(path, folder / f"out-{time.monotonic_ns()}"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cells: list[Document] = json.loads(done.stdout)["cells"]
    return cells


def test_every_tier_returns_the_same_bytes(live: None, tmp_path: Path) -> None:
    """A host without RWF_DONTCACHE leaves that tier out, with its reason, and loses no other."""
    cells = measure(
        tmp_path,
        tiers=["page-cache", "arena", "hybrid", "direct", "drop-behind", "dontcache"],
        spine=4_000_000,
        variations=[
            {"tiers": ["page-cache", "hybrid"], "read": how, "advice": "default"}
            for how in ("mmap", "populate")
        ],
    )
    tiers = Counter(cell["tier"] for cell in cells)
    assert tiers.keys() >= {"page-cache", "arena", "hybrid", "direct", "drop-behind"}
    assert (tiers["page-cache"], tiers["hybrid"]) == (3, 3)
    hashes = {cell["content_hash"] for cell in cells}
    assert len(hashes) == 1 and None not in hashes
    for cell in cells:
        budget = cell["budget"]
        assert budget["locked_read_bytes"] == budget["locked_asked_bytes"]
        # By the kernel's counts: what is locked and what the limit leaves is C, to the page.
        charged = budget["locked_read_bytes"] + budget["page_cache_read_bytes"]
        assert 0 <= charged - CAPACITY_BYTES < os.sysconf("SC_PAGE_SIZE")


def test_arena_hits_are_the_simulated_static_hits(live: None, tmp_path: Path) -> None:
    (cell,) = measure(tmp_path, tiers=["arena"])
    reads = Counter(build_plan(default_trace(**TRACE)).experts.tolist())
    held = cell["budget"]["arena_experts"]
    static_hits = sum(count for _, count in reads.most_common(held))
    assert cell["served"]["arena"] == static_hits / sum(reads.values())
    preload = cell["preload"]
    assert preload["bytes"] == held * EXPERT_BYTES
    assert (preload["way"], preload["admitted_bytes"]) == ("direct", 0)
    # Preloading lies outside of the measured interval: arena hits read nothing in it.
    assert cell["ledger"]["first"] + cell["ledger"]["repeat"] < DEMAND_BYTES * (
        1 - cell["served"]["arena"] + 0.01
    )


def test_the_page_cache_serves_nearly_what_an_lru_of_its_size_would(
    live: None, tmp_path: Path
) -> None:
    (cell,) = measure(tmp_path, tiers=["page-cache"])
    missed = cell["effective_miss_bytes_per_iteration"] / cell["demand_bytes_per_iteration"]
    assert CAPACITY_BYTES >= 2 * DEMAND_BYTES
    assert abs(cell["served_fraction"] - (1 - missed)) < 0.03


def test_tiers_that_admit_nothing_leave_nothing(live: None, tmp_path: Path) -> None:
    cells = measure(tmp_path, tiers=["direct", "drop-behind"])
    assert resident_bytes(open_pool(tmp_path / "pool")) == 0
    for cell in cells:
        assert cell["nominal_policy"] == "every read"
        assert cell["in_extent_amplification"] == pytest.approx(1, abs=0.02)  # pages are whole
        assert cell["served"]["missed"] == pytest.approx(1, abs=0.02)


BIG = 20_000_000  # larger than any readahead window and any request of a disk


def hinted(folder: Path, chunk: str) -> Document:
    (cell,) = measure(
        folder,
        trace={"generate": {"layers": 2, "experts": 3, "top_k": 1, "iterations": 30, "seed": 1}},
        pool={
            "path": str(folder / "pool"),
            "create": {"layers": 2, "experts": 3, "expert_bytes": BIG},
        },
        capacities=[100_000_000],  # of 120 MB: what is hinted is not evicted at once
        threads=1,
        read_ahead_kb=128,
        prefetch={"plan": "oracle", "chunk": chunk},
    )
    return cell


def test_chunked_hints_arrive_whole(live: None, tmp_path: Path) -> None:
    cell = hinted(tmp_path, "safe")
    assert cell["hints"]["submitted"] > 0 and cell["hints"]["failed"] == 0
    assert cell["hints"]["resident_share"] >= 0.99
    assert not [label for label in cell["labels"] if "hints cut" in label]
    assert cell["read_ahead_kb_read"] == 128


def test_a_hint_for_the_whole_extent_is_cut_and_the_report_says_so(
    live: None, tmp_path: Path
) -> None:
    cell = hinted(tmp_path, "whole")
    assert cell["hints"]["resident_share"] < 0.99
    assert [label for label in cell["labels"] if "hints cut at the readahead window" in label]


def window(folder: Path) -> Path:
    return resolve(folder, Roots()).read_ahead_path(Roots().sys)


def workers() -> set[int]:
    """Processes that replay for a harness, this host's all."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if b"pagetier.bench.worker" in path.read_bytes():
                found.add(int(path.parent.name))
    return found


def left_scopes() -> set[Path]:
    support = detect(Roots())
    bases = [base for base in (support.base, support.io_base) if base is not None]
    return {path for base in bases for path in base.glob("pagetier-*")}


@contextlib.contextmanager
def nothing_left(folder: Path) -> Any:
    """No worker, scope, window, mapping or journal of this harness is there afterwards."""
    before, scopes, before_kb = workers(), left_scopes(), read_count(window(folder))
    yield
    deadline = time.monotonic() + 2.0
    while workers() - before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert workers() <= before
    assert left_scopes() <= scopes
    assert read_count(window(folder)) == before_kb
    files = set()
    for file in (folder / "pool").rglob("*.bin"):
        status = file.stat()
        files.add((status.st_dev, status.st_ino))
    holders = find_holders(Path("/proc"), frozenset(files), frozenset())
    assert [holder for holder in holders.found if holder.pid != os.getpid()] == []


LONG: Document = {
    "trace": {"generate": {**TRACE, "iterations": 4000}},
    "tiers": ["hybrid"],
    "spine": 4_000_000,
    "read_ahead_kb": 128,
    "prefetch": {"plan": "oracle"},
}


def locked_bytes(harness: "subprocess.Popen[str]", before: set[int]) -> int:
    """Of the worker that this harness has started."""
    for pid in workers() - before:
        status = read_status(Roots(), pid)
        if status is not None and status.vm_lck_bytes is not None:
            return status.vm_lck_bytes
    return 0


@pytest.mark.parametrize(
    ("enough_locked_bytes", "then_s"),
    [
        pytest.param(0, 0.0, id="before the worker is up"),
        pytest.param(1, 0.0, id="spine and arena"),
        pytest.param(5_000_000, 0.5, id="preloaded, the wall goes up"),
        pytest.param(5_000_000, 5.0, id="warm-up pass"),
    ],
)
def test_an_interrupt_in_every_phase_leaves_nothing(
    live: None, tmp_path: Path, enough_locked_bytes: int, then_s: float
) -> None:
    measure(tmp_path)  # makes the pool
    path, before = write_campaign(tmp_path, **LONG), workers()
    with nothing_left(tmp_path):
        harness = subprocess.Popen(
            command(path, tmp_path / "out"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_until(lambda: "cell 1" in log_of(tmp_path / "out"), harness)
        wait_until(lambda: locked_bytes(harness, before) >= enough_locked_bytes, harness)
        time.sleep(then_s)
        harness.send_signal(signal.SIGINT)
        _, errors = harness.communicate(timeout=60)
        assert harness.returncode == 130, errors
    owners = [json.loads(entry.read_text())["owner"] for entry in state_dir().glob("*.json")]
    assert harness.pid not in [owner["pid"] for owner in owners]


def log_of(results: Path) -> str:
    log = results / "log.txt"
    return log.read_text() if log.exists() else ""


def wait_until(condition: Callable[[], bool], harness: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert harness.poll() is None, harness.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_kill_9_gives_the_window_back_at_the_next_start(live: None, tmp_path: Path) -> None:
    measure(tmp_path)
    before_kb = read_count(window(tmp_path))
    path = write_campaign(tmp_path, **{**LONG, "read_ahead_kb": 256})
    with nothing_left(tmp_path):
        harness = subprocess.Popen(
            command(path, tmp_path / "out"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_until(lambda: read_count(window(tmp_path)) == 256, harness)
        harness.kill()
        harness.communicate()
        assert read_count(window(tmp_path)) == 256
        measure(tmp_path)
        assert read_count(window(tmp_path)) == before_kb


def test_an_arena_that_would_fill_the_wall_is_refused_before_it_is_made(
    live: None, tmp_path: Path
) -> None:
    path = write_campaign(tmp_path, tiers=["arena"], spine=CAPACITY_BYTES)
    done = subprocess.run(
        command(path, tmp_path / "out"), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "would fill C = 30.0 MB" in done.stderr
    assert not (tmp_path / "pool").exists()


def test_a_static_table_may_come_from_a_file(live: None, tmp_path: Path) -> None:
    """The least frequent experts by the plan are the most frequent ones of this table."""
    plan = build_plan(default_trace(**TRACE))
    counts = np.bincount(plan.experts, minlength=8 * 24)
    rows = [f"{at // 24} {at % 24} {1000 - count}" for at, count in enumerate(counts)]
    (tmp_path / "x.coli_usage").write_text("\n".join(["-1 8 24", *rows]) + "\n")
    (cell,) = measure(
        tmp_path, tiers=["hybrid"], arena={"table": str(tmp_path / "x.coli_usage"), "fraction": 0.5}
    )
    held = cell["budget"]["arena_experts"]
    ranked = np.lexsort((np.arange(len(counts)), counts))[:held]
    assert cell["served"]["arena"] == int(counts[ranked].sum()) / plan.num_reads
