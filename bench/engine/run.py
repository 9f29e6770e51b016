# SPDX-License-Identifier: Apache-2.0
"""`pagetier run` of a campaign in which an engine decodes.

The model's experts are mapped into ``pool/`` of the results and the routing of each prompt is
captured into ``routing/``; then the cells run as those of any campaign: same scopes, samplers,
verdicts, journal and results.
"""

import json
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from rich.console import Console

from pagetier.analysis.derive import Limits
from pagetier.analysis.errors import CapabilityError, InputError
from pagetier.analysis.files import replace_file
from pagetier.analysis.results import Cell
from pagetier.bench.campaign import PoolSource
from pagetier.bench.device import Device
from pagetier.bench.engine.campaign import EngineCampaign, load_engine_campaign
from pagetier.bench.engine.cell import Decoding, run_engine_cell, yardstick
from pagetier.bench.engine.cells import EngineCell, ModelBytes, arm_problem, plan_engine_cells
from pagetier.bench.engine.prompts import Prompt, read_prompts
from pagetier.bench.engine.reference import (
    Reference,
    load_references,
    make_references,
    sampling_of,
)
from pagetier.bench.inputs import RunRequest, device_of
from pagetier.bench.journal import Journal, only_one, recover, state_dir
from pagetier.bench.kernel.text import read_count
from pagetier.bench.preflight import Preflight, examine
from pagetier.bench.progress import CampaignProgress
from pagetier.bench.session import (
    directory_of,
    measure_cells,
    open_log,
    open_store,
    provenance,
)
from pagetier.bench.shared import Bench
from pagetier.bench.tiering import Advice, refusal
from pagetier.capacity.meminfo import read_meminfo
from pagetier.cgroups.detect import detect
from pagetier.cgroups.roots import Roots
from pagetier.tiers.evict import require_unmapped
from pagetier.tiers.models.map import map_model
from pagetier.tiers.models.pool import MappedPool

__all__ = ["dry_run_engine", "run_engine_campaign"]


@dataclass(frozen=True, slots=True, eq=False)
class _Inputs:
    """A campaign with its prompts and its model mapped; nothing has been decoded yet."""

    campaign: EngineCampaign
    prompts: list[Prompt]
    pool: MappedPool
    device: Device
    model: ModelBytes
    cells: list[EngineCell]


def dry_run_engine(request: RunRequest, path: Path) -> dict[str, Any]:
    """The cells in their order with the bytes that their tokens ask for, and those left out.

    What the device will read depends on routing that only the engine knows.
    """
    campaign = _load(request, path)
    with TemporaryDirectory() as folder:
        inputs = _inputs(campaign, Path(folder) / "pool", Roots())
    pool, options = inputs.pool, campaign.engine
    top_k = pool.manifest.top_k or 0
    # The engine may end its text earlier; experts may differ in size.
    demand_bytes = 2 * options.tokens * pool.num_layers * top_k * pool.largest_expert_bytes
    left_out = dict(_left_out(inputs, Roots()))
    rows = [
        {"id": cell.id, "cell": cell.describe(), "demand_bytes_at_most": demand_bytes}
        for cell in inputs.cells
        if cell not in left_out
    ]
    return {
        "engine": options.name,
        "model": options.model,
        "weights_bytes": inputs.model.weights,
        "experts_bytes": inputs.model.experts,
        "spine_bytes": inputs.model.spine,
        "cells": rows,
        "refused": _told(left_out),
    }


def run_engine_campaign(request: RunRequest, path: Path, console: Console) -> tuple[Path, bool]:
    """Measure what is not measured yet; returns the results directory and whether it was cut short.

    Raises InputError and CapabilityError before anything is measured.
    """
    campaign = _load(request, path)
    directory = directory_of(request, path.stem)
    roots = Roots()
    with only_one(state_dir()):
        for line in recover(state_dir(), roots):
            console.print(line, highlight=False)
        directory.mkdir(parents=True, exist_ok=True)
        inputs = _inputs(campaign, directory / "pool", roots)
        require_unmapped(inputs.pool, roots.proc)
        preflight, runnable = _examine(inputs, roots)
        references = _references(directory, inputs, console)
        with (
            open_store(directory, request.resume, _meta(inputs, references, roots)) as store,
            open_log(directory) as log,
            Journal(state_dir(), roots) as journal,
        ):
            _write_campaign(directory, campaign)
            store.set_meta("not_run", json.dumps(preflight.not_run))
            progress = CampaignProgress(console, len(runnable), campaign.engine.tokens, log)
            for line in preflight.notes():
                progress.say(line)
            decodings = {
                prompt.number: _decoding(
                    inputs, prompt, references[prompt.number], preflight, journal, directory
                )
                for prompt in inputs.prompts
            }
            positions = {cell.id: number for number, cell in enumerate(inputs.cells)}

            def measure(cell: EngineCell) -> Cell:
                return run_engine_cell(decodings[cell.prompt], cell, positions[cell.id], progress)

            return directory, measure_cells(runnable, measure, store, progress)


def _load(request: RunRequest, path: Path) -> EngineCampaign:
    for option, given in (
        ("--trace", request.trace),
        ("--pool", request.pool),
        ("--hint-chunk", request.hint_chunk),
        ("--audit", request.audit or None),
    ):
        if given is not None:
            raise InputError(
                f"{path}: {option} is for replays: an engine's campaign has neither; leave it out"
            )
    return load_engine_campaign(path, request.device)


