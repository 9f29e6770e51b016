# SPDX-License-Identifier: Apache-2.0
"""One measured point: Algorithm 1 of the paper, and what makes it true.

Evict the pool and prove it cold; start a worker in one scope; enforce the capacity and read back
what the kernel enforces; warm-up pass and measured pass in that process, snapshots around each;
judge from evidence; restore everything on any exit.
"""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pagetier.analysis.audit import audit_stops
from pagetier.analysis.nominal import tier_misses
from pagetier.analysis.results import Cell
from pagetier.bench.auditing import audit_facts, insertions
from pagetier.bench.cell_facts import budget_facts, effective_facts, hint_facts, plan_facts
from pagetier.bench.cells import CellSpec
from pagetier.bench.device import Device
from pagetier.bench.driver import Driver
from pagetier.bench.enforcing import balloon_pids, charged, enforced, opened_scope
from pagetier.bench.frame import Evidence, Named, framed_cell
from pagetier.bench.readahead import safe_chunk_bytes
from pagetier.bench.replay import Replay
from pagetier.bench.shared import Bench, Observer
from pagetier.bench.snapshot import Snapshots
from pagetier.bench.tiering import Holding
from pagetier.bench.worker import TierJob, write_job, write_prompt
from pagetier.capacity.procstatus import read_status
from pagetier.tiers.evict import resident_bytes
from pagetier.tiers.expected import Expected, expected_content
from pagetier.tiers.kinds import TIERS
from pagetier.tiers.pool import Pool

__all__ = ["labels_of", "run_cell"]

# Warm-up compares the content of every n-th read; the measured pass is timed, so it compares none.
# That every read returned its bytes is checked in both.
VERIFY_EVERY = 64


def run_cell(bench: Bench, spec: CellSpec, position: int, observer: Observer) -> Cell:
    """Measure and judge one cell; a cell that fails is returned as rejected with its reason."""
    pool = bench.pools[spec.pool]
    holding = Holding.of(spec, bench.plan, pool.size_of_experts, bench.advice)
    evidence = Evidence(facts=_facts(bench, spec, pool, holding))
    expected = expected_content(pool, bench.plan.experts[::VERIFY_EVERY])  # reads: before evicting

    def measure() -> None:
        _measure(bench, spec, pool, holding, expected, evidence, observer)

    def derive() -> None:
        evidence.facts |= hint_facts(evidence.passes)
        if "measured" in evidence.passes:
            measured = evidence.passes["measured"]
            evidence.facts |= effective_facts(
                bench.plan,
                spec,
                pool,
                holding,
                measured,
                evidence.facts["page_exact"],
                bench.prompt,
            )
            evidence.facts |= audit_facts(bench.plan, spec, pool, holding, measured)

    named = Named(spec.id, position, {**asdict(spec), "layout": pool.layout})
    return framed_cell(bench, spec, named, evidence, measure, derive)


def _facts(bench: Bench, spec: CellSpec, pool: Pool, holding: Holding) -> dict[str, Any]:
    return {
        **plan_facts(bench.plan, spec, pool, holding, bench.prompt),
        "accepted_tokens": bench.accepted_tokens,
        "labels": [
            *labels_of(bench.warnings[spec.pool], spec),
            *(["audited: its times are void"] if bench.audit else []),
        ],
    }


def labels_of(warnings: list[dict[str, Any]], spec: CellSpec) -> list[str]:
    """The advice not met that may move a figure of this very cell."""
    telling = {
        # Without readahead nothing is read past an expert's end.
        "readahead against expert size": spec.advice != "random",
        # Evicting without pressure shows where nothing else evicts.
        "proactive reclaim": spec.mechanism == "none",
    }
    return [item["name"] for item in warnings if telling.get(item["name"], False)]


