# SPDX-License-Identifier: Apache-2.0
"""The arena's copy path beside a bare memcpy, and what the prefetch worker costs, in one run.

Copies: the same sizes in the same order out of a locked region, by as many threads; both sides lock
theirs anew in each round, for where its pages lie decides more than who copies.  Worker:
replays of a pool that is wholly in the page cache, with and without it; each record hints the
experts of the next, and residency is asked before each read on both sides.  Its bar is for hosts
with a processor to spare; without one the worker leaves more hints to be overwritten.  Rounds
alternate which side goes first; figures are medians of the paired rounds, with their extremes.  On
a machine that others use too, wall times differ by half and CPU times hardly: both stand here.
What hints bring, whole and in chunks, and what each way of reading asks of the device are counts,
made once.  Exit status 1 when a bar is missed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagetier.native import content
from pagetier.native.arena import Arena, slot_bytes
from pagetier.native.hints import HintDelivery
from pagetier.native.passes import PassResult
from pagetier.native.reader import EXTENT_DTYPE, ExtentTable, Mode, Reader
from pagetier.native.residency import resident_pages
from tests.perf.figures import Figure, alternate, at_least, at_most, median_of, tell

COPY_BAR = 0.98
WORKER_BAR = 1.01
EXPERT_BYTES = (13_236_480, 1 << 20)  # the first is one expert of gpt-oss-20b
RECORD_READS = 4
MAPPED_OR_NOT: tuple[Mode, ...] = ("pread", "mmap")


@dataclass(frozen=True, slots=True)
class Plan:
    """Reads in records of RECORD_READS, all of one iteration, and hints for the next record."""

    experts: NDArray[np.uint32]

    @property
    def record_start(self) -> NDArray[np.uint64]:
        return np.arange(0, len(self.experts) + 1, RECORD_READS, dtype=np.uint64)

    @property
    def iteration_start(self) -> NDArray[np.uint64]:
        return np.array([0, len(self.experts) // RECORD_READS], dtype=np.uint64)

    @property
    def hint_start(self) -> NDArray[np.uint64]:
        return np.append(self.record_start[:-1], self.record_start[-2])

    @property
    def hint_experts(self) -> NDArray[np.uint32]:
        return self.experts[RECORD_READS:]


@dataclass(frozen=True, slots=True)
class Run:
    """One side of one round; all CPU time, that of the reading threads alone, lost hints."""

    wall_ns: int
    cpu_ns: int
    readers_ns: int
    overwritten_share: float = 0.0


def counted(name: str, value: float) -> Figure:
    return median_of(name, [value])


class Bench:
    """Files of one expert each, and the plain program, in a directory of its own."""

    def __init__(self, directory: Path, pool_bytes: int, threads: int) -> None:
        self.threads = threads
        self._directory = directory
        self._pool_bytes = pool_bytes
        self._plain = directory / "plain_memcpy"
        source = Path(__file__).with_name("plain_memcpy.c")
        flags = ["-O2", "-D_GNU_SOURCE", "-pthread"]
        subprocess.run(["cc", *flags, str(source), "-o", str(self._plain)], check=True)

    def pool(self, expert_bytes: int) -> ExtentTable:
        count = max(RECORD_READS, self._pool_bytes // expert_bytes)
        paths = []
        for expert in range(count):
            path = self._directory / f"{expert_bytes}.{expert}"
            with path.open("wb") as file:
                content.write(file.fileno(), 0, expert_bytes, 1, expert)
                os.fsync(file.fileno())
            paths.append(str(path))
        extents = np.zeros(count, dtype=EXTENT_DTYPE)
        extents["file"] = np.arange(count)
        extents["length"] = expert_bytes
        return ExtentTable(tuple(paths), extents, np.arange(count + 1, dtype=np.uint64))

    def plain(self, plan: Plan, table: ExtentTable) -> Run:
        slots = slot_bytes(table)
        offsets = (np.cumsum(slots) - slots)[plan.experts]
        arguments = [int(slots.sum()), int(table.extents["length"][0]), self.threads]
        with tempfile.TemporaryFile(dir=self._directory) as file:
            file.write(offsets.astype(np.int64).tobytes())
            file.seek(0)
            command = [str(self._plain), *map(str, arguments)]
            done = subprocess.run(command, stdin=file, stdout=subprocess.PIPE, check=True)
        wall_ns, user_ns, system_ns = (int(number) for number in done.stdout.split())
        return Run(wall_ns, user_ns + system_ns, user_ns + system_ns)


def run_of(result: PassResult) -> Run:
    hints = result.hints
    readers_ns = result.user_ns + result.system_ns
    wall_ns = int(result.iteration_end_ns[-1]) - result.start_ns
    if hints is None:
        return Run(wall_ns, readers_ns, readers_ns)
    share = float(hints.overwritten.sum() / hints.submitted.sum())
    return Run(wall_ns, readers_ns + hints.user_ns + hints.system_ns, readers_ns, share)


def vm_lck_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmLck"))) * 1024


def make_plan(table: ExtentTable, total_bytes: int, seed: int) -> Plan:
    rng = np.random.default_rng(seed)
    count = len(table.paths)
    records = max(2, total_bytes // int(table.extents["length"][0]) // RECORD_READS)
    choices = [rng.choice(count, RECORD_READS, replace=False) for _ in range(records)]
    return Plan(np.concatenate(choices).astype(np.uint32))


def copies(bench: Bench, table: ExtentTable, options: argparse.Namespace) -> Iterator[Figure]:
    length = int(table.extents["length"][0])
    plan = make_plan(table, options.copy_bytes, length)
    speed: list[float] = []

    def ours() -> Run:
        with Arena(table, range(len(table.paths)), vm_lck_bytes=vm_lck_bytes) as arena:
            loaded = arena.preload()
            speed.append(loaded.bytes / loaded.ns)
            with Reader(table, arena=arena, threads=bench.threads, barrier="none") as reader:
                reader.replay(make_plan(table, 0, length))
                return run_of(reader.replay(plan))

    pairs = alternate(options.rounds, ours, lambda: bench.plain(plan, table))
    yield median_of(f"preload, {length:,} B: GB/s", speed)
    title = f"arena, {length:,} B"
    speeds = [len(plan.experts) * length / our.wall_ns for our, _ in pairs]
    yield median_of(f"{title}: GB/s", speeds)
    ratios = [plain.wall_ns / our.wall_ns for our, plain in pairs]
    yield at_least(COPY_BAR, f"{title}: throughput / plain memcpy", ratios)
    ratios = [plain.cpu_ns / our.cpu_ns for our, plain in pairs]
    yield median_of(f"{title}: plain memcpy's CPU time / ours", ratios)


def worker(
    table: ExtentTable,
    options: argparse.Namespace,
    mode: Mode,
    threads: int,
    delivery: HintDelivery,
) -> Iterator[Figure]:
    length = int(table.extents["length"][0])
    plan = make_plan(table, options.warm_bytes, length)
    with (
        Reader(table, threads=threads, mode=mode, residency="cachestat") as alone,
        Reader(table, threads=threads, mode=mode, residency="cachestat", hints=delivery) as helped,
    ):
        alone.replay(plan)
        helped.replay(plan, hints=plan)  # each has a mapping of its own to fill
        pairs = alternate(
            options.rounds,
            lambda: run_of(without_a_miss(helped.replay(plan, hints=plan))),
            lambda: run_of(without_a_miss(alone.replay(plan))),
        )
    bar = WORKER_BAR if threads < (os.cpu_count() or 1) else None
    title = f"{mode}, {length:,} B, {threads} threads, {delivery.how}: with worker / without"
    walls = [helped.wall_ns / alone.wall_ns for helped, alone in pairs]
    yield at_most(bar, f"{title}, wall", walls)
    readers = [helped.readers_ns / alone.readers_ns for helped, alone in pairs]
    yield at_most(bar, f"{title}, CPU of readers", readers)
    everything = [helped.cpu_ns / alone.cpu_ns for helped, alone in pairs]
    yield median_of(f"{title}, CPU of all", everything)
    shares = [helped.overwritten_share for helped, _ in pairs]
    yield median_of(f"{title}, hints overwritten", shares)


def without_a_miss(result: PassResult) -> PassResult:
    """Up to the pages that cachestat overlooks on a busy host."""
    if result.iteration_first_bytes is None or result.iteration_repeat_bytes is None:
        raise SystemExit("residency is unknown here")
    absent = int(result.iteration_first_bytes.sum() + result.iteration_repeat_bytes.sum())
    if absent > result.iteration_bytes.sum() / 10_000:
        raise SystemExit("the pool does not stay in the page cache: take a smaller --pool-bytes")
    return result


def evict(table: ExtentTable) -> None:
    for _ in range(50):
        left = 0
        for path in table.paths:
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            left += resident_pages(fd, 0, os.fstat(fd).st_size) or 0
            os.close(fd)
        if left == 0:
            return
        time.sleep(0.1)
    raise SystemExit("the pool cannot be proved cold")


@dataclass(frozen=True, slots=True)
class Once:
    """One read of the first expert, and a hint for all others."""

    num_experts: int

    @property
    def experts(self) -> NDArray[np.uint32]:
        return np.zeros(1, dtype=np.uint32)

    @property
    def record_start(self) -> NDArray[np.uint64]:
        return np.array([0, 1], dtype=np.uint64)

    @property
    def iteration_start(self) -> NDArray[np.uint64]:
        return np.array([0, 1], dtype=np.uint64)

    @property
    def hint_start(self) -> NDArray[np.uint64]:
        return np.array([0, self.num_experts - 1], dtype=np.uint64)

    @property
    def hint_experts(self) -> NDArray[np.uint32]:
        return np.arange(1, self.num_experts, dtype=np.uint32)


def hinted(table: ExtentTable) -> Iterator[Figure]:
    """What hints bring of an idle pool, per byte hinted."""
    length = int(table.extents["length"][0])
    plan = Once(len(table.paths))
    for name, chunk_bytes in (("chunked", HintDelivery().chunk_bytes), ("whole", 0)):
        evict(table)
        delivery = HintDelivery(chunk_bytes=chunk_bytes)
        with Reader(table, hints=delivery, threads=1) as reader:
            hints = reader.replay(plan, hints=plan).hints
        if hints is None or hints.resident_after_bytes is None:
            raise SystemExit("residency is unknown here")
        share = float(hints.resident_after_bytes.sum() / hints.hinted_bytes.sum())
        yield counted(f"hints {name}, {length:,} B: bytes resident after / hinted", share)


def process_read_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes")))


def device(table: ExtentTable) -> Iterator[Figure]:
    """Bytes that this process had read from the device, per byte of demand, of two equal passes."""
    length = int(table.extents["length"][0])
    plan = Plan(np.tile(np.arange(len(table.paths) // 4 * 4, dtype=np.uint32), 2))
    modes: tuple[Mode, ...] = ("pread", "direct", "dontcache", "drop-behind")
    for mode in modes:
        evict(table)
        with Reader(table, mode=mode) as reader:
            before = process_read_bytes()
            result = reader.replay(plan)
            read = process_read_bytes() - before
        demand = int(result.iteration_bytes.sum())
        yield counted(f"{mode}, {length:,} B: device bytes / demand, two passes", read / demand)


@contextmanager
def prepared(options: argparse.Namespace) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        yield Bench(Path(name), options.pool_bytes, options.threads)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--directory", default="/var/tmp", help="where the pool is made")
    parser.add_argument("--pool-bytes", type=int, default=160 * 10**6)
    parser.add_argument("--copy-bytes", type=int, default=8 * 10**9, help="copied per run")
    parser.add_argument("--warm-bytes", type=int, default=4 * 10**9, help="read per warm run")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser.parse_args(arguments)


def figures_of(bench: Bench, options: argparse.Namespace) -> Iterator[Figure]:
    for expert_bytes in EXPERT_BYTES:
        table = bench.pool(expert_bytes)
        yield from copies(bench, table, options)
        yield from hinted(table)
        yield from device(table)
        for threads in sorted({1, bench.threads}):
            for mode in MAPPED_OR_NOT:
                yield from worker(table, options, mode, threads, HintDelivery())


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    with prepared(options) as bench:
        return tell(figures_of(bench, options), options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