def _inputs(campaign: EngineCampaign, folder: Path, roots: Roots) -> _Inputs:
    prompts = read_prompts(Path(campaign.engine.prompts))
    pool = map_model(Path(campaign.engine.model), folder)
    device = device_of({campaign.engine.model: pool}, roots, campaign.device)
    manifest = pool.manifest
    model = ModelBytes(pool.total_bytes, manifest.spine_bytes, manifest.unrouted_bytes)
    window_kb = read_count(device.read_ahead_path(roots.sys))
    cells = plan_engine_cells(campaign, prompts, model, window_kb)
    return _Inputs(campaign, prompts, pool, device, model, cells)


# ---- which cells can run ------------------------------------------------------------------------


def _examine(inputs: _Inputs, roots: Roots) -> tuple[Preflight, list[EngineCell]]:
    """The host's answer with the cells left out and why, and the cells to run."""
    left_out = dict(_left_out(inputs, roots))
    fitting = [cell for cell in inputs.cells if cell not in left_out]
    if not fitting:
        raise CapabilityError(f"no cell can run: {next(iter(left_out.values()))}")
    place = str(inputs.pool.root)
    # The doctor knows a pool by its folder.
    bases = {replace(cell.base, pool=place): None for cell in fitting}
    preflight = examine(list(bases), [PoolSource(path=place)], 1, roots, inputs.campaign.device)
    can_run = set(preflight.runnable)
    runnable = [cell for cell in fitting if replace(cell.base, pool=place) in can_run]
    reasons = {item["cell"]: item["reason"] for item in preflight.not_run}
    for cell in fitting:
        base = replace(cell.base, pool=place)
        if base not in can_run:
            left_out[cell] = reasons[base.describe()]
    return replace(preflight, not_run=_told(left_out)), runnable


def _told(left_out: dict[EngineCell, str]) -> list[dict[str, str]]:
    """Once for all prompts and rounds of an arm under a limit, which share the reason."""
    found = dict.fromkeys((cell.describe_limit(), reason) for cell, reason in left_out.items())
    return [{"cell": cell, "reason": reason} for cell, reason in found]


def _left_out(inputs: _Inputs, roots: Roots) -> list[tuple[EngineCell, str]]:
    available_bytes = read_meminfo(roots).available_bytes
    pool = inputs.pool
    found = []
    for cell in inputs.cells:
        problem = arm_problem(cell, inputs.model, available_bytes) or refusal(
            yardstick(cell, inputs.model), pool.size_of_experts, pool.total_experts
        )
        if problem is not None:
            found.append((cell, problem))
    return found


# ---- results ------------------------------------------------------------------------------------


def _references(directory: Path, inputs: _Inputs, console: Console) -> dict[int, Reference]:
    folder, options = directory / "routing", inputs.campaign.engine
    asked = (folder, options, inputs.prompts, inputs.pool.digest)
    found = load_references(*asked)
    if found is not None:
        return found
    console.print(
        f"capturing the routing of {len(inputs.prompts)} prompts, {options.tokens} tokens each",
        highlight=False,
    )
    make_references(*asked)
    made = load_references(*asked)
    if made is None:
        raise CapabilityError(f"{folder}: the capture left nothing; run it again")
    return made


def _meta(inputs: _Inputs, references: dict[int, Reference], roots: Roots) -> dict[str, str]:
    campaign, options = inputs.campaign, inputs.campaign.engine
    plans = [references[prompt.number].plan.sha256 for prompt in inputs.prompts]
    together = sha256(" ".join(plans).encode()).hexdigest()
    return {
        **provenance(inputs.device, roots),
        "name": Path(options.model).stem,
        "campaign": campaign.canonical_json(),
        "campaign_sha256": campaign.sha256,
        "trace_sha256": together,
        "plan_sha256": together,
        "pools": json.dumps({options.model: inputs.pool.digest}),
        "not_run": "[]",
    }


def _write_campaign(directory: Path, campaign: EngineCampaign) -> None:
    path = directory / "campaign.yaml"
    if not path.exists():
        replace_file(path, yaml.safe_dump(campaign.model_dump(), sort_keys=False).encode())


def _decoding(
    inputs: _Inputs,
    prompt: Prompt,
    reference: Reference,
    preflight: Preflight,
    journal: Journal,
    directory: Path,
) -> Decoding:
    """What the cells of a prompt work on."""
    campaign, options, roots = inputs.campaign, inputs.campaign.engine, Roots()
    bench = Bench(
        roots=roots,
        support=detect(roots),
        device=inputs.device,
        pools={options.model: inputs.pool},
        plan=reference.plan,
        advice=Advice({}, {}),
        accepted_tokens=reference.plan.num_iterations,
        journal=journal,
        limits=Limits(**campaign.limits.model_dump()),
        balloon_floor_bytes=1,
        job_dir=directory / "job",
        warnings={options.model: preflight.warnings[str(inputs.pool.root)]},
        prompt=reference.prompt_plan,
    )
    sampling = sampling_of(options, prompt)
    return Decoding(bench, inputs.pool, inputs.model, options, sampling, reference)
