# SPDX-License-Identifier: Apache-2.0
"""`pagetier simulate`: what caches of given sizes would have missed of a trace.

The contract (replay semantics, order, scope, window, cold starts, tie seed) stands in every row and
above the table.  Progress goes to stderr, and only where a person watches.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.console import Console
from rich.progress import Progress

from pagetier.analysis.errors import InputError
from pagetier.analysis.simulators import (
    POLICIES,
    Budget,
    Cell,
    Contract,
    ExpertBytes,
    Row,
    Table,
    events_of_trace,
    parse_budget,
    prepare,
    sweep,
    table_of,
    tie_spread,
)
from pagetier.analysis.simulators.conformance import CAPACITY, replay_all
from pagetier.analysis.simulators.contract import Order, Replay, Scope, Warm
from pagetier.analysis.simulators.rows import row_document
from pagetier.analysis.simulators.simulate import check_policy
from pagetier.analysis.traces import read_trace
from pagetier.analysis.units import parse_bytes
from pagetier.bench.output import FINDING, Json, print_json
from pagetier.bench.simulate.show import present, print_csv
from pagetier.bench.simulate.study_cli import (
    Regimes,
    parse_batches,
    show_off_domain,
    show_paper,
    show_regimes,
)
from pagetier.tiers.pool import open_pool

__all__ = ["simulate_command"]

MAX_TIE_SEEDS = 1000


@dataclass(frozen=True, slots=True)
class Request:
    """A grid: policies by budgets under one contract, for some tie seeds."""

    trace: Path
    policies: tuple[str, ...]
    budgets: tuple[Budget, ...]
    contract: Contract
    sizes: ExpertBytes | None
    table: Table | None
    tie_seeds: int


def simulate_command(
    trace: Annotated[
        Path | None, typer.Argument(metavar="[TRACE]", help="A moe-route-trace file.")
    ] = None,
    policy: Annotated[
        str, typer.Option(help=f"Comma-separated: {', '.join(POLICIES)}.")
    ] = "lru,lfu,static,belady",
    budget: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated: experts (of each layer under per-layer scope), bytes in all "
            "('7.5 GB'), or a share of all experts ('40 %')."
        ),
    ] = None,
    scope: Annotated[str, typer.Option(help="per-layer or global.")] = "per-layer",
    replay: Annotated[str, typer.Option(help="event (event-atomic) or access.")] = "event",
    order: Annotated[
        str, typer.Option(help="Within an event, under access replay: recorded, ascending, random.")
    ] = "recorded",
    window: Annotated[
        float | None, typer.Option(help="Warm on this share of the iterations, score the rest.")
    ] = None,
    warm_pass: Annotated[
        bool, typer.Option("--warm-pass", help="Warm on a whole pass, score a second one.")
    ] = False,
    cold_per_request: Annotated[
        bool, typer.Option("--cold-per-request", help="An empty cache for every request.")
    ] = False,
    expert_bytes: Annotated[str | None, typer.Option(help="Size of one expert.")] = None,
    pool: Annotated[
        Path | None, typer.Option(help="Take the sizes of this pool's experts.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="Freeze the static set from this other trace.")
    ] = None,
    tie_seeds: Annotated[
        int, typer.Option(min=1, max=MAX_TIE_SEEDS, help="Seeds to settle ties with: 0, 1, ...")
    ] = 3,
    conformance: Annotated[
        bool, typer.Option("--conformance", help="Replay the conformance trace instead.")
    ] = False,
    regime: Annotated[
        bool,
        typer.Option(
            "--regime",
            help="Instead: what a step needs against what a layer holds, miss fractions, the gap "
            "to the offline optimum, its parts, and what replay semantics and event order change.",
        ),
    ] = False,
    batch: Annotated[
        str | None,
        typer.Option(help="With --regime: requests served together, e.g. 1,2,4,8; FCFS."),
    ] = None,
    last_arrival: Annotated[
        int, typer.Option(min=0, help="With --batch: requests arrive at random steps from 0 to it.")
    ] = 23,
    off_domain: Annotated[
        list[Path] | None,
        typer.Option(
            help="Instead: a static table of TRACE on this other trace, beside LRU; repeatable."
        ),
    ] = None,
    paper: Annotated[
        bool,
        typer.Option("--paper", help="Instead: the published figures beside synthesised traces'."),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="With --paper: seed of the traces.")] = 0,
    as_csv: Annotated[bool, typer.Option("--csv", help="Rows as CSV on stdout.")] = False,
    as_json: Json = False,
) -> None:
    """Hits and misses of cache policies on a trace, exactly; see docs/conformance.md."""
    if as_csv and as_json:
        raise InputError("--csv and --json are two forms of the one result: give one of them")
    if regime + bool(off_domain) + paper + conformance > 1:
        raise InputError(
            "--regime, --off-domain, --paper and --conformance are results of their own: give one"
        )
    if batch is not None and not regime:
        raise InputError("--batch is for --regime; `pagetier trace merge` writes a batch's trace")
    if conformance:
        _conform(as_json, as_csv)
        return
    if paper:
        show_paper(seed, as_json, as_csv)
        return
    if trace is None or budget is None:
        raise InputError("simulate replays a trace at given budgets: simulate TRACE --budget 8,16")
    budgets = tuple(parse_budget(text) for text in budget.split(","))
    contract = _contract(replay, order, scope, _warm(window, warm_pass), cold_per_request)
    sizes = _sizes(expert_bytes, pool)
    if off_domain:
        show_off_domain([trace, *off_domain], contract, budgets, sizes, as_json, as_csv)
        return
    if regime:
        batches = parse_batches(batch)
        regimes = Regimes(trace, contract, budgets, sizes, batches, last_arrival, tie_seeds)
        show_regimes(regimes, as_json, as_csv)
        return
    request = Request(
        trace=trace,
        policies=_policies(policy),
        budgets=budgets,
        contract=contract,
        sizes=sizes,
        table=None if table is None else table_of(events_of_trace(read_trace(table)), str(table)),
        tie_seeds=tie_seeds,
    )
    present(_documents(_run(request)), as_json, as_csv, request.contract.describe())


def _policies(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        check_policy(name)
    return names


def _warm(window: float | None, warm_pass: bool) -> Warm:
    if window is not None and warm_pass:
        raise InputError("--window and --warm-pass are two ways to warm a cache: give one of them")
    if window is not None and not 0 <= window < 1:
        raise InputError(f"--window {window:g} leaves nothing to score: give a share below 1")
    if warm_pass:
        return "pass"
    return "nothing" if window is None else window


def _contract(replay: str, order: str, scope: str, warm: Warm, cold_per_request: bool) -> Contract:
    if order != "recorded" and replay == "event":
        raise InputError("an event has no order under --replay event: leave --order out")
    return Contract(
        replay=_one_of("--replay", get_args(Replay), replay),
        order=_one_of("--order", get_args(Order), order),
        scope=_one_of("--scope", get_args(Scope), scope),
        warm=warm,
        start="per-request" if cold_per_request else "once",
    )


def _one_of(option: str, names: tuple[Any, ...], wanted: str) -> Any:
    if wanted not in names:
        raise InputError(f"{option} {wanted} is not known: take one of {', '.join(names)}")
    return wanted


def _sizes(expert_bytes: str | None, pool: Path | None) -> ExpertBytes | None:
    if expert_bytes is not None and pool is not None:
        raise InputError("--expert-bytes and --pool both say how large an expert is: give one")
    if expert_bytes is not None:
        size = parse_bytes(expert_bytes)
        if size < 1:
            raise InputError("--expert-bytes 0 is no size of an expert: give at least 1")
        return size
    return None if pool is None else open_pool(pool).size_of_experts


def _run(request: Request) -> list[list[Row]]:
    """Rows of every tie seed."""
    events = events_of_trace(read_trace(request.trace))
    if not isinstance(request.sizes, int | None) and len(request.sizes) != events.total_experts:
        raise InputError(
            f"{request.trace} has {events.total_experts} experts and the pool "
            f"{len(request.sizes)}: give the pool of its model"
        )
    grid = [(policy, budget) for policy in request.policies for budget in request.budgets]
    rows = []
    with _progress(len(grid) * request.tie_seeds) as advance:
        for seed in range(request.tie_seeds):
            prepared = prepare(events, replace(request.contract, seed=seed))
            cells = [Cell(prepared, policy, budget) for policy, budget in grid]
            told = partial(_told, advance, seed * len(grid))
            rows.append(sweep(cells, request.sizes, request.table, on_done=told))
    return rows


def _told(advance: Callable[[int], None], before: int, done: int) -> None:
    advance(before + done)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("replays", total=total)
        yield lambda done: bar.update(task, completed=done)


def _documents(rows: list[list[Row]]) -> list[dict[str, Any]]:
    by_cell = list(zip(*rows, strict=True))
    return [row_document(seeds[0], tie_spread(seeds)) for seeds in by_cell]


def _conform(as_json: bool, as_csv: bool) -> None:
    replays = replay_all()
    documents = []
    for expected, outcome in replays:
        documents.append(
            {
                "policy": "lru",
                "budget_experts": CAPACITY,
                **expected.contract.as_document(),
                "accesses": outcome.accesses,
                "hits": outcome.hits,
                "misses": outcome.misses,
                "expected_hits": expected.hits,
                "expected_misses": expected.misses,
            }
        )
    conforms = all(
        (row["hits"], row["misses"]) == (row["expected_hits"], row["expected_misses"])
        for row in documents
    )
    if as_json:
        print_json({"conforms": conforms, "rows": documents})
    elif as_csv:
        print_csv([{**row, "tie_spread": None} for row in documents])
    else:
        for expected, outcome in replays:
            print(
                f"LRU, {CAPACITY} experts a layer, {expected.contract.describe()}: "
                f"{outcome.hits} hits, {outcome.misses} misses "
                f"(must be {expected.hits} and {expected.misses})"
            )
    if not conforms:
        raise typer.Exit(FINDING)
