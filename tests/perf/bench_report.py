# SPDX-License-Identifier: Apache-2.0
"""The report of a large results directory: 500 cells of 4,000 iterations, time and memory.

The directory is made first, both passes and a timeline with each; then `pagetier report` is run
on it as a user would, writing its files.  On a machine that others use too, wall time may be many
times the CPU time: both stand here.  Exit status 1 when a bar is missed or when a second run writes
other bytes.
"""

import argparse
import filecmp
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagetier.analysis.results import Cell, Iteration, Pass, Sample
from pagetier.bench.store import Store

CELLS, ITERATIONS, SAMPLES = 500, 4000, 20
SECONDS_BAR = 60.0
BYTES_BAR = 10**9
EXPERT_BYTES = 10**6
READS = 64
MECHANISMS = ("wall", "balloon")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the report."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def main() -> int:
    """Print the figures as JSON; the exit status says whether the bars are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", help="where to make the results (default: a temporary folder)")
    parser.add_argument("--cells", type=int, default=CELLS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        folder = Path(name)
        make_results(folder / "results", options.cells)
        runs = [report(folder / "results", folder / f"report-{number}") for number in (1, 2)]
        same = all(
            filecmp.cmp(folder / "report-1" / file, folder / "report-2" / file, shallow=False)
            for file in ("report.html", "report.md", "report.json")
        )
        size = (folder / "results/results.db").stat().st_size
    figures = {
        "cells": options.cells,
        "iterations": ITERATIONS,
        "database_bytes": size,
        "seconds": [round(run.seconds, 1) for run in runs],
        "cpu_seconds": [round(run.cpu_seconds, 1) for run in runs],
        "seconds_bar": SECONDS_BAR,
        "peak_bytes": runs[-1].peak_bytes,
        "peak_bytes_bar": BYTES_BAR,
        "second_run_identical": same,
    }
    print(json.dumps(figures, indent=2))
    met = max(run.seconds for run in runs) < SECONDS_BAR and runs[-1].peak_bytes < BYTES_BAR
    return 0 if met and same else 1


def report(results: Path, output: Path) -> Run:
    """The command, its wall and CPU time, and the largest resident set of any child so far."""
    command = [sys.executable, "-m", "pagetier.bench.cli", "report", str(results)]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([*command, "-o", str(output)], check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(seconds, cpu, after.ru_maxrss * 1024)


def make_results(directory: Path, cells: int) -> None:
    """Ten capacities under two mechanisms, and as many repetitions as make up the number."""
    rng = random.Random(1)
    meta = {
        "name": "large",
        "created": "2026-01-01T00:00:00+00:00",
        "pagetier_version": "0",
        "campaign": "{}",
        "host": json.dumps({"kernel": "6.12", "mglru": {"available": True, "enabled": True}}),
        "trace": "{}",
        "pools": "{}",
        "not_run": "[]",
    }
    shutil.rmtree(directory, ignore_errors=True)
    with Store.create(directory, meta) as store:
        for position, spec in enumerate(specs(cells)):
            store.add_cell(make_cell(position, spec, rng))


def specs(cells: int) -> Iterator[dict[str, Any]]:
    """What the cells are, by position."""
    for position in range(cells):
        yield {
            "tier": "page-cache",
            "mechanism": MECHANISMS[position % 2],
            "capacity_bytes": (1 + position // 2 % 10) * 10**9,
            "pool": "pool",
            "layout": "files",
            "mglru": "keep",
            "advice": "default",
            "repetition": 1 + position // 20,
        }


def make_cell(position: int, spec: dict[str, Any], rng: random.Random) -> Cell:
    """A kept cell whose figures follow from its capacity, with some noise."""
    misses = max(1, READS - spec["capacity_bytes"] // (20 * EXPERT_BYTES))
    passes = {
        name: make_pass(name, start_s, misses, rng)
        for name, start_s in (("warm-up", 0), ("measured", ITERATIONS))
    }
    return Cell(
        id=f"{position:012x}",
        position=position,
        spec=spec,
        state="kept",
        reasons=(),
        labels=(),
        started="2026-01-01T00:00:00+00:00",
        finished="2026-01-01T00:01:00+00:00",
        enforced={"capacity_bytes": spec["capacity_bytes"]},
        facts={"expert_bytes": EXPERT_BYTES, "accepted_tokens": ITERATIONS},
        passes=passes,
    )


def make_pass(name: str, start_s: int, misses: int, rng: random.Random) -> Pass:
    """A second per iteration, more or less."""
    read = ITERATIONS * misses * EXPERT_BYTES
    walls = [int(1e9 * rng.uniform(0.9, 1.1)) for _ in range(ITERATIONS)]
    ends = [start_s * 10**9 + (at + 1) * 10**9 for at in range(ITERATIONS)]
    rows = tuple(
        Iteration(at, end, wall, READS * EXPERT_BYTES, READS, 0, misses * EXPERT_BYTES, misses)
        for at, (end, wall) in enumerate(zip(ends, walls, strict=True))
    )
    shots = [
        snapshot(start_s + ITERATIONS * at // SAMPLES, read * at // SAMPLES)
        for at in range(SAMPLES + 1)
    ]
    samples = tuple(Sample(shot["at_ns"], shot) for shot in shots[1:-1])
    return Pass(name, shots[0], shots[-1], {"start_ns": start_s * 10**9}, rows, samples)


def snapshot(at_s: int, read: int) -> dict[str, Any]:
    """About as long as a real one."""
    return {
        "at_ns": at_s * 10**9,
        "device": {"major": 254, "minor": 0, "sectors_read": read // 512},
        "process": {"read_bytes": read},
        "scope": {"file_bytes": 10**9, "io": {"254:0": read}},
        "vmstat": {f"counter_{number}": number for number in range(120)},
        "meminfo": {f"Level{number}": number * 4096 for number in range(20)},
    }


if __name__ == "__main__":
    sys.exit(main())
