# SPDX-License-Identifier: Apache-2.0
"""The simulator beside libCacheSim, in one run on one trace, and the sweep of a whole figure.

The trace: 4 million requests of 82,432 objects by Zipf's law, alpha 1.  libCacheSim reads it from a
memory-mapped file in its oracleGeneral form (which holds the next use of every request: Belady's is
given to it and found by us), from Python, by process_trace.  Two forms of it: as its constructors
come (a hash table of 2^24 entries), and with a table of the size of the universe (2^18), which is
faster here; the bars are held against the first, the second stands beside it.  Counts are compared
before times.  Rounds alternate; figures are medians of paired rounds with their extremes, of CPU
time where one thread works (hosts are shared) and of wall time for the sweep.  Exit status 1 when a
bar is missed.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import libcachesim
import numpy as np
from numpy.typing import NDArray

from pagetier.analysis.simulators import (
    Budget,
    Cell,
    Contract,
    Events,
    lru_curve,
    prepare,
    simulate,
    sweep,
)
from tests.perf.figures import Figure, alternate, at_least, at_most, median_of, tell

REQUESTS, OBJECTS = 4_000_000, 82_432
DEFAULT_TABLE, FITTED_TABLE = 24, 18
PEERS = {
    "lru": ("LRU", 10.0),
    "lfu-in-cache": ("LFU", 5.0),
    "belady-forced": ("Belady", 5.0),
    "s3-fifo": ("S3FIFO", 10.0),
    "sieve": ("Sieve", None),
    "arc": ("ARC", None),
}
CURVE_BAR = 1.0
# Figure 1 at E = 896: four domains of 285 iterations of 92 layers of about 18 reads.
DOMAINS, ITERATIONS, LAYERS, EXPERTS, READS = 4, 285, 92, 896, 18
FIGURE_BUDGETS = (8, 16, 32, 64, 96, 159, 224)
FIGURE_POLICIES = ("static", "lfu", "lru", "belady")
FIGURE_BAR_S = 10.0
NEVER = 2**63 - 1


def zipf(seed: int, requests: int, objects: int) -> NDArray[np.uint32]:
    rng = np.random.default_rng(seed)
    weight = np.cumsum(1 / np.arange(1, objects + 1))
    rank = np.searchsorted(weight / weight[-1], rng.random(requests))
    return rng.permutation(objects).astype(np.uint32)[np.minimum(rank, objects - 1)]


def write_oracle_general(path: Path, ids: NDArray[np.uint32]) -> None:
    fields = [("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")]
    order = np.argsort(ids, kind="stable")
    again = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    records = np.zeros(len(ids), dtype=fields)
    records["time"] = np.arange(len(ids)) // 1000
    records["id"], records["size"], records["next"] = ids, 1, NEVER
    records["next"][order[again]] = order[again + 1]
    records.tofile(path)


def cpu_s(function: Callable[[], object]) -> float:
    began = time.process_time()
    function()
    return time.process_time() - began


def timed(function: Callable[[], object]) -> Callable[[], float]:
    return lambda: cpu_s(function)


def wall_s(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def events_of(ids: NDArray[np.uint32]) -> Events:
    """Every request an event and all of them one iteration."""
    starts = np.arange(len(ids) + 1, dtype=np.uint64)
    whole = np.array([0, len(ids)], dtype=np.uint64)
    return Events(ids, starts, whole, np.zeros(1, dtype=np.int64), 1, OBJECTS)


class Bench:
    """One trace, ours and theirs."""

    def __init__(self, path: Path, experts: int) -> None:
        ids = zipf(1, REQUESTS, OBJECTS)
        write_oracle_general(path, ids)
        self.experts = experts
        self.prepared = prepare(events_of(ids), Contract("access", scope="global"))
        kind = libcachesim.TraceType.ORACLE_GENERAL_TRACE
        self.reader = libcachesim.TraceReader(str(path), kind)

    def ours(self, policy: str) -> int:
        return simulate(self.prepared, policy, Budget("experts", self.experts)).misses

    def theirs(self, name: str, table: int) -> int:
        cache = getattr(libcachesim, name)(cache_size=self.experts, hashpower=table)
        self.reader.reset()
        miss_ratio, _ = cache.process_trace(self.reader)
        return int(miss_ratio * REQUESTS + 0.5)

    def policies(self, rounds: int) -> Iterator[Figure]:
        for policy, (name, bar) in PEERS.items():
            if self.ours(policy) != self.theirs(name, FITTED_TABLE):
                raise SystemExit(f"{policy} does not count what libCacheSim's {name} counts")
            times = alternate(
                rounds,
                timed(partial(self.ours, policy)),
                timed(partial(self.theirs, name, DEFAULT_TABLE)),
                timed(partial(self.theirs, name, FITTED_TABLE)),
            )
            title = f"{policy}, {self.experts:,} of {OBJECTS:,}"
            yield median_of(f"{title}: ns per request", [t[0] / REQUESTS * 1e9 for t in times])
            yield at_least(bar, f"{title}: times libCacheSim", [t[1] / t[0] for t in times])
            yield median_of(f"{title}: times it with a fitted table", [t[2] / t[0] for t in times])

    def curve(self, rounds: int) -> Iterator[Figure]:
        times = alternate(
            rounds,
            timed(partial(lru_curve, self.prepared)),
            timed(partial(self.theirs, "LRU", DEFAULT_TABLE)),
            timed(partial(self.theirs, "LRU", FITTED_TABLE)),
        )
        title = "lru at all capacities"
        yield median_of(f"{title}: ns per request", [t[0] / REQUESTS * 1e9 for t in times])
        ratios = [t[1] / t[0] for t in times]
        yield at_least(CURVE_BAR, f"{title}: times libCacheSim at one", ratios)
        yield median_of(f"{title}: times it with a fitted table", [t[2] / t[0] for t in times])


def domain(seed: int) -> Events:
    """Distinct experts a layer and step, popular ones more often."""
    rng = np.random.default_rng(seed)
    events = ITERATIONS * LAYERS
    popularity = np.log(1 / np.arange(1, EXPERTS + 1))[rng.permutation(EXPERTS)]
    ids = np.empty((events, READS), dtype=np.uint32)
    for first in range(0, events, 1000):
        some = min(1000, events - first)
        noisy = popularity + rng.gumbel(size=(some, EXPERTS))
        chosen = np.argpartition(-noisy, READS, axis=1)[:, :READS]
        layer = (np.arange(first, first + some) % LAYERS)[:, None]
        ids[first : first + some] = layer * EXPERTS + chosen
    return Events(
        experts=ids.ravel(),
        event_start=np.arange(0, ids.size + 1, READS, dtype=np.uint64),
        iteration_start=np.arange(0, events + 1, LAYERS, dtype=np.uint64),
        request=np.zeros(ITERATIONS, dtype=np.int64),
        num_layers=LAYERS,
        num_experts=EXPERTS,
    )


def whole_figure(rounds: int) -> Iterator[Figure]:
    traces = [domain(seed) for seed in range(DOMAINS)]

    def run() -> None:
        cells = []
        for scope in ("per-layer", "global"):
            scale = 1 if scope == "per-layer" else LAYERS
            for events in traces:
                contract = Contract(scope="global" if scope == "global" else "per-layer", warm=0.6)
                prepared = prepare(events, contract)
                for policy in FIGURE_POLICIES:
                    budgets = (Budget("experts", b * scale) for b in FIGURE_BUDGETS)
                    cells += [Cell(prepared, policy, budget) for budget in budgets]
        sweep(cells)

    took = [wall_s(run) for _ in range(rounds)]
    yield at_most(FIGURE_BAR_S, "figure of 224 cells at E = 896: s", took)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--directory", default="/var/tmp", help="where the trace is written")
    parser.add_argument("--experts", type=int, default=OBJECTS // 10, help="capacity")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        bench = Bench(Path(name) / "zipf.oracleGeneral.bin", options.experts)
        sources = (bench.policies(options.rounds), bench.curve(options.rounds), whole_figure(3))
        return tell(chain.from_iterable(sources), options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
