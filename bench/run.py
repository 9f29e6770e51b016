# SPDX-License-Identifier: Apache-2.0
"""A campaign from its YAML to its results directory: `pagetier run`.

Everything is validated before the first byte is written.  Each finished cell is durable at once, so
a run that was killed continues with ``--resume`` where it stopped.
"""

import json
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from pagetier.analysis.derive import Limits
from pagetier.analysis.files import replace_file
from pagetier.analysis.results import Cell
from pagetier.analysis.traces import trace_info
from pagetier.bench.boot.plan import BootPlan, has_plan, plan_boots, read_host_memory, save_plan
from pagetier.bench.cell import run_cell
from pagetier.bench.cells import CellSpec
from pagetier.bench.device import Device
from pagetier.bench.engine.campaign import is_engine_campaign
from pagetier.bench.engine.run import dry_run_engine, run_engine_campaign
from pagetier.bench.estimate import estimate
from pagetier.bench.inputs import (
    Inputs,
    RunRequest,
    campaign_path,
    device_of,
    geometry_of,
    load_inputs,
    open_pools,
)
from pagetier.bench.journal import Journal, only_one, recover, state_dir
from pagetier.bench.preflight import Preflight, examine, is_for_boot_cells
from pagetier.bench.progress import CampaignProgress
from pagetier.bench.session import (
    directory_of,
    measure_cells,
    open_log,
    open_store,
    provenance,
)
from pagetier.bench.shared import Bench
from pagetier.bench.store import Store
from pagetier.capacity.boot import read_boot_profile
from pagetier.cgroups.detect import detect
from pagetier.cgroups.roots import Roots
from pagetier.tiers.pool import Pool

__all__ = ["dry_run", "run_campaign"]


def dry_run(request: RunRequest) -> dict[str, Any]:
    """The cells in their order and an estimate of bytes and time; touches nothing."""
    path = campaign_path(request)
    if is_engine_campaign(path):
        return dry_run_engine(request, path)
    inputs = load_inputs(request)
    pools = {source.path: geometry_of(source) for source in inputs.campaign.pool}
    return estimate(inputs, pools)


def run_campaign(request: RunRequest, console: Console) -> tuple[Path, bool]:
    """Measure what is not measured yet; returns the results directory and whether it was cut short.

    Raises InputError and CapabilityError before anything is made.
    """
    path = campaign_path(request)
    if is_engine_campaign(path):
        return run_engine_campaign(request, path, console)
    inputs = load_inputs(request)
    directory = directory_of(request, inputs.name)
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
            open_store(directory, request.resume, meta) as store,
            open_log(directory) as log,
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

            def measure(cell: CellSpec) -> Cell:
                return run_cell(bench, cell, positions[cell.id], progress)

            return directory, measure_cells(preflight.runnable, measure, store, progress)


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
        **provenance(device, roots),
        "name": inputs.name,
        "campaign": inputs.campaign.canonical_json(),
        "campaign_sha256": inputs.campaign.sha256,
        "trace": json.dumps(trace_info(inputs.trace)),
        "trace_sha256": inputs.trace.sha256 or inputs.plan.sha256,
        "plan_sha256": inputs.plan.sha256,
        "pools": json.dumps({path: pool.digest for path, pool in pools.items()}),
        "not_run": json.dumps(preflight.not_run),
    }
