# SPDX-License-Identifier: Apache-2.0
"""A campaign from its YAML to its results directory: `pagetier run`.

Everything is validated before the first byte is written.  Each finished cell is durable at once, so
a run that was killed continues with ``--resume`` where it stopped.
"""

import contextlib
import importlib.metadata
import importlib.resources
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import yaml
from rich.console import Console

from pagetier.analysis.derive import Limits
from pagetier.analysis.errors import CapabilityError, InputError
from pagetier.analysis.files import replace_file
from pagetier.analysis.generate import default_trace
from pagetier.analysis.plans import Plan, build_plan
from pagetier.analysis.results import Cell, read_meta
from pagetier.analysis.traces import Trace, read_trace, trace_info
from pagetier.bench.campaign import (
    Campaign,
    CellSpec,
    PoolSource,
    TraceSource,
    load_campaign,
    plan_cells,
)
from pagetier.bench.cell import Bench, run_cell
from pagetier.bench.device import Device, resolve
from pagetier.bench.doctor import doctor, requirements_for, warnings_of
from pagetier.bench.estimate import estimate
from pagetier.bench.host import host_facts
from pagetier.bench.journal import Journal, only_one, recover, state_dir
from pagetier.bench.progress import ByteProgress, CampaignProgress
from pagetier.bench.requirements import PoolFindings
from pagetier.bench.store import Store
from pagetier.cgroups.detect import detect
from pagetier.cgroups.roots import Roots
from pagetier.tiers.create import create_pool
from pagetier.tiers.pool import Pool, open_pool

__all__ = ["RunRequest", "dry_run", "run_campaign"]

# Facts that must not change between the cells of one results directory.
CONSTANT_FACTS = ("kernel", "machine", "page_bytes", "mem_total_bytes", "cgroup_memory", "device")


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the command line asked for; None means the default."""

    campaign: Path | None
    output: Path | None
    trace: str | None
    pool: str | None
    resume: bool


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A campaign with its trace read; no pool has been touched yet."""

    campaign: Campaign
    name: str
    trace: Trace
    plan: Plan
    cells: list[CellSpec]


def _load(request: RunRequest) -> _Loaded:
    path = _campaign_path(request)
    campaign = load_campaign(path, trace=request.trace, pool=request.pool)
    trace = _trace_of(campaign.trace)
    name = "quick" if request.campaign is None else path.stem
    return _Loaded(campaign, name, trace, build_plan(trace), plan_cells(campaign))


def _campaign_path(request: RunRequest) -> Path:
    if request.campaign is not None:
        return request.campaign
    if not request.resume:
        return Path(str(importlib.resources.files("pagetier.bench") / "quick.yaml"))
    if request.output is None:
        raise InputError("--resume continues a results directory; name it with -o DIR")
    return request.output / "campaign.yaml"


def _trace_of(source: TraceSource) -> Trace:
    if source.generate is not None:
        return default_trace(**source.generate.model_dump())
    assert source.path is not None
    trace = read_trace(Path(source.path))
    return trace if source.steps is None else trace.first_steps(source.steps)


def dry_run(request: RunRequest) -> dict[str, Any]:
    """The cells in their order and an estimate of bytes and time; touches nothing."""
    loaded = _load(request)
    sizes = {source.path: _expert_bytes(source.path, loaded) for source in loaded.campaign.pool}
    return estimate(loaded.plan, loaded.cells, sizes)


def _expert_bytes(path: str, loaded: _Loaded) -> int:
    """Of a pool that exists, else of the geometry that would be made."""
    source = next(pool for pool in loaded.campaign.pool if pool.path == path)
    if source.create is not None and not Path(path).exists():
        return source.create.expert_bytes
    return open_pool(Path(path)).expert_bytes


