# SPDX-License-Identifier: Apache-2.0
"""The command line: `pagetier` and its sub-commands.

Exit codes: 0 done and healthy; 1 a finding (rejected cells, a bad pool or trace found by a check);
2 cannot run (bad usage, bad input, missing capability); 130 interrupted.  With ``--json`` stdout
holds one JSON document; everything else goes to stderr.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pagetier.analysis.errors import InputError, PagetierError
from pagetier.analysis.render import markdown_block, report_json
from pagetier.analysis.report.engine import engine_section
from pagetier.analysis.report.reading import read_study
from pagetier.analysis.report.render import section_text
from pagetier.analysis.results import read_results
from pagetier.analysis.units import format_bytes, parse_bytes
from pagetier.bench import pool_map_cli, show
from pagetier.bench.boot.cli import boot_app
from pagetier.bench.boot.steps import BootHost, steps_of_next_boot
from pagetier.bench.check.cli import check
from pagetier.bench.doctor import doctor as examine
from pagetier.bench.inputs import RunRequest
from pagetier.bench.lab.cli import lab_app
from pagetier.bench.output import FINDING, Json, print_finding, print_json, print_verdict
from pagetier.bench.probe import probe
from pagetier.bench.progress import ByteProgress
from pagetier.bench.report import cli as report_command
from pagetier.bench.report import size_cli as size_command
from pagetier.bench.run import dry_run, run_campaign
from pagetier.bench.simulate.cli import simulate_command
from pagetier.bench.trace.cli import trace_app
from pagetier.capacity.errors import CapacityError
from pagetier.cgroups.errors import CgroupError, ParseError
from pagetier.cgroups.roots import Roots
from pagetier.native.errors import ReplayError
from pagetier.tiers.check import check_pool
from pagetier.tiers.create import create_pool
from pagetier.tiers.evict import evict_pool, require_unmapped
from pagetier.tiers.info import pool_info
from pagetier.tiers.pool import open_pool

__all__ = ["main"]

CANNOT_RUN, INTERRUPTED = 2, 130

app = typer.Typer(
    name="pagetier",
    help="Who should own the expert cache?  Replays MoE expert reads under an enforced memory "
    "budget and says, byte by byte, what the device read.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
pool_app = typer.Typer(help="Expert pools.", no_args_is_help=True, rich_markup_mode=None)
pool_map_cli.mount(pool_app)
app.add_typer(trace_app, name="trace")
app.command("simulate", epilog="Example: pagetier simulate my-trace.jsonl.gz --budget 8,16,32")(
    simulate_command
)
app.add_typer(pool_app, name="pool")
app.add_typer(lab_app, name="lab")
app.add_typer(boot_app, name="boot")
report_command.mount(app)
size_command.mount(app)
app.command(epilog="Example: pagetier check --watch --pool my-pool --pid 1234")(check)

stderr = Console(stderr=True)
# A table that goes to a file is not cut to the 80 columns of no terminal.
stdout = Console() if sys.stdout.isatty() else Console(width=180)

DeviceNames = Annotated[
    list[str] | None,
    typer.Option(
        "--device", help="A disk of the pool, where that cannot be found out; repeatable."
    ),
]
PoolPath = Annotated[Path, typer.Argument(metavar="POOL", help="Folder of a pool.")]


@app.command(epilog="Example: pagetier doctor --pool pagetier-data/quick-pool --probe")
def doctor(
    pool: Annotated[Path | None, typer.Option(help="Also check this pool and its device.")] = None,
    probe_rates: Annotated[
        bool, typer.Option("--probe", help="Measure cold and warm read rates of the pool's device.")
    ] = False,
    device: DeviceNames = None,
    as_json: Json = False,
) -> None:
    """What this host can do, with a remedy for each gap."""
    if probe_rates and pool is None:
        raise InputError("doctor --probe reads a pool; name it with --pool")
    if device and pool is None:
        raise InputError("--device names the disk of a pool: name the pool with --pool")
    opened = None if pool is None else open_pool(pool)
    document = examine(Roots(), opened, named=tuple(device or ()))
    if probe_rates and opened is not None:
        document["probe"] = probe(opened, Roots(), named=tuple(device or ()))
    if as_json:
        print_json(document)
    else:
        show.doctor(stdout, document)


@pool_app.command(
    "create",
    epilog="Example: pagetier pool create --layers 24 --experts 32 --expert-bytes 13236480 my-pool",
)
def pool_create(
    pool: PoolPath,
    layers: Annotated[int, typer.Option(min=1, help="Routed layers.")],
    experts: Annotated[int, typer.Option(min=1, help="Experts per layer.")],
    expert_bytes: Annotated[str, typer.Option(help="Size of one expert: bytes or '2 MB'.")],
    flat: Annotated[
        bool, typer.Option("--flat", help="One file instead of one per expert.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the content.")] = 0,
    as_json: Json = False,
) -> None:
    """Make a pool whose every byte can be verified; one file per expert by default."""
    layout = "flat" if flat else "files"
    with ByteProgress(stderr, f"making {pool}") as bar:
        made = create_pool(
            pool,
            layers=layers,
            experts=experts,
            expert_bytes=parse_bytes(expert_bytes),
            layout=layout,
            seed=seed,
            on_progress=bar,
        )
    if as_json:
        print_json(pool_info(made))
    else:
        print(f"{pool}: {made.total_experts} experts, {format_bytes(made.total_bytes)}")


@pool_app.command("info", epilog="Example: pagetier pool info my-pool --json")
def pool_info_command(pool: PoolPath, as_json: Json = False) -> None:
    """Geometry, bytes, alignment and residency of a pool."""
    document = pool_info(open_pool(pool))
    if as_json:
        print_json(document)
    else:
        show.pairs(stdout, document)


@pool_app.command("check", epilog="Example: pagetier pool check my-pool")
def pool_check(pool: PoolPath, as_json: Json = False) -> None:
    """Verify every extent and byte; exit 1 names the first bad expert."""
    opened = open_pool(pool)
    with ByteProgress(stderr, f"checking {pool}") as bar:
        problem = check_pool(opened, on_progress=bar)
    if problem is not None:
        print_finding({"ok": False, "problem": str(problem)}, str(problem), as_json)
    before = "when it was first read" if opened.layout == "mapped" else "made"
    print_verdict(
        {"ok": True, "problem": None}, f"{pool}: every expert is as it was {before}", as_json
    )


@pool_app.command("evict", epilog="Example: sudo pagetier pool evict my-pool")
def pool_evict(pool: PoolPath, as_json: Json = False) -> None:
    """Drop a pool from the page cache and prove it; exit 1 when it is not proven cold."""
    opened = open_pool(pool)
    require_unmapped(opened, Roots().proc)
    eviction = evict_pool(opened, Roots().proc)
    document = show.as_document(eviction)
    if not eviction.proven:
        print_finding(document, f"{pool}: not proven cold: {eviction.reason}", as_json)
    print_verdict(
        document, f"{pool}: cold, proven ({eviction.resident_before_pages} pages left)", as_json
    )


@app.command(
    epilog="Example: sudo pagetier run examples/gpt-oss-20b.yaml --trace my-trace.jsonl.gz -o out"
)
def run(
    campaign: Annotated[
        Path | None,
        typer.Argument(metavar="[CAMPAIGN.yaml]", help="Default: the built-in quick campaign."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Results directory (default: a new one).")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(help="Trace file, instead of the campaign's.")
    ] = None,
    pool: Annotated[
        str | None, typer.Option(help="Pool folder, instead of the campaign's.")
    ] = None,
    hint_chunk: Annotated[
        str | None,
        typer.Option(help="Bytes per hint, 'safe' or 'whole', instead of the campaign's."),
    ] = None,
    device: DeviceNames = None,
    audit: Annotated[
        bool,
        typer.Option("--audit", help="Also look at what the kernel keeps; times are then void."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Measure the cells that -o DIR does not hold yet.")
    ] = False,
    only_plan: Annotated[
        bool, typer.Option("--dry-run", help="Print the cells, their order and an estimate.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure a campaign: device bytes beside simulated misses, with a verdict on each cell."""
    disks = tuple(device or ())
    request = RunRequest(campaign, output, trace, pool, resume, hint_chunk, disks, audit)
    if only_plan:
        document = dry_run(request)
        if as_json:
            print_json(document)
        elif "engine" in document:
            show.engine_plan(stdout, document)
        else:
            show.plan(stdout, document)
        return
    directory, interrupted = run_campaign(request, stderr)
    rejected = _present(directory, as_json)
    steps = steps_of_next_boot(directory, BootHost(Roots()))
    if steps is not None:
        print(f"\n{steps}", end="", file=sys.stderr if as_json else sys.stdout)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if rejected:
        raise typer.Exit(FINDING)


def _present(directory: Path, as_json: bool) -> bool:
    """Show the results; whether a cell was rejected."""
    results = read_results(directory)
    if as_json:
        print_json(report_json(results))
    else:
        show.cells(stdout, results)
        decoded = engine_section(read_study(directory))
        if decoded is not None:
            print(f"\n{section_text(decoded)}")
        print(f"\n{markdown_block(results)}\nresults: {directory}")
    return any(cell.state == "rejected" for cell in results.cells)


def main() -> None:
    """Entry point: a known error is one sentence on stderr and exit 2, never a traceback."""
    try:
        app(standalone_mode=True)
    except (PagetierError, CgroupError, CapacityError, ParseError, ReplayError) as error:
        print(f"pagetier: {error}", file=sys.stderr)
        sys.exit(CANNOT_RUN)
    except KeyboardInterrupt:
        print("pagetier: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
