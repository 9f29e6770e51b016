# SPDX-License-Identifier: Apache-2.0
"""`pagetier size`: the smallest capacity that meets a target, or that none does.

Exit codes: 0 a capacity meets it; 1 none does, or the results cannot tell; 2 cannot run.
"""

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from pagetier.analysis.errors import InputError
from pagetier.analysis.report.engine import is_engine_study
from pagetier.analysis.report.reading import read_study
from pagetier.analysis.report.render import section_json, section_text
from pagetier.analysis.report.sizing import Answer, Target, sizing_section
from pagetier.bench.output import FINDING, Json, print_json
from pagetier.bench.report.cli import RatesOption, SimulationOption, beside_of

__all__ = ["mount"]


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(epilog="Example: pagetier size results --target-seconds 2")(size)


def size(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A results directory.")],
    target_seconds: Annotated[
        float, typer.Option("--target-seconds", help="Time that an iteration may take.")
    ],
    tokens_per_second: Annotated[
        float | None,
        typer.Option(
            "--target-tokens-per-second",
            help="Accepted tokens per second: sized apart, and held against the device's rate.",
        ),
    ] = None,
    simulation: SimulationOption = None,
    rates: RatesOption = None,
    as_json: Json = False,
) -> None:
    """The smallest capacity that meets a target, read off measured points, never beyond them."""
    for name, value in (("seconds", target_seconds), ("tokens-per-second", tokens_per_second)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InputError(f"--target-{name} {value:g}: give a number above 0")
    study = read_study(directory)
    if is_engine_study(study):
        raise InputError(
            f"{directory}: an engine decoded here, arm by arm; a size is read off replays: measure "
            "its captured routing at several capacities, or see: pagetier report"
        )
    beside = beside_of(study, None, simulation, rates)
    section, answer = sizing_section(study, Target(target_seconds, tokens_per_second), beside)
    if as_json:
        print_json({**_answer(answer, target_seconds), "section": section_json(section)})
    else:
        print(section_text(section), end="")
    if not answer.state.startswith("met"):
        raise typer.Exit(FINDING)


def _answer(answer: Answer, target_seconds: float) -> dict[str, Any]:
    measured, largest = answer.measured, answer.largest
    return {
        "target_s": target_seconds,
        "state": answer.state,
        "capacity_bytes": answer.capacity_bytes,
        "upper_bound": None if measured is None else measured.mechanism == "balloon",
        "measured_bytes": None if measured is None else measured.capacity_bytes,
        "largest_measured_bytes": None if largest is None else largest.capacity_bytes,
        "sentence": answer.sentence,
    }
