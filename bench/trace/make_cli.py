# SPDX-License-Identifier: Apache-2.0
"""`pagetier trace merge` and `pagetier trace synth`: traces made of others and of statistics."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from pagetier.analysis.errors import InputError
from pagetier.analysis.synth import (
    BUILT_IN,
    calibrate,
    check_predictions,
    check_targets,
    draw_all,
    draw_domain,
    fitted_names,
    load_spec,
    uniform,
)
from pagetier.analysis.synth.parameters import Parameters
from pagetier.analysis.synth.spec import ModelSpec
from pagetier.analysis.traces import read_trace, trace_info, write_trace
from pagetier.analysis.traces.merge import Merged, continuous, lockstep
from pagetier.bench import show
from pagetier.bench.output import FINDING, Json, print_json
from pagetier.bench.trace import show as trace_show

__all__ = ["mount"]

stdout = Console() if sys.stdout.isatty() else Console(width=180)
stderr = Console(stderr=True)

Output = Annotated[
    Path, typer.Option("-o", metavar="OUT", help="Trace to write; packed when it ends in .gz.")
]


def mount(trace_app: typer.Typer) -> None:
    """Add the commands to `pagetier trace`."""
    trace_app.command(
        "merge", epilog="Example: pagetier trace merge a.jsonl.gz b.jsonl.gz -o batch.jsonl.gz"
    )(trace_merge)
    trace_app.command(
        "synth",
        epilog="Example: pagetier trace synth --model kimi-k3 --domain prose -o prose.jsonl.gz",
    )(trace_synth)


def trace_merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Traces of one model.")],
    output: Output,
    batch: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Serve every request of the traces in so many places, each refilled as it becomes "
            "free.  Default: step i is iteration i of each trace, up to the end of the shortest.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """The union of several traces' reads, as one batch would issue them."""
    traces = [read_trace(file) for file in files]
    merged = lockstep(traces) if batch is None else continuous(traces, batch)
    write_trace(merged.trace, output)
    document = _merged_document(output, merged)
    if as_json:
        print_json(document)
    else:
        show.pairs(stdout, document)


def _merged_document(output: Path, merged: Merged) -> dict[str, Any]:
    steps, reads = len(merged.active), merged.trace.num_reads
    return {
        "trace": str(output),
        "batch": merged.trace.header.batch,
        "steps": steps,
        "active_requests": {
            "mean": float(merged.active.mean()),
            "min": int(merged.active.min()),
            "max": int(merged.active.max()),
        },
        "logical_reads": merged.logical_reads,
        "union_reads": reads,
        "dedup": merged.dedup,
        "union_share": reads / merged.logical_reads,
        "reads_per_step": reads / steps,
        "accepted_tokens": merged.accepted_tokens,
        "reads_per_accepted_token": reads / merged.accepted_tokens
        if merged.accepted_tokens
        else None,
    }


def trace_synth(
    model: Annotated[
        str, typer.Option(help=f"{', '.join(BUILT_IN)}, or a YAML file of targets.")
    ] = "kimi-k3",
    domain: Annotated[
        str | None, typer.Option(help="Workload: prose, code, math or chat.  Default: the first.")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Default: as many as were published.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same trace.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("-o", metavar="OUT", help="Trace to write; packed when it ends in .gz."),
    ] = None,
    control: Annotated[
        bool, typer.Option("--uniform", help="Control without locality: uniform i.i.d. selection.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Print target against achieved, over all domains of a model."),
    ] = False,
    fit: Annotated[
        bool,
        typer.Option("--fit", help="Calibrate anew, from the model's own parameters, and print."),
    ] = False,
    as_json: Json = False,
) -> None:
    """A trace with the locality that was published of a model."""
    if output is None and not check and not fit:
        raise InputError("nothing to do: name a trace to write with -o, or ask for --check")
    spec = load_spec(model)
    name = _domain(spec, domain)
    parameters = _parameters(uniform(spec) if control else spec, fit and not control)
    document: dict[str, Any] = {"model": spec.model, "seed": seed}
    if output is not None:
        written = uniform(spec) if control else spec
        trace = draw_domain(written, parameters, name, seed, iterations=iterations)
        write_trace(trace, output)
        document.update(domain=name, trace=str(output), **trace_info(trace))
    if fit or spec.parameters is None:
        document["parameters"] = parameters.model_dump()
    if check:
        document["check"] = _check_document(spec, parameters, seed)
    if as_json:
        print_json(document)
    else:
        trace_show.synthesis(stdout, document)
    if check and any(row["verdict"] == "missed" for row in document["check"]["targets"]):
        raise typer.Exit(FINDING)


def _domain(spec: ModelSpec, domain: str | None) -> str:
    if domain is None:
        return next(iter(spec.domains))
    if domain not in spec.domains:
        raise InputError(f"{spec.model} has no domain {domain!r}: give {', '.join(spec.domains)}")
    return domain


def _parameters(spec: ModelSpec, fit: bool) -> Parameters:
    if spec.parameters is not None and not fit:
        return spec.parameters
    return calibrate(spec, lambda stage: stderr.print(stage, highlight=False))


def _check_document(spec: ModelSpec, parameters: Parameters, seed: int) -> dict[str, Any]:
    """What calibration saw, and what it did not, in two lists that are never mixed."""
    traces = draw_all(spec, parameters, seed)
    targets = check_targets(spec, parameters, traces, seed)
    predictions = check_predictions(spec, traces)
    return {
        "fitted_parameters": fitted_names(spec),
        "targets": [
            {
                "statistic": row.statistic,
                "target": list(row.target),
                "achieved": dict(row.achieved),
                "verdict": row.verdict,
            }
            for row in targets
        ],
        "predictions": [
            {
                "figure": row.figure,
                "published": row.published,
                "predicted": row.predicted,
                "error": row.error,
                "informed": row.informed,
            }
            for row in predictions
        ],
    }
