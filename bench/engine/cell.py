# SPDX-License-Identifier: Apache-2.0
"""One cell of an engine's campaign: the engine decodes in a scope, or its routing is replayed.

The model's files are evicted and proven cold; the engine loads in one scope and touches its
buffers; the limit goes up and is read back; a warm-up and a measured request are decoded in that
process.  Around each decoding are snapshots: the prompt is computed between them, and in neither.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pagetier.analysis.counters import SECTOR_BYTES, delta
from pagetier.analysis.engine import MMAP_ARMS, REPLAY, output_sha256
from pagetier.analysis.nominal import tier_misses
from pagetier.analysis.results import Cell, Iteration
from pagetier.bench.cell import labels_of, run_cell
from pagetier.bench.cell_facts import budget_facts, effective_facts, plan_facts
from pagetier.bench.cells import CellSpec
from pagetier.bench.driver import Driver
from pagetier.bench.enforcing import charged, enforced, opened_scope
from pagetier.bench.engine.admission import merged
from pagetier.bench.engine.campaign import EngineOptions
from pagetier.bench.engine.cells import EngineCell, ModelBytes
from pagetier.bench.engine.llama import Loading, Sampling
from pagetier.bench.engine.reference import LOAD_TIMEOUT_S, Reference
from pagetier.bench.engine.worker import DecodeJob, write_decode_job
from pagetier.bench.frame import Evidence, Named, framed_cell
from pagetier.bench.replay import Told, Watcher, observed_pass
from pagetier.bench.shared import Bench, Observer
from pagetier.bench.snapshot import Snapshots
from pagetier.bench.tiering import Holding
from pagetier.capacity.base import Enforced
from pagetier.cgroups.scope import Scope
from pagetier.tiers.evict import resident_bytes
from pagetier.tiers.models.pool import MappedPool

__all__ = ["Decoding", "extents_by_file", "run_engine_cell", "yardstick"]

MODULE = "pagetier.bench.engine.worker"
# Under a wall a prompt of many tokens asks for most experts of each layer without a sign of life.
PROMPT_TIMEOUT_S, TOKEN_TIMEOUT_S = 3600.0, 600.0

# The engine holds its weights itself: nothing of them is asked of the page cache.
_HOLDING_ARMS = ("mlock", "no-mmap")

_RESULT_KEYS = ("start_ns", "user_ns", "system_ns", "prompt_ns", "drop_ns", "tokens")


@dataclass(frozen=True, slots=True, eq=False)
class Decoding:
    """What the cells of one prompt have in common; the plan of `bench` is the prompt's own."""

    bench: Bench
    pool: MappedPool
    model: ModelBytes
    options: EngineOptions
    sampling: Sampling
    reference: Reference


def run_engine_cell(
    decoding: Decoding, cell: EngineCell, position: int, observer: Observer
) -> Cell:
    """Measure and judge one cell; a cell that fails is returned as rejected with its reason."""
    if cell.arm == REPLAY:
        replayed = run_cell(decoding.bench, cell.base, position, observer)
        return replace(replayed, id=cell.id, spec=cell.stored())
    return _EngineRun(decoding, cell, observer).cell(position)


