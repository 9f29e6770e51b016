# SPDX-License-Identifier: Apache-2.0
"""A campaign from its YAML to its results directory: `pagetier run`.

Everything is validated before the first byte is written.  Each finished cell is durable at once, so
a run that was killed continues with ``--resume`` where it stopped.
"""

import contextlib
import importlib.metadata
import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from pagetier.analysis.derive import Limits
from pagetier.analysis.errors import InputError
from pagetier.analysis.files import replace_file
from pagetier.analysis.results import Cell, read_meta
from pagetier.analysis.traces import trace_info
from pagetier.bench.boot.plan import BootPlan, has_plan, plan_boots, read_host_memory, save_plan
from pagetier.bench.cell import run_cell
from pagetier.bench.check.selftest import read_limit_counters
from pagetier.bench.device import Device
from pagetier.bench.estimate import estimate
from pagetier.bench.host import host_facts
from pagetier.bench.inputs import (
    Inputs,
    RunRequest,
    device_of,
    geometry_of,
    load_inputs,
    open_pools,
)
from pagetier.bench.journal import Journal, only_one, recover, state_dir
from pagetier.bench.preflight import Preflight, examine, is_for_boot_cells
from pagetier.bench.progress import CampaignProgress
from pagetier.bench.shared import Bench
from pagetier.bench.signals import terminate_like_interrupt
from pagetier.bench.store import Store
from pagetier.capacity.boot import parse_boot_profile, read_boot_profile
from pagetier.cgroups.detect import detect
from pagetier.cgroups.roots import Roots
from pagetier.tiers.pool import Pool

__all__ = ["dry_run", "run_campaign"]

# Facts that must not change between the cells of one results directory.
CONSTANT_FACTS = ("kernel", "machine", "page_bytes", "mem_total_bytes", "cgroup_memory", "device")


def dry_run(request: RunRequest) -> dict[str, Any]:
    """The cells in their order and an estimate of bytes and time; touches nothing."""
    inputs = load_inputs(request)
    pools = {source.path: geometry_of(source) for source in inputs.campaign.pool}
    return estimate(inputs, pools)


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
        preflight = examine(
            inputs.cells, campaign.pool, campaign.balloon.floor, roots, campaign.device
        )
        pools = open_pools(inputs, roots, console)
        device = device_of(pools, roots, campaign.device)
        boots = _boots_to_plan(directory, preflight, roots)
        meta = _meta(inputs, pools, device, roots, preflight)
        with (
            _open_store(directory, request.resume, meta) as store,
            _log(directory) as log,
            Journal(state_dir(), roots) as journal,
        ):
            _write_campaign(directory, inputs)
            _note_missing(store, preflight, inputs)
            if boots is not None:
                save_plan(directory, boots)
            bench = Bench(
                roots=roots,
                support=detect(roots),
                device=device,
                pools=pools,
                plan=inputs.plan,
                advice=inputs.advice,
                accepted_tokens=trace_info(inputs.trace)["accepted_tokens"],
                journal=journal,
                limits=Limits(**inputs.campaign.limits.model_dump()),
                balloon_floor_bytes=inputs.campaign.balloon.floor,
                job_dir=directory / "job",
                warnings=preflight.warnings,
                audit=campaign.audit,
            )
            iterations = inputs.plan.num_iterations
            progress = CampaignProgress(console, len(preflight.runnable), iterations, log)
            for line in preflight.notes():
                progress.say(line)
            positions = {cell.id: number for number, cell in enumerate(inputs.cells)}
            return directory, _run_cells(bench, store, preflight, positions, progress)


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


def _boots_to_plan(directory: Path, preflight: Preflight, roots: Roots) -> BootPlan | None:
    """Only the normal boot, which has all of the memory, can tell what others would leave."""
    waiting = [cell for cell in preflight.waiting if cell.mechanism == "boot"]
    if not waiting or has_plan(directory) or is_for_boot_cells(read_boot_profile(roots)):
        return None
    return plan_boots(waiting, read_host_memory(roots), Path.cwd())


def _note_missing(store: Store, preflight: Preflight, inputs: Inputs) -> None:
    """What cannot run now, but for what another boot has measured."""
    finished = store.finished_cells()
    measured = {cell.describe() for cell in inputs.cells if cell.id in finished}
    left = [item for item in preflight.not_run if item["cell"] not in measured]
    store.set_meta("not_run", json.dumps(left))


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
        "host": json.dumps({**host_facts(roots, device), **_limit_counters(roots)}),
        "not_run": json.dumps(preflight.not_run),
    }


def _limit_counters(roots: Roots) -> dict[str, Any]:
    """Which global counters include limit reclaim, where `check --self-test` found out."""
    found = read_limit_counters(state_dir(), roots)
    return {"limit_reclaim_counters": None if found is None else found.counters}


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
    for fact in _constant_facts(old, new):
        if old.get(fact) != new.get(fact):
            raise InputError(
                f"{directory}: cannot resume: the host's {fact} was {old.get(fact)} and is "
                f"{new.get(fact)}; cells of different hosts are not pooled"
            )
    return Store(directory)


def _constant_facts(*hosts: dict[str, Any]) -> tuple[str, ...]:
    """A boot made for a capacity has its memory by design; it is checked against the capacity."""
    profiles = [parse_boot_profile(host.get("kernel_cmdline") or "") for host in hosts]
    if any(map(is_for_boot_cells, profiles)):
        return tuple(fact for fact in CONSTANT_FACTS if fact != "mem_total_bytes")
    return CONSTANT_FACTS


def _run_cells(
    bench: Bench,
    store: Store,
    preflight: Preflight,
    positions: dict[str, int],
    progress: CampaignProgress,
) -> bool:
    """True when Ctrl-C or SIGTERM cut the campaign short; finished cells are kept either way."""
    finished = store.finished_cells()
    with progress, terminate_like_interrupt():
        try:
            for number, cell in enumerate(preflight.runnable, start=1):
                progress.start_cell(number, cell)
                if cell.id in finished:
                    progress.end_cell("measured before")
                    continue
                record = run_cell(bench, cell, positions[cell.id], progress)
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
def _log(directory: Path) -> Iterator[Callable[[str], None]]:
    with (directory / "log.txt").open("a", encoding="utf-8") as file:

        def write(message: str) -> None:
            file.write(f"{_now()} {message}\n")
            file.flush()

        write(f"pagetier {importlib.metadata.version('pagetier')}, pid {os.getpid()}")
        yield write


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
