# SPDX-License-Identifier: Apache-2.0
"""A campaign from its YAML to its results directory: `pagetier run`.

Everything is validated before the first byte is written.  Each finished cell is durable at once, so
a run that was killed continues with ``--resume`` where it stopped.
"""

import contextlib
import importlib.metadata
import json
import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import yaml
from rich.console import Console

from pagetier.analysis.derive import Limits
from pagetier.analysis.errors import InputError
from pagetier.analysis.files import replace_file
from pagetier.analysis.results import Cell, read_meta
from pagetier.analysis.traces import trace_info
from pagetier.bench.cell import Bench, run_cell
from pagetier.bench.device import Device
from pagetier.bench.estimate import estimate
from pagetier.bench.host import host_facts
from pagetier.bench.inputs import (
    Inputs,
    RunRequest,
    device_of,
    expert_bytes_of,
    load_inputs,
    open_pools,
)
from pagetier.bench.journal import Journal, only_one, recover, state_dir
from pagetier.bench.preflight import Preflight, examine
from pagetier.bench.progress import CampaignProgress
from pagetier.bench.store import Store
from pagetier.cgroups.detect import detect
from pagetier.cgroups.roots import Roots
from pagetier.tiers.pool import Pool

__all__ = ["dry_run", "run_campaign"]

# Facts that must not change between the cells of one results directory.
CONSTANT_FACTS = ("kernel", "machine", "page_bytes", "mem_total_bytes", "cgroup_memory", "device")


def dry_run(request: RunRequest) -> dict[str, Any]:
    """The cells in their order and an estimate of bytes and time; touches nothing."""
    inputs = load_inputs(request)
    sizes = {source.path: expert_bytes_of(source) for source in inputs.campaign.pool}
    return estimate(inputs.plan, inputs.cells, sizes)


def run_campaign(request: RunRequest, console: Console) -> tuple[Path, bool]:
    """Measure what is not measured yet; returns the results directory and whether it was cut short.

    Raises InputError and CapabilityError before anything is made.
    """
    inputs = load_inputs(request)
    directory = _directory(request, inputs.name)
    roots = Roots()
    with only_one(state_dir()):
        for line in recover(state_dir(), roots):
            console.print(line, highlight=False)
        campaign = inputs.campaign
        preflight = examine(inputs.cells, campaign.pool, campaign.balloon, roots)
        pools = open_pools(inputs, roots, console)
        device = device_of(pools, roots)
        meta = _meta(inputs, pools, device, roots, preflight)
        with (
            _open_store(directory, request.resume, meta) as store,
            _log(directory) as log,
            Journal(state_dir(), roots) as journal,
        ):
            _write_campaign(directory, inputs)
            bench = Bench(
                roots=roots,
                support=detect(roots),
                device=device,
                pools=pools,
                plan=inputs.plan,
                accepted_tokens=trace_info(inputs.trace)["accepted_tokens"],
                journal=journal,
                limits=Limits(**inputs.campaign.limits.model_dump()),
                balloon=inputs.campaign.balloon,
                job_dir=directory / "job",
                warnings=preflight.warnings,
            )
            iterations = inputs.plan.num_iterations
            progress = CampaignProgress(console, len(preflight.runnable), iterations, log)
            for line in preflight.notes():
                progress.say(line)
            return directory, _run_cells(bench, store, preflight, progress)


def _directory(request: RunRequest, name: str) -> Path:
    if request.output is not None:
        if (request.output / "results.db").exists() and not request.resume:
            raise InputError(
                f"{request.output}: holds results already; continue them with --resume or name "
                "another directory"
            )
        return request.output
    if request.resume:
        raise InputError("--resume continues a results directory; name it with -o DIR")
    return Path("pagetier-results") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


def _write_campaign(directory: Path, inputs: Inputs) -> None:
    path = directory / "campaign.yaml"
    if not path.exists():
        document = yaml.safe_dump(inputs.campaign.model_dump(), sort_keys=False)
        replace_file(path, document.encode())


def _meta(
    inputs: Inputs, pools: dict[str, Pool], device: Device, roots: Roots, preflight: Preflight
) -> dict[str, str]:
    return {
        "created": _now(),
        "pagetier_version": importlib.metadata.version("pagetier"),
        "name": inputs.name,
        "campaign": inputs.campaign.canonical_json(),
        "campaign_sha256": inputs.campaign.sha256,
        "trace": json.dumps(trace_info(inputs.trace)),
        "trace_sha256": inputs.trace.sha256 or inputs.plan.sha256,
        "plan_sha256": inputs.plan.sha256,
        "pools": json.dumps({path: pool.digest for path, pool in pools.items()}),
        "host": json.dumps(host_facts(roots, device)),
        "not_run": json.dumps(preflight.not_run),
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
    store = Store(directory)
    store.set_meta("not_run", meta["not_run"])
    return store


def _run_cells(
    bench: Bench, store: Store, preflight: Preflight, progress: CampaignProgress
) -> bool:
    """True when Ctrl-C or SIGTERM cut the campaign short; finished cells are kept either way."""
    finished = store.finished_cells()
    with progress, _terminate_like_interrupt():
        try:
            for position, cell in enumerate(preflight.runnable):
                progress.start_cell(position + 1, cell)
                if cell.id in finished:
                    progress.end_cell("measured before")
                    continue
                record = run_cell(bench, cell, position, progress)
                store.add_cell(record)
                progress.end_cell(_summary(record))
        except KeyboardInterrupt:
            progress.say("interrupted: this cell is dropped, finished cells are kept")
            return True
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
def _log(directory: Path) -> Iterator[Callable[[str], None]]:
    with (directory / "log.txt").open("a", encoding="utf-8") as file:

        def write(message: str) -> None:
            file.write(f"{_now()} {message}\n")
            file.flush()

        write(f"pagetier {importlib.metadata.version('pagetier')}, pid {os.getpid()}")
        yield write


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
