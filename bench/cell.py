# SPDX-License-Identifier: Apache-2.0
"""One measured point: Algorithm 1 of the paper, and what makes it true.

Evict the pool and prove it cold; start a worker in one scope; enforce the capacity and read back
what the kernel enforces; warm-up pass and measured pass in that process, snapshots around each;
judge from evidence; restore everything on any exit.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from pagetier.analysis.derive import Limits, effective_capacity, judge
from pagetier.analysis.lru import lru_misses
from pagetier.analysis.plans import Plan
from pagetier.analysis.results import Cell, Iteration, Pass, Sample
from pagetier.bench.cells import CellSpec
from pagetier.bench.device import Device
from pagetier.bench.driver import Driver, WorkerFailure
from pagetier.bench.estimate import capacity_experts
from pagetier.bench.journal import Journal
from pagetier.bench.kernel.kmsg import KernelLog, oom_kills, open_kernel_log
from pagetier.bench.snapshot import Snapshots
from pagetier.bench.timeline import Timeline
from pagetier.bench.worker import write_job
from pagetier.capacity.balloon import Balloon, BalloonEnforcement
from pagetier.capacity.base import Enforcement, Mechanism
from pagetier.capacity.boot import Boot
from pagetier.capacity.errors import CapacityError
from pagetier.capacity.mglru import MglruKnob
from pagetier.capacity.none import Unlimited
from pagetier.capacity.wall import Wall
from pagetier.cgroups.detect import Support
from pagetier.cgroups.errors import CgroupError
from pagetier.cgroups.roots import Roots
from pagetier.cgroups.scope import Scope, open_scope
from pagetier.tiers.evict import evict_pool
from pagetier.tiers.pool import Pool

__all__ = ["Bench", "Observer", "run_cell"]

# Warm-up compares the content of every n-th read; the measured pass is timed, so it compares none.
# That every read returned its bytes is checked in both.
VERIFY_EVERY = 64
# Readahead that was started and not waited for completes within this time of the last read.
SETTLE_S = 0.1


class Observer(Protocol):
    """Who is told how a cell is getting on."""

    def start_pass(self, name: str) -> None: ...

    def advance(self, event: dict[str, Any], device_bytes: int | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Bench:
    """What the cells of one campaign share."""

    roots: Roots
    support: Support
    device: Device
    pools: dict[str, Pool]
    plan: Plan
    accepted_tokens: int | None
    journal: Journal
    limits: Limits
    balloon_floor_bytes: int
    job_dir: Path
    warnings: dict[str, list[dict[str, Any]]]


@dataclass(slots=True)
class _Evidence:
    """What a cell has shown so far; a failure half way keeps the part before it."""

    pids: set[int] = field(default_factory=set)
    enforced: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    passes: dict[str, Pass] = field(default_factory=dict)


def run_cell(bench: Bench, spec: CellSpec, position: int, observer: Observer) -> Cell:
    """Measure and judge one cell; a cell that fails is returned as rejected with its reason."""
    started = _now()
    pool = bench.pools[spec.pool]
    evidence = _Evidence(facts=_plan_facts(bench, spec, pool))
    log = open_kernel_log()
    try:
        with _mglru(bench, spec, evidence):
            evidence.facts["eviction"] = asdict(evict_pool(pool, bench.roots.proc))
            _measure(bench, spec, pool, evidence, observer)
    except (WorkerFailure, CapacityError, CgroupError) as error:
        evidence.facts["failure"] = str(error)
    if log is not None:
        evidence.facts |= _log_facts(log, evidence.pids)
    if "measured" in evidence.passes:
        evidence.facts |= _effective_facts(bench, pool, evidence.passes["measured"])
    unjudged = Cell(
        id=spec.id,
        position=position,
        spec={**asdict(spec), "layout": pool.layout},
        state="rejected",
        reasons=(),
        labels=(),
        started=started,
        finished=_now(),
        enforced=evidence.enforced,
        facts=evidence.facts,
        passes=evidence.passes,
    )
    verdict = judge(unjudged, bench.limits)
    return replace(unjudged, state=verdict.state, reasons=verdict.reasons, labels=verdict.labels)


@contextlib.contextmanager
def _mglru(bench: Bench, spec: CellSpec, evidence: _Evidence) -> Iterator[None]:
    """The knob around a whole cell, with its mask before, during, and after the measured pass."""
    knob = MglruKnob(bench.roots)
    found = knob.show()
    facts = {"before": found.mask, "during": None, "after": None, "min_ttl_ms": found.min_ttl_ms}
    evidence.facts["mglru"] = facts
    with _noted(bench, spec, found.mask), knob.apply(spec.mglru) as during:
        facts["during"] = during.mask
        yield
        facts["after"] = knob.show().mask


def _noted(
    bench: Bench, spec: CellSpec, mask: int | None
) -> contextlib.AbstractContextManager[None]:
    if spec.mglru == "keep" or mask is None:
        return contextlib.nullcontext()
    return bench.journal.entry(kind="mglru", mask=mask)


def _log_facts(log: KernelLog, own_pids: set[int]) -> dict[str, Any]:
    """OOM kills of our own processes and of the whole host; other cgroups' are not ours.

    With records lost, an empty list is no proof: how many is noted beside it.
    """
    with log:
        kills = oom_kills(log.read())
        ours = [kill for kill in kills if kill.pid in own_pids or not kill.in_cgroup]
        return {"oom_kills": [kill.message for kill in ours], "kernel_log_lost": log.lost}


def _effective_facts(bench: Bench, pool: Pool, measured: Pass) -> dict[str, Any]:
    """Misses of an LRU as large as what the page cache really held, beside the nominal ones."""
    effective = effective_capacity(measured)
    if effective.bytes is None:
        return {}
    experts = effective.bytes // pool.expert_bytes
    return {"effective_misses": int(lru_misses(bench.plan, experts).sum())}


def _plan_facts(bench: Bench, spec: CellSpec, pool: Pool) -> dict[str, Any]:
    capacity = capacity_experts(bench.plan, spec.capacity_bytes, pool.expert_bytes)
    return {
        "expert_bytes": pool.expert_bytes,
        "reads_per_pass": bench.plan.num_reads,
        "demand_bytes_per_pass": bench.plan.num_reads * pool.expert_bytes,
        "distinct_bytes_per_pass": bench.plan.distinct_experts * pool.expert_bytes,
        "nominal_capacity_experts": capacity,
        "nominal_misses": int(lru_misses(bench.plan, capacity).sum()),
        "accepted_tokens": bench.accepted_tokens,
        "labels": _labels(bench.warnings[spec.pool], spec),
        "pool_sha256": pool.digest,
    }


def _labels(warnings: list[dict[str, Any]], spec: CellSpec) -> list[str]:
    """The advice not met that may move a figure of this very cell."""
    telling = {
        # Without readahead nothing is read past an expert's end.
        "readahead against expert size": spec.advice != "random",
        # Evicting without pressure shows where nothing else evicts.
        "proactive reclaim": spec.mechanism == "none",
    }
    return [item["name"] for item in warnings if telling.get(item["name"], False)]


def _measure(
    bench: Bench, spec: CellSpec, pool: Pool, evidence: _Evidence, observer: Observer
) -> None:
    experts = evidence.facts["nominal_capacity_experts"]
    nominal = {
        name: lru_misses(bench.plan, experts, passes).tolist()
        for passes, name in enumerate(("warm-up", "measured"), start=1)
    }
    options = {
        "threads": spec.threads,
        "mode": spec.read,
        "barrier": spec.barrier,
        "advice": spec.advice,
    }
    with (
        _job(bench, pool, options) as job_dir,
        _scope(bench) as scope,
        Driver(job_dir, scope) as worker,
    ):
        evidence.pids.add(worker.pid)
        ready = worker.wait_ready()
        if scope is not None:
            scope.attach(ready["pid"])
        evidence.facts["residency_method"] = ready["residency"]
        evidence.facts["kept_open_files"] = ready["kept_open_files"]
        with _enforced(bench, spec, scope) as enforcement:
            evidence.enforced = asdict(enforcement.enforced)
            evidence.pids |= _balloon_pids(enforcement)
            with Snapshots(
                bench.roots,
                device=bench.device,
                scope=scope,
                worker_pid=ready["pid"],
                balloon_pid=next(iter(_balloon_pids(enforcement)), None),
            ) as snapshots:
                for name, verify_every in (("warm-up", VERIFY_EVERY), ("measured", 0)):
                    observer.start_pass(name)
                    replay = _Replay(name, verify_every, pool.seed, nominal[name])
                    evidence.passes[name] = replay.run(worker, snapshots, observer)
            evidence.facts["problems"] = enforcement.problems()
            evidence.facts["scope_alive"] = None if scope is None else scope.exists()


@contextlib.contextmanager
def _job(bench: Bench, pool: Pool, options: dict[str, Any]) -> Iterator[Path]:
    bench.job_dir.mkdir(exist_ok=True)
    write_job(bench.job_dir, bench.plan, pool.extent_table(), options)
    try:
        yield bench.job_dir
    finally:
        shutil.rmtree(bench.job_dir)


@contextlib.contextmanager
def _scope(bench: Bench) -> Iterator[Scope | None]:
    """A scope of the cell's own, even without a limit: it tells the worker's pages apart."""
    if bench.support.base is None:  # the preflight has refused every mechanism that needs one
        yield None
        return
    scope = open_scope(bench.support, bench.journal.next_scope_name())
    with bench.journal.entry(kind="scope", paths=[str(path) for path in scope.directories()]):
        scope.create()
        try:
            yield scope
        finally:
            scope.remove()


@contextlib.contextmanager
def _enforced(bench: Bench, spec: CellSpec, scope: Scope | None) -> Iterator[Enforcement]:
    with _mechanism(bench, spec).enforce(spec.capacity_bytes, scope) as enforcement:
        if not isinstance(enforcement, BalloonEnforcement):
            yield enforcement
            return
        process = enforcement.process
        with bench.journal.entry(kind="balloon", pid=process.pid, start_ticks=process.start_ticks):
            yield enforcement


def _balloon_pids(enforcement: Enforcement) -> set[int]:
    return {enforcement.process.pid} if isinstance(enforcement, BalloonEnforcement) else set()


def _mechanism(bench: Bench, spec: CellSpec) -> Mechanism:
    match spec.mechanism:
        case "wall":
            return Wall(headroom=spec.headroom)
        case "balloon":
            return Balloon(
                bench.roots,
                floor_bytes=bench.balloon_floor_bytes,
                order=spec.balloon_order or "touch-lock",
                huge_pages=spec.balloon_huge_pages or "off",
            )
        case "boot":
            return Boot(bench.roots)
        case _:
            return Unlimited()


@dataclass(frozen=True, slots=True)
class _Replay:
    name: str
    verify_every: int
    content_seed: int
    nominal_misses: list[int]

    def run(self, worker: Driver, snapshots: Snapshots, observer: Observer) -> Pass:
        before = snapshots.take()
        with Timeline(snapshots.sample) as timeline:
            event = worker.replay(
                verify_every=self.verify_every,
                content_seed=self.content_seed,
                on_progress=self._watcher(before, timeline, observer),
            )
            samples = timeline.stop()
        time.sleep(SETTLE_S)
        return Pass(
            name=self.name,
            before=before,
            after=snapshots.take(),
            result={
                "missed_ticks": timeline.missed_ticks,
                **{key: event[key] for key in _RESULT_KEYS},
            },
            iterations=_iterations(event, self.nominal_misses),
            samples=tuple(Sample(sample["at_ns"], sample) for sample in samples),
        )

    def _watcher(
        self, before: dict[str, Any], timeline: Timeline, observer: Observer
    ) -> Callable[[dict[str, Any]], None]:
        def watch(event: dict[str, Any]) -> None:
            observer.advance(event, _device_bytes(before, timeline.latest()))

        return watch


_RESULT_KEYS = ("start_ns", "user_ns", "system_ns", "verified_reads", "latency_histogram")


def _device_bytes(before: dict[str, Any], now: dict[str, Any] | None) -> int | None:
    if now is None or now["device"] is None or before["device"] is None:
        return None
    sectors: int = now["device"]["sectors_read"] - before["device"]["sectors_read"]
    return sectors * 512


def _iterations(event: dict[str, Any], nominal_misses: list[int]) -> tuple[Iteration, ...]:
    count = len(nominal_misses)
    columns = [
        event[key] if event[key] is not None else [None] * count
        for key in ("end_ns", "wall_ns", "bytes", "reads", "first_bytes", "repeat_bytes")
    ]
    rows = zip(range(count), *columns, nominal_misses, strict=True)
    return tuple(Iteration(*row) for row in rows)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
