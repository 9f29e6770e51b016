# SPDX-License-Identifier: Apache-2.0
"""`pagetier boot`: the mem= boots of a campaign on a real host."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pagetier.analysis.units import format_bytes
from pagetier.bench.boot import steps
from pagetier.bench.boot.resume import resume_boot
from pagetier.bench.boot.steps import BootHost
from pagetier.cgroups.roots import Roots

__all__ = ["boot_app"]

INTERRUPTED = 130

boot_app = typer.Typer(
    help="Boots with mem= on a real host, for campaigns with `boot` cells.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A results directory.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@boot_app.command("plan", epilog="Example: pagetier boot plan my-results")
def plan(directory: Directory, as_json: Json = False) -> None:
    """The next boot with the exact steps for this host, and how to undo them."""
    text = steps.plan_text(directory, BootHost(Roots()))
    if as_json:
        print(json.dumps({**steps.status(directory, BootHost(Roots())), "steps": text}, indent=2))
    else:
        print(text, end="")


@boot_app.command("status", epilog="Example: pagetier boot status my-results --json")
def status(directory: Directory, as_json: Json = False) -> None:
    """Which boots are measured, which one is running, which one is next."""
    document = steps.status(directory, BootHost(Roots()))
    if as_json:
        print(json.dumps(document, indent=2))
        return
    for boot in document["boots"]:
        capacity = format_bytes(boot["capacity_bytes"])
        done = f"{boot['measured']} of {boot['cells']} cells measured"
        print(f"{boot['arguments']} (C {capacity}): {done}")
    print(f"running: {document['booted']}; next: {document['next']}")


@boot_app.command("resume", epilog="Example: sudo pagetier boot resume my-results")
def resume(directory: Directory, as_json: Json = False) -> None:
    """After a reboot: check what was booted, measure its cells, name the next boot."""
    host = BootHost(Roots())
    interrupted = resume_boot(directory, host, Console(stderr=True))
    text = steps.plan_text(directory, host)
    if as_json:
        print(json.dumps({**steps.status(directory, host), "steps": text}, indent=2))
    else:
        print(text, end="")
    if interrupted:
        raise typer.Exit(INTERRUPTED)
