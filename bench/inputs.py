# SPDX-License-Identifier: Apache-2.0
"""What a run works on: the campaign with its trace and plan, then its pools and their device.

Loading touches nothing on disk; pools are made only after a preflight has said that cells can run.
"""

import importlib.resources
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from pagetier.analysis.errors import InputError
from pagetier.analysis.generate import default_trace
from pagetier.analysis.plans import Plan, build_plan
from pagetier.analysis.simulators.budgets import ExpertBytes
from pagetier.analysis.traces import Trace, read_trace
from pagetier.bench.campaign import Campaign, PoolSource, TraceSource
from pagetier.bench.campaign_file import load_campaign
from pagetier.bench.cells import CellSpec, plan_cells
from pagetier.bench.device import Device, resolve
from pagetier.bench.progress import ByteProgress
from pagetier.bench.tiering import Advice, load_advice
from pagetier.cgroups.roots import Roots
from pagetier.tiers.create import create_pool
from pagetier.tiers.evict import require_unmapped
from pagetier.tiers.pool import Pool, open_pool

__all__ = [
    "Geometry",
    "Inputs",
    "RunRequest",
    "campaign_path",
    "device_of",
    "geometry_of",
    "load_inputs",
    "open_pools",
]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the command line asked for; None means the default."""

    campaign: Path | None
    output: Path | None
    trace: str | None
    pool: str | None
    resume: bool
    hint_chunk: str | None = None
    device: tuple[str, ...] = ()
    audit: bool = False


@dataclass(frozen=True, slots=True)
class Inputs:
    """A campaign with its trace read; no pool has been touched yet."""

    campaign: Campaign
    name: str
    trace: Trace
    plan: Plan
    cells: list[CellSpec]
    advice: Advice


def load_inputs(request: RunRequest) -> Inputs:
    """Read and validate campaign and trace; raises InputError before anything is made."""
    path = campaign_path(request)
    campaign = load_campaign(
        path, trace=request.trace, pool=request.pool, hint_chunk=request.hint_chunk
    )
    campaign = _with_options(campaign, request)
    trace = _trace_of(campaign.trace)
    name = "quick" if request.campaign is None else path.stem
    cells = plan_cells(campaign)
    return Inputs(campaign, name, trace, build_plan(trace), cells, load_advice(cells, trace))


def _with_options(campaign: Campaign, request: RunRequest) -> Campaign:
    """What the command line said about the disks and the audit is kept with the campaign."""
    named = {"device": list(request.device)} if request.device else {}
    audited = {"audit": True} if request.audit else {}
    return campaign.model_copy(update={**named, **audited})


def campaign_path(request: RunRequest) -> Path:
    """The campaign's file: named, kept with the results that are continued, or the built-in one."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Geometry:
    """Experts of a pool, and their size, or where they differ the size of each."""

    experts: int
    expert_bytes: ExpertBytes


def geometry_of(source: PoolSource) -> Geometry:
    """Of the pool that exists, else of the one that would be made."""
    made = source.create
    if made is not None and not Path(source.path).exists():
        return Geometry(made.layers * made.experts, made.expert_bytes)
    pool = open_pool(Path(source.path))
    return Geometry(pool.total_experts, pool.size_of_experts)


def open_pools(inputs: Inputs, roots: Roots, console: Console) -> dict[str, Pool]:
    """Every pool of the campaign by its path, made where it is not there yet.

    Raises InputError for a shape other than the trace's and for a pool that others have mapped:
    evicting it would hurt them, and it would not become cold.
    """
    sources = inputs.campaign.pool
    for source in sources:
        if source.create is not None:
            made = source.create
            _check_geometry(source.path, inputs.plan, made.layers, made.experts)
    pools = {source.path: _pool(source, inputs.plan, console) for source in sources}
    for pool in pools.values():
        require_unmapped(pool, roots.proc)
    return pools


def _pool(source: PoolSource, plan: Plan, console: Console) -> Pool:
    path = Path(source.path)
    if source.create is not None and not path.exists():
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


def device_of(pools: dict[str, Pool], roots: Roots, named: Sequence[str] = ()) -> Device:
    """The one device all pools lie on: its counters are the judge of every cell.

    `named` are the user's own words for its disks, where they cannot be found.
    """
    devices = [resolve(pool.root / pool.files()[0], roots, named) for pool in pools.values()]
    names = sorted({device.name for device in devices})
    if len(names) > 1:
        raise InputError(
            f"the pools lie on different devices ({', '.join(names)}); run one campaign each"
        )
    return devices[0]
