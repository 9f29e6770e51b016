# SPDX-License-Identifier: Apache-2.0
"""What benchmarks share: rounds whose sides take turns, figures with their bars, and telling."""

import argparse
import json
import os
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TypeVar

__all__ = ["Figure", "alternate", "at_least", "at_most", "median_of", "tell"]

Side = TypeVar("Side")


@dataclass(frozen=True, slots=True)
class Figure:
    """A line of the report: a median unless said otherwise; no bar where nothing is promised."""

    name: str
    value: float
    low: float
    high: float
    rounds: int
    bar: float | None = None
    reached: bool = True


def median_of(name: str, values: list[float]) -> Figure:
    """Shown only."""
    return Figure(name, statistics.median(values), min(values), max(values), len(values))


def at_least(bar: float | None, name: str, values: list[float]) -> Figure:
    """Held against a bar from below, where there is one."""
    median = statistics.median(values)
    reached = bar is None or median >= bar
    return Figure(name, median, min(values), max(values), len(values), bar, reached)


def at_most(bar: float | None, name: str, values: list[float]) -> Figure:
    """Held against a bar from above, where there is one."""
    median = statistics.median(values)
    reached = bar is None or median <= bar
    return Figure(name, median, min(values), max(values), len(values), bar, reached)


def alternate(rounds: int, *sides: Callable[[], Side]) -> list[tuple[Side, ...]]:
    """Run all sides in each round, in turning order; results in the order of the arguments."""
    results = []
    for number in range(rounds):
        turn = [(i + number) % len(sides) for i in range(len(sides))]
        runs = {i: sides[i]() for i in turn}
        results.append(tuple(runs[i] for i in range(len(sides))))
    return results


def tell(figures: Iterable[Figure], options: argparse.Namespace) -> int:
    """Show each as it comes, or all as one JSON document; exit status 1 when a bar is missed."""
    if not options.json:
        print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}", flush=True)
    found = []
    for figure in figures:
        found.append(figure)
        if not options.json:
            print(_line(figure), flush=True)
    if options.json:
        host = {"processors": os.cpu_count(), "load_average": os.getloadavg()}
        document = {"options": vars(options), "host": host, "figures": [asdict(f) for f in found]}
        print(json.dumps(document))
    return 0 if all(figure.reached for figure in found) else 1


def _line(figure: Figure) -> str:
    spread = f"{figure.low:.3f} - {figure.high:.3f}"
    line = f"{figure.name:86} {figure.value:9.4f}  ({spread:>17}, n={figure.rounds})"
    if figure.bar is None:
        return line
    return f"{line}  bar {figure.bar:g}  {'ok' if figure.reached else 'MISSED'}"