def run_campaign(request: RunRequest, console: Console) -> tuple[Path, bool]:
    """Measure what is not measured yet; returns the results directory and whether it was cut short.

    Raises InputError and CapabilityError before anything is made.
    """
    loaded = _load(request)
    directory = _directory(request, loaded)
    roots = Roots()
    with only_one(state_dir()):
        for line in recover(state_dir(), roots):
            console.print(line, highlight=False)
        plan = _preflight(loaded, roots)
        pools = {
            source.path: _pool(source, loaded.plan, console) for source in loaded.campaign.pool
        }
        device = _device(pools, roots)
        meta = _meta(loaded, pools, device, roots, plan.not_run)
        with (
            _open_store(directory, request.resume, meta) as store,
            _log(directory) as log,
            Journal(state_dir(), roots) as journal,
        ):
            if not (directory / "campaign.yaml").exists():
                document = yaml.safe_dump(loaded.campaign.model_dump(), sort_keys=False)
                replace_file(directory / "campaign.yaml", document.encode())
            bench = Bench(
                roots=roots,
                support=detect(roots),
                device=device,
                pools=pools,
                plan=loaded.plan,
                accepted_tokens=trace_info(loaded.trace)["accepted_tokens"],
                journal=journal,
                limits=Limits(**loaded.campaign.limits.model_dump()),
                balloon=loaded.campaign.balloon,
                job_dir=directory / "job",
                warnings={
                    path: [item["name"] for item in items] for path, items in plan.warnings.items()
                },
            )
            progress = CampaignProgress(
                console, len(plan.runnable), loaded.plan.num_iterations, log
            )
            for note in plan.notes():
                progress.say(f"note: {note}")
            for reason in plan.not_run:
                progress.say(f"not run: {reason['cell']}: {reason['reason']}")
            return directory, _run_cells(bench, store, plan.runnable, progress)


def _directory(request: RunRequest, loaded: _Loaded) -> Path:
    if request.output is not None:
        if (request.output / "results.db").exists() and not request.resume:
            raise InputError(
                f"{request.output}: holds results already; continue them with --resume or name "
                "another directory"
            )
        return request.output
    if request.resume:
        raise InputError("--resume continues a results directory; name it with -o DIR")
    return Path("pagetier-results") / f"{loaded.name}-{datetime.now():%Y%m%d-%H%M%S}"


def _pool(source: PoolSource, plan: Plan, console: Console) -> Pool:
    path = Path(source.path)
    if source.create is not None and not path.exists():
        _check_geometry(source.path, plan, source.create.layers, source.create.experts)
        path.parent.mkdir(parents=True, exist_ok=True)
        with ByteProgress(console, f"making {path}") as bar:
            create_pool(path, **source.create.model_dump(), on_progress=bar)
    pool = open_pool(path)
    _check_geometry(source.path, plan, pool.num_layers, pool.num_experts)
    return pool


def _check_geometry(path: str, plan: Plan, layers: int, experts: int) -> None:
    if (plan.num_layers, plan.num_experts) != (layers, experts):
        raise InputError(
            f"{path}: the pool has {layers} layers of {experts} experts, the trace "
            f"{plan.num_layers} of {plan.num_experts}; replay a trace on a pool of its own shape"
        )


def _device(pools: dict[str, Pool], roots: Roots) -> Device:
    """The one device all pools lie on: its counters are the judge of every cell."""
    devices = [resolve(pool.root / pool.files()[0], roots) for pool in pools.values()]
    names = sorted({device.name for device in devices})
    if len(names) > 1:
        raise InputError(
            f"the pools lie on different devices ({', '.join(names)}); run one campaign each"
        )
    return devices[0]


@dataclass(frozen=True, slots=True)
class _Preflight:
    """Which cells can run here, which cannot and why, and the advice not met, by pool."""

    runnable: list[CellSpec]
    not_run: list[dict[str, str]]
    warnings: dict[str, list[dict[str, Any]]]

    def notes(self) -> list[str]:
        """Every warning once, for people."""
        lines = {
            f"{item['name']}: {item['found']}" for items in self.warnings.values() for item in items
        }
        return sorted(lines)