def _measure(
    bench: Bench,
    spec: CellSpec,
    pool: Pool,
    holding: Holding,
    expected: Expected,
    evidence: Evidence,
    observer: Observer,
) -> None:
    replays = _replays(bench, pool, holding, expected)
    with (
        _job(bench, spec, pool, holding, expected) as job_dir,
        opened_scope(bench) as scope,
        Driver(job_dir, scope) as worker,
    ):
        evidence.pids.add(worker.pid)
        ready = worker.wait_ready()
        if scope is not None:
            scope.attach(ready["pid"])
        evidence.facts["residency_method"] = ready["residency"]
        evidence.facts["kept_open_files"] = ready["kept_open_files"]
        locked_bytes = _note_held(bench, pool, ready, evidence)
        with enforced(bench, spec, scope, locked_bytes) as enforcement:
            whole = charged(spec, enforcement.enforced, locked_bytes)
            evidence.enforced = asdict(whole)
            evidence.facts["budget"] = budget_facts(holding, whole, locked_bytes)
            evidence.pids |= balloon_pids(enforcement)
            with Snapshots(
                bench.roots,
                device=bench.device,
                scope=scope,
                worker_pid=ready["pid"],
                balloon_pid=next(iter(balloon_pids(enforcement)), None),
            ) as snapshots:
                for replay in replays:
                    observer.start_pass(replay.name)
                    if bench.prompt is not None:
                        worker.read_prompt()
                    with _insertions(bench, spec, pool, replay, ready["pid"]) as traced:
                        found = replay.run(worker, snapshots, observer)
                    result = {**found.result, **({"insertions": traced} if traced else {})}
                    evidence.passes[replay.name] = replace(found, result=result)
            evidence.facts["pool_resident_after_bytes"] = resident_bytes(pool)
            evidence.facts["problems"] = enforcement.problems()
            evidence.facts["scope_alive"] = None if scope is None else scope.exists()


def _insertions(
    bench: Bench, spec: CellSpec, pool: Pool, replay: Replay, pid: int
) -> contextlib.AbstractContextManager[dict[str, Any]]:
    if not replay.audit:
        return contextlib.nullcontext({})
    return insertions(spec, pool, pid, bench.journal, bench.roots)


def _note_held(bench: Bench, pool: Pool, ready: dict[str, Any], evidence: Evidence) -> int | None:
    """What the worker holds before any limit: VmLck by the kernel, and what preloading left."""
    evidence.facts["preload"] = ready["preload"]
    # The pool was cold before: whatever the preload did not keep to itself is in the page cache.
    evidence.facts["pool_resident_before_bytes"] = resident_bytes(pool)
    status = read_status(bench.roots, ready["pid"])
    return None if status is None else status.vm_lck_bytes


def _replays(bench: Bench, pool: Pool, holding: Holding, expected: Expected) -> list[Replay]:
    """Warm-up, which checks and hashes content, and the measured pass, which does neither.

    Simulated before anything is started: a pause between the passes would be one of the cache.
    """
    plan, sizes = bench.plan, pool.size_of_experts
    stops = audit_stops(plan.num_iterations, holding.hints is not None) if bench.audit else ()
    replays = []
    for name, verify_every, passes, audit in (
        ("warm-up", VERIFY_EVERY, 1, ()),
        ("measured", 0, 2, stops),
    ):
        misses = tier_misses(plan, holding.held, holding.cache_bytes, sizes, passes, bench.prompt)
        counts = misses.by_iteration.tolist()
        replays.append(Replay(name, verify_every, expected.seed, counts, audit))
    return replays


@contextlib.contextmanager
def _job(
    bench: Bench, spec: CellSpec, pool: Pool, holding: Holding, expected: Expected
) -> Iterator[Path]:
    options = {
        "threads": spec.threads,
        "mode": TIERS[spec.tier].mode or spec.read,
        "barrier": spec.barrier,
        "advice": spec.advice,
    }
    tier = TierJob(
        arena=holding.held,
        spine_bytes=holding.budget.spine_bytes,
        hints=holding.hints,
        delivery=_delivery(spec, bench.device),
    )
    bench.job_dir.mkdir(exist_ok=True)
    write_job(bench.job_dir, bench.plan, pool.extent_table(), options, tier, expected.digests)
    if bench.prompt is not None:
        write_prompt(bench.job_dir, bench.prompt)
    try:
        yield bench.job_dir
    finally:
        shutil.rmtree(bench.job_dir)


def _delivery(spec: CellSpec, device: Device) -> dict[str, Any] | None:
    if spec.prefetch is None:
        return None
    chunk = spec.prefetch.chunk
    match chunk:
        case "whole":
            chunk_bytes = 0
        case int():
            chunk_bytes = chunk
        case _:
            chunk_bytes = safe_chunk_bytes(device.max_sectors_kb)
    return {"how": spec.prefetch.delivery, "chunk_bytes": chunk_bytes}
