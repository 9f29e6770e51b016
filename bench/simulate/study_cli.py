# SPDX-License-Identifier: Apache-2.0
"""`pagetier simulate` with --regime, --off-domain or --paper: studies instead of single replays.

The first two keep to the contract that was asked for; published figures come with their own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from pagetier.analysis.errors import InputError
from pagetier.analysis.simulators import Budget, Contract, ExpertBytes, events_of_trace, prepare
from pagetier.analysis.simulators.contract import Replay
from pagetier.analysis.studies import (
    Workload,
    arrival_offsets,
    batched,
    gap,
    off_domain,
    permuted,
    regime,
    replays,
    workload_of_trace,
)
from pagetier.analysis.studies.paper import Paper
from pagetier.analysis.studies.published import K3, PROSE, PUBLISHED, QWEN
from pagetier.analysis.traces import Trace, read_trace
from pagetier.bench.output import print_json
from pagetier.bench.simulate import study_show
from pagetier.bench.simulate.show import print_csv

__all__ = ["Regimes", "parse_batches", "show_off_domain", "show_paper", "show_regimes"]

PERMUTATIONS = 3
REPLAYS: tuple[Replay, ...] = ("access", "event")


@dataclass(frozen=True, slots=True)
class Regimes:
    """What --regime looks at: budgets by batch sizes; without batches, the trace as recorded."""

    trace: Path
    contract: Contract
    budgets: tuple[Budget, ...]
    sizes: ExpertBytes | None
    batches: tuple[int, ...]
    last_arrival: int
    tie_seeds: int


def parse_batches(text: str | None) -> tuple[int, ...]:
    """`1,2,4,8`; none for None."""
    names = [] if text is None else [name.strip() for name in text.split(",")]
    for name in names:
        if not (name.isascii() and name.isdigit() and 1 <= len(name) < 7 and int(name)):
            raise InputError(f"--batch {text!r} is not a list of batch sizes: write 1,2,4,8")
    return tuple(int(name) for name in names)


def show_regimes(request: Regimes, as_json: bool, as_csv: bool) -> None:
    """Regime, miss fractions, gap and its parts for every batch size and budget."""
    trace = read_trace(request.trace)
    _check_batches(request, trace)
    rows = []
    points = [(places, budget) for places in request.batches or (0,) for budget in request.budgets]
    with progress("studies", len(points)) as advance:
        for number, (places, budget) in enumerate(points):
            rows.append(_regime_row(request, _workload(request, trace, places), budget, places))
            advance(number + 1)
    if as_json:
        print_json({"contract": request.contract.describe(), "rows": rows})
    elif as_csv:
        _print_csv([study_show.flat_regime(row) for row in rows])
    else:
        study_show.print_regimes(rows, request.contract.describe())


def _check_batches(request: Regimes, trace: Trace) -> None:
    if not request.batches:
        return
    if trace.header.batch is not None:
        raise InputError(f"{request.trace} is a batch already: leave --batch out")
    if request.contract.start == "per-request":
        raise InputError("a batch is served as a whole: leave --cold-per-request or --batch out")
    requests = len(trace.requests)
    if max(request.batches) > requests:
        raise InputError(
            f"{request.trace} has {requests} requests and no larger batch: give --batch up to "
            f"{requests}"
        )


def _workload(request: Regimes, trace: Trace, places: int) -> Workload:
    recorded = workload_of_trace(trace)
    if not places:
        return recorded
    return batched(recorded, places, arrival_offsets(len(trace.requests), request.last_arrival))


def _regime_row(
    request: Regimes, workload: Workload, budget: Budget, places: int
) -> dict[str, Any]:
    contract = request.contract
    atomic = prepare(workload.events, replace(contract, replay="event", order="recorded"))
    found = regime(atomic, budget, request.sizes)
    by_seed = [
        gap(workload, replace(contract, seed=seed), budget, request.sizes)
        for seed in range(request.tie_seeds)
    ]
    gaps = [one.gap for one in by_seed if one.gap is not None]
    ties = {"seeds": len(by_seed), "min": min(gaps), "max": max(gaps)} if gaps else None
    inflation = replays(workload, contract, budget, request.sizes)
    return {
        "batch": places or None,
        "last_arrival": request.last_arrival if places else None,
        "mean_active": float(workload.active.mean()),
        "budget": str(budget),
        **contract.as_document(),
        "iterations": atomic.scored_iterations,
        **found.as_document(),
        **by_seed[0].as_document(),
        "gap_by_tie_seed": ties,
        "permuted": _permuted(request, workload, budget),
        "replays": [row.as_document() for row in inflation],
    }


def _permuted(request: Regimes, workload: Workload, budget: Budget) -> dict[str, Any] | None:
    """None where a replay is not scored as a whole: the control has no iterations of its own."""
    contract = request.contract
    if contract.start == "per-request" or contract.warm not in ("nothing", "pass"):
        return None
    found = [
        gap(permuted(workload, seed), contract, budget, request.sizes)
        for seed in range(PERMUTATIONS)
    ]
    gaps = [one.gap for one in found if one.gap is not None]
    return {
        "permutations": len(found),
        "gap_min": min(gaps, default=None),
        "gap_max": max(gaps, default=None),
        "best_causal": sorted({one.best_causal for one in found}),
    }


def show_off_domain(
    paths: list[Path],
    contract: Contract,
    budgets: tuple[Budget, ...],
    sizes: ExpertBytes | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """A table of the first trace on all of them."""
    traces = {str(path): events_of_trace(read_trace(path)) for path in paths}
    if len(traces) < len(paths):
        raise InputError("--off-domain names a trace twice: give each once")
    rows = [
        {**row.as_document(), **contract.as_document()}
        for row in off_domain(str(paths[0]), traces, contract, budgets, sizes)
    ]
    if as_json:
        print_json({"contract": contract.describe(), "rows": rows})
    elif as_csv:
        _print_csv(rows)
    else:
        study_show.print_off_domain(rows, contract.describe())


def show_paper(seed: int, as_json: bool, as_csv: bool) -> None:
    """Every published figure beside ours; the CSV has these rows alone."""
    paper = Paper(seed)
    with progress("published figures", len(PUBLISHED) + 2) as advance:
        rows = []
        for number, published in enumerate(PUBLISHED):
            rows.append(paper.compare(published).as_document())
            advance(number + 1)
        curves = [] if as_csv else _curves(paper)
        advance(len(PUBLISHED) + 1)
        scopes = [] if as_csv else _scopes(paper)
        off_domain_rows = [] if as_csv else _off_domain(paper)
        advance(len(PUBLISHED) + 2)
    figures = {"figure_1": curves, "figure_5": off_domain_rows, "scopes": scopes}
    if as_json:
        print_json({"seed": seed, "rows": rows, **figures})
    elif as_csv:
        _print_csv(rows)
    else:
        study_show.print_paper(rows, figures, seed)


def _curves(paper: Paper) -> list[dict[str, Any]]:
    return [
        point.as_document()
        for model in (QWEN, K3)
        for replay in REPLAYS
        for point in paper.figure_1(model, replay)
    ]


def _scopes(paper: Paper) -> list[dict[str, Any]]:
    return [point.as_document() for replay in REPLAYS for point in paper.scopes(K3, PROSE, replay)]


def _off_domain(paper: Paper) -> list[dict[str, Any]]:
    return [
        {"replay": replay, **row.as_document()}
        for replay in REPLAYS
        for row in paper.figure_5(K3, replay)
    ]


def _print_csv(rows: list[dict[str, Any]]) -> None:
    print_csv([{**row, "tie_spread": None} for row in rows])


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """How far a study is, on stderr, where a person watches."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