def _preflight(loaded: _Loaded, roots: Roots) -> _Preflight:
    reports = {source.path: _examine(source, roots) for source in loaded.campaign.pool}
    runnable, not_run = [], []
    for cell in loaded.cells:
        failing = requirements_for(reports[cell.pool], cell.mechanism, cell.tier, cell.read)
        if not failing:
            runnable.append(cell)
            continue
        reason = "; ".join(f"{item['name']}: {item['found']}: {item['remedy']}" for item in failing)
        not_run.append({"cell": cell.describe(), "reason": reason})
    if not runnable:
        raise CapabilityError(f"no cell can run on this host: {not_run[0]['reason']}")
    warnings = {path: warnings_of(report) for path, report in reports.items()}
    return _Preflight(runnable, not_run, warnings)


def _examine(source: PoolSource, roots: Roots) -> dict[str, Any]:
    """The doctor's report on a pool that is there, or on the place and geometry of one to make."""
    path = Path(source.path)
    if path.exists() or source.create is None:
        return doctor(roots, open_pool(path))
    made = source.create
    experts = made.layers * made.experts
    planned = PoolFindings(
        files=experts if made.layout == "files" else 1,
        expert_bytes=made.expert_bytes,
        layout=made.layout,
        planned_bytes=experts * made.expert_bytes,
    )
    place = next(folder for folder in path.absolute().parents if folder.exists())
    return doctor(roots, where=place, planned=planned)


def _meta(
    loaded: _Loaded,
    pools: dict[str, Pool],
    device: Device,
    roots: Roots,
    not_run: list[dict[str, str]],
) -> dict[str, str]:
    host = host_facts(roots, device)
    return {
        "created": _now(),
        "pagetier_version": importlib.metadata.version("pagetier"),
        "name": loaded.name,
        "campaign": loaded.campaign.canonical_json(),
        "campaign_sha256": loaded.campaign.sha256,
        "trace": json.dumps(trace_info(loaded.trace)),
        "trace_sha256": loaded.trace.sha256 or loaded.plan.sha256,
        "plan_sha256": loaded.plan.sha256,
        "pools": json.dumps({path: pool.digest for path, pool in pools.items()}),
        "host": json.dumps(host),
        "not_run": json.dumps(not_run),
    }


def _open_store(directory: Path, resume: bool, meta: dict[str, str]) -> Store:
    if not resume or not (directory / "results.db").exists():
        return Store.create(directory, meta)
    before = read_meta(directory)
    for key in ("campaign_sha256", "plan_sha256", "pools", "pagetier_version"):
        if before[key] != meta[key]:
            raise InputError(
                f"{directory}: cannot resume: {key} was {before[key]} and is {meta[key]}; "
                "start a new results directory"
            )
    old, new = json.loads(before["host"]), json.loads(meta["host"])
    for fact in CONSTANT_FACTS:
        if old.get(fact) != new.get(fact):
            raise InputError(
                f"{directory}: cannot resume: the host's {fact} was {old.get(fact)} and is "
                f"{new.get(fact)}; cells of different hosts are not pooled"
            )
    return Store(directory)


def _run_cells(
    bench: Bench, store: Store, cells: list[CellSpec], progress: CampaignProgress
) -> bool:
    """True when Ctrl-C or SIGTERM cut the campaign short; finished cells are kept either way."""
    finished = store.finished_cells()
    with progress, _terminate_like_interrupt():
        for position, cell in enumerate(cells):
            progress.start_cell(position + 1, cell)
            if cell.id in finished:
                progress.end_cell("measured before")
                continue
            try:
                record = run_cell(bench, cell, position, progress)
            except KeyboardInterrupt:
                progress.say("interrupted: this cell is dropped, finished cells are kept")
                return True
            store.add_cell(record)
            progress.end_cell(_summary(record))
    return False


def _summary(cell: Cell) -> str:
    notes = "; ".join(cell.reasons or cell.labels)
    return f"{cell.state}: {notes}" if notes else cell.state


@contextlib.contextmanager
def _terminate_like_interrupt() -> Iterator[None]:
    """SIGTERM (a service manager, a batch system) cleans up as Ctrl-C does."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _log(directory: Path) -> "Iterator[Any]":
    with (directory / "log.txt").open("a", encoding="utf-8") as file:

        def write(message: str) -> None:
            file.write(f"{_now()} {message}\n")
            file.flush()

        write(f"pagetier {importlib.metadata.version('pagetier')}, pid {os.getpid()}")
        yield write


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
