# SPDX-License-Identifier: Apache-2.0
"""`pagetier lab setup | doctor | run`: the same campaign inside a booted kernel.

Exit codes as everywhere: 0 done, 1 a finding (rejected cells; a need that is not met), 2 cannot
run, 130 interrupted.
"""

import json
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from pagetier.analysis.render import markdown_block, report_json
from pagetier.analysis.results import Results, read_results
from pagetier.analysis.units import parse_bytes
from pagetier.bench import show
from pagetier.bench.lab.run import LabRequest, LabRun, run_lab
from pagetier.capacity.lab.cache import cache_dir
from pagetier.capacity.lab.debian import fetch_busybox, fetch_kernel
from pagetier.capacity.lab.doctor import DEFAULT_KERNELS, examine
from pagetier.capacity.lab.kernels import cached_kernels
from pagetier.cgroups.roots import Roots

__all__ = ["lab_app"]

FINDING, INTERRUPTED = 1, 130

lab_app = typer.Typer(
    help="The same campaign inside a booted kernel, without a spare host.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

stderr = Console(stderr=True)
stdout = Console(width=180)

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Kernels = Annotated[
    list[str] | None,
    typer.Option("--kernel", help="A version such as 6.12, or for `run` a vmlinuz; repeatable."),
]


class DiskKind(StrEnum):
    """How a guest sees its disk."""

    virtio = "virtio"
    nvme = "nvme"


@lab_app.command("setup", epilog="Example: pagetier lab setup --kernel 6.12")
def setup(kernel: Kernels = None, as_json: Json = False) -> None:
    """Fetch kernels into the lab's cache; installs nothing."""
    cache = cache_dir()

    def say(line: str) -> None:
        stderr.print(line, highlight=False, markup=False)

    fetch_busybox(cache, say)
    for version in kernel or DEFAULT_KERNELS:
        fetch_kernel(version, cache, say)
    _present_needs(as_json)


@lab_app.command("doctor", epilog="Example: pagetier lab doctor --json")
def doctor(as_json: Json = False) -> None:
    """What the lab lacks here, with a remedy for each gap; exit 1 when something is missing."""
    if not _present_needs(as_json):
        raise typer.Exit(FINDING)


def _present_needs(as_json: bool) -> bool:
    needs = examine(cache_dir(), Roots())
    kernels = [{"release": kernel.release} for kernel in cached_kernels(cache_dir())]
    if as_json:
        document = {
            "cache": str(cache_dir()),
            "kernels": kernels,
            "requirements": [asdict(need) for need in needs],
        }
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        for need in needs:
            state = {True: "ok  ", False: "GAP ", None: "?   "}[need.ok]
            print(f"{state} {need.name}: {need.found}")
            if need.remedy:
                print(f"       {need.remedy}")
    return all(need.ok is not False for need in needs)


@lab_app.command("run", epilog="Example: pagetier lab run examples/matrix.yaml -o out")
def run(
    campaign: Annotated[Path, typer.Argument(metavar="CAMPAIGN.yaml", help="A campaign file.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Directory (default: a new one).")
    ] = None,
    kernel: Kernels = None,
    modules: Annotated[
        Path | None, typer.Option(help="Folder with modules.dep, for a --kernel that is a path.")
    ] = None,
    memory: Annotated[str, typer.Option(help="Memory of the guest.")] = "3 GiB",
    cpus: Annotated[int, typer.Option(min=1, help="CPUs of the guest.")] = 2,
    disk: Annotated[DiskKind, typer.Option(help="How the guest sees its disk.")] = DiskKind.virtio,
    disk_bytes: Annotated[
        str | None, typer.Option(help="Size of its disk (default: the pools' and some).")
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds without a word after which a guest is given up.")
    ] = 1800.0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Measure the cells that -o DIR does not hold yet.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Boot each kernel, measure the campaign in it, bring home one results directory per kernel."""
    request = LabRequest(
        campaign=campaign,
        output=output or _new_directory(campaign),
        kernels=tuple(kernel or DEFAULT_KERNELS[:1]),
        modules=modules,
        memory_bytes=parse_bytes(memory),
        cpus=cpus,
        disk_kind=disk.value,
        disk_bytes=None if disk_bytes is None else parse_bytes(disk_bytes),
        silence_s=timeout,
        resume=resume,
    )
    runs, interrupted = run_lab(request, stderr)
    found = [(item, read_results(item.directory)) for item in runs if _has_results(item)]
    _present_runs(found, as_json)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if any(cell.state == "rejected" for _, results in found for cell in results.cells):
        raise typer.Exit(FINDING)


def _new_directory(campaign: Path) -> Path:
    return Path("pagetier-results") / f"lab-{campaign.stem}-{datetime.now():%Y%m%d-%H%M%S}"


def _has_results(run: LabRun) -> bool:
    return (run.directory / "results.db").exists()


def _present_runs(found: list[tuple[LabRun, Results]], as_json: bool) -> None:
    if as_json:
        document = {"runs": [_as_document(run, results) for run, results in found]}
        print(json.dumps(document, indent=2, allow_nan=False))
        return
    for run, results in found:
        print(f"\nkernel {run.release}, {run.clock} clock")
        show.cells(stdout, results)
        print(f"\n{markdown_block(results)}\nresults: {run.directory}")


def _as_document(run: LabRun, results: Results) -> dict[str, Any]:
    return {
        "kernel": run.kernel,
        "release": run.release,
        "clock": run.clock,
        "directory": str(run.directory),
        "report": report_json(results),
    }