class _EngineRun:
    """The process of one cell, from its job to what it leaves as evidence."""

    def __init__(self, decoding: Decoding, cell: EngineCell, observer: Observer) -> None:
        self._decoding = decoding
        self._bench = decoding.bench
        self._cell = cell
        self._observer = observer
        # What the yardstick is simulated for; no engine locks its spine.
        self._yard = yardstick(cell, decoding.model)
        sizes, plan = decoding.pool.size_of_experts, self._bench.plan
        self._holding = Holding.of(self._yard, plan, sizes, self._bench.advice)
        self._demand = plan.demand_bytes(sizes).tolist()
        self._reads = np.diff(plan.read_start).tolist()
        self._evidence = Evidence(facts=self._facts())

    def cell(self, position: int) -> Cell:
        named = Named(self._cell.id, position, self._cell.stored())
        return framed_cell(
            self._bench, self._cell.base, named, self._evidence, self._measure, self._derive
        )

    def _facts(self) -> dict[str, Any]:
        bench, model = self._bench, self._decoding.model
        return {
            **plan_facts(bench.plan, self._yard, self._decoding.pool, self._holding, bench.prompt),
            "accepted_tokens": bench.accepted_tokens,
            "labels": labels_of(bench.warnings[self._cell.base.pool], self._cell.base),
            "engine": {
                "tokens": self._decoding.reference.tokens,
                "output_sha256": output_sha256(self._decoding.reference.tokens),
                "weights_bytes": model.weights,
                "experts_bytes": model.experts,
                "spine_bytes": model.spine,
            },
        }

    def _derive(self) -> None:
        measured = self._evidence.passes.get("measured")
        if measured is not None and self._cell.arm in MMAP_ARMS:
            self._evidence.facts |= effective_facts(
                self._bench.plan,
                self._yard,
                self._decoding.pool,
                self._holding,
                measured,
                self._evidence.facts["page_exact"],
                self._bench.prompt,
            )

    def _measure(self) -> None:
        evidence, bench = self._evidence, self._bench
        with (
            Snapshots(bench.roots, device=bench.device) as outside,
            self._job() as job_dir,
            opened_scope(bench) as scope,
        ):
            before = outside.take()
            with Driver(job_dir, scope, MODULE, "decoding") as worker:
                evidence.pids.add(worker.pid)
                ready = worker.wait_ready(LOAD_TIMEOUT_S)
                if scope is not None:
                    scope.attach(ready["pid"])
                self._note_ready(ready, _device_bytes(before, outside.take()))
                evidence.facts["pool_resident_before_bytes"] = resident_bytes(self._decoding.pool)
                with enforced(bench, self._cell.base, scope, self._inside_headroom()) as limit:
                    self._note_limit(limit.enforced, scope)
                    with Snapshots(
                        bench.roots, device=bench.device, scope=scope, worker_pid=ready["pid"]
                    ) as snapshots:
                        self._decode(worker, snapshots)
                    evidence.facts["problems"] = limit.problems()
                    evidence.facts["scope_alive"] = None if scope is None else scope.exists()
        evidence.facts["pool_resident_after_bytes"] = resident_bytes(self._decoding.pool)

    def _inside_headroom(self) -> int:
        """Weights that an automatic headroom would count as the program's own, beside C."""
        return self._decoding.model.weights if self._cell.arm == "no-mmap" else 0

    def _note_ready(self, ready: dict[str, Any], load_device_bytes: int | None) -> None:
        told = ("load_ns", "backend", "engine", "system_info", "locked_bytes")
        found = {"load_device_bytes": load_device_bytes, **{key: ready[key] for key in told}}
        self._evidence.facts["engine"] |= found

    def _note_limit(self, found: Enforced, scope: Scope | None) -> None:
        inside = self._inside_headroom()
        whole = charged(self._cell.base, found, inside)
        self._evidence.enforced = asdict(whole)
        self._evidence.facts["budget"] = {
            **budget_facts(self._holding, whole, inside),
            # Only an arm that locks its weights locks anything, and has a rule of its own.
            "locked_asked_bytes": None,
        }
        anon_bytes = None if scope is None else scope.memory().anon_bytes
        self._evidence.facts["engine"]["anon_bytes"] = anon_bytes

    def _decode(self, worker: Driver, snapshots: Snapshots) -> None:
        for name, passes in (("warm-up", 1), ("measured", 2)):
            misses = self._misses(passes)
            self._observer.start_pass(name)
            before = snapshots.take()
            worker.ask({"do": "prompt"}, "prompted", timeout_s=PROMPT_TIMEOUT_S)
            prompt_bytes = _device_bytes(before, snapshots.take())
            found = observed_pass(
                name, snapshots, self._observer, partial(_ask, worker), self._teller(misses)
            )
            result = {**found.result, "prompt_device_bytes": prompt_bytes}
            self._evidence.passes[name] = replace(found, result=result)

    def _misses(self, passes: int) -> list[int]:
        bench, holding = self._bench, self._holding
        sizes = self._decoding.pool.size_of_experts
        found = tier_misses(
            bench.plan, holding.held, holding.cache_bytes, sizes, passes, bench.prompt
        )
        counts: list[int] = found.by_iteration.tolist()
        return counts

    def _teller(self, misses: list[int]) -> Callable[[dict[str, Any]], Told]:
        """An iteration is a decoded token: its demand is that of the captured run."""

        def tell(event: dict[str, Any]) -> Told:
            columns = (event["end_ns"], event["wall_ns"], self._demand, self._reads, misses)
            rows = tuple(
                Iteration(number, end_ns, wall_ns, demand, reads, None, None, missed)
                for number, (end_ns, wall_ns, demand, reads, missed) in enumerate(
                    zip(*columns, strict=False)  # of another output there may be fewer tokens
                )
            )
            result = {key: event[key] for key in _RESULT_KEYS}
            held = self._cell.arm in _HOLDING_ARMS
            result["arena_bytes"] = sum(row.bytes for row in rows) if held else 0
            result["output_sha256"] = output_sha256(event["tokens"])
            return result, rows

        return tell

    @contextlib.contextmanager
    def _job(self) -> Iterator[Path]:
        options, arm = self._decoding.options, self._cell.arm
        loading = Loading(
            mmap=arm in MMAP_ARMS,
            mlock=arm == "mlock",
            threads=options.threads,
            context_tokens=options.context,
        )
        reference = self._decoding.reference
        job = DecodeJob(
            model=options.model,
            loading=loading,
            prompt=reference.prompt,
            count=len(reference.tokens) - 1,
            sampling=self._decoding.sampling,
            dropped=extents_by_file(self._decoding.pool) if arm == "no-admission" else {},
        )
        self._bench.job_dir.mkdir(exist_ok=True)
        write_decode_job(self._bench.job_dir, job)
        try:
            yield self._bench.job_dir
        finally:
            shutil.rmtree(self._bench.job_dir)


def _ask(worker: Driver, watch: Watcher) -> dict[str, Any]:
    return worker.ask({"do": "decode"}, "pass", watch, timeout_s=TOKEN_TIMEOUT_S)


def yardstick(cell: EngineCell, model: ModelBytes) -> CellSpec:
    """The cell whose simulated misses an engine's arm is held against: beside its spine in C."""
    tier = "drop-behind" if cell.arm == "no-admission" else "page-cache"
    return replace(cell.base, tier=tier, read="pread", spine_bytes=model.spine)


def extents_by_file(pool: MappedPool) -> dict[str, list[tuple[int, int]]]:
    """Where experts lie, those that touch as one."""
    table = pool.extent_table()
    found: dict[str, list[tuple[int, int]]] = {}
    for extent in table.extents:
        path = table.paths[int(extent["file"])]
        found.setdefault(path, []).append((int(extent["offset"]), int(extent["length"])))
    return {path: merged(extents) for path, extents in found.items()}


def _device_bytes(before: dict[str, Any], after: dict[str, Any]) -> int | None:
    sectors = delta(before, after, "device", "sectors_read")
    return None if sectors is None else sectors * SECTOR_BYTES
