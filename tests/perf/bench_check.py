# SPDX-License-Identifier: Apache-2.0
"""What `pagetier check --watch` costs: its CPU time per second of watching, everything included.

    python tests/perf/bench_check.py [SECONDS]

Watches this host, a pool of its own, this process and a feed, at one look a second, with metrics
into a file.  Exit 1 above 0.5 % of one core.
"""

import json
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from pagetier.bench.check.host import Subject
from pagetier.bench.check.run import Look, looks
from pagetier.cgroups.roots import Roots
from pagetier.tiers.create import create_pool

BAR_SHARE = 0.005
LAYERS, EXPERTS, TOP_K, RECORDS_PER_S = 48, 128, 8, 480


def feed_line(number: int) -> str:
    experts = [(number * 7 + index * 13) % EXPERTS for index in range(TOP_K)]
    record = {"req": "r", "step": number // LAYERS, "layer": number % LAYERS, "experts": experts}
    return json.dumps(record) + "\n"


class Watch:
    """CPU time of this thread between two looks, without what is done in the name of the engine."""

    def __init__(self, feed: Path) -> None:
        self._feed = feed
        self._lines = (feed_line(number) for number in range(10**9))
        self.spent_ns = 0
        self.started_ns = time.thread_time_ns()

    def sleep(self, wait_s: float) -> None:
        """Between two looks: the engine writes on."""
        self.spent_ns += time.thread_time_ns() - self.started_ns
        with self._feed.open("a") as file:
            file.writelines(islice(self._lines, RECORDS_PER_S))
        time.sleep(wait_s)
        self.started_ns = time.thread_time_ns()


def share_of_a_core(subject: Subject, folder: Path, seconds: int) -> float:
    watch = Watch(folder / "feed")
    found = looks(Look(subject, 1.0, folder / "x.prom", folder), Roots(), watch.sleep)
    next(found)  # opens everything and walks over all processes once
    watch.spent_ns = 0
    for _ in range(seconds):
        next(found)
    return watch.spent_ns / 1e9 / seconds


def main() -> int:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        create_pool(folder / "pool", LAYERS, EXPERTS, expert_bytes=4096, layout="flat")
        shape = {"num_layers": LAYERS, "num_experts": EXPERTS, "top_k": TOP_K}
        head = {"format": "moe-route-trace", "version": 1, "model": "m", **shape}
        (folder / "feed").write_text(json.dumps(head) + "\n")
        alone = share_of_a_core(Subject(), folder, seconds)
        everything = Subject(pool=folder / "pool", pid=1, feed=str(folder / "feed"))
        fed = share_of_a_core(everything, folder, seconds)
    print(f"host alone {alone:.3%} of one core at one look a second, metrics written")
    print(f"with a pool, a reader and {RECORDS_PER_S} records a second {fed:.3%}")
    return 0 if max(alone, fed) < BAR_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
