# SPDX-License-Identifier: Apache-2.0
"""The reader beside fio and beside a bare pread loop, in one run on one file.

fio reads by psync from as many threads, with the same block size and no hints, the very order that
the reader reads in (its threads replay shares of it, and what they read is compared with it first).
Rounds alternate which side goes first; figures are medians of the paired rounds, with their
extremes.  Warm: the whole file is in the page cache.  Cold: no page of it is, as proved before each
run.  On a machine that others use too, wall times differ by half and CPU times hardly: both stand
here.  Exit status 1 when a bar is missed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagetier.native import content
from pagetier.native.reader import EXTENT_DTYPE, Barrier, ExtentTable, Reader
from pagetier.native.residency import pages_touched, resident_pages
from tests.perf.figures import Figure, alternate, at_least, at_most, median_of, tell

THROUGHPUT_BAR = 0.97
USER_SHARE_BAR = 0.01
OVERHEAD_BAR_US = 1.5
LARGE_BLOCKS = (13_236_480, 1 << 20)  # the first is one expert of gpt-oss-20b
SMALL_BLOCK = 64 << 10
RECORD_READS = 8
FLAT_FILE = "pool"


@dataclass(frozen=True, slots=True)
class Order:
    """Block numbers in the order of reading; record_start and so on make it a plan."""

    experts: NDArray[np.uint32]
    block_bytes: int
    num_blocks: int

    @property
    def record_start(self) -> NDArray[np.uint64]:
        starts = np.arange(0, len(self.experts), RECORD_READS, dtype=np.uint64)
        return np.append(starts, np.uint64(len(self.experts)))

    @property
    def iteration_start(self) -> NDArray[np.uint64]:
        return np.array([0, len(self.record_start) - 1], dtype=np.uint64)

    @property
    def offsets(self) -> NDArray[np.int64]:
        return self.experts.astype(np.int64) * self.block_bytes


@dataclass(frozen=True, slots=True)
class Run:
    """One side of one round."""

    wall_ns: int
    user_ns: int
    system_ns: int

    @property
    def cpu_ns(self) -> int:
        return self.user_ns + self.system_ns


def make_order(file_bytes: int, block_bytes: int, passes: int) -> Order:
    """Each pass is a permutation of all blocks."""
    rng = np.random.default_rng(block_bytes)
    num_blocks = file_bytes // block_bytes
    order = np.concatenate([rng.permutation(num_blocks) for _ in range(passes)])
    return Order(order.astype(np.uint32), block_bytes, num_blocks)


class Bench:
    """The file, and the ways to read it, in a directory of its own."""

    def __init__(self, directory: Path, file_bytes: int, threads: int) -> None:
        self._directory = directory
        self._file_bytes = file_bytes
        self._threads = threads
        self._fd = os.open(directory / FLAT_FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        content.write(self._fd, 0, file_bytes, 1, 0)
        os.fsync(self._fd)
        self._plain = directory / "plain_pread"
        source = Path(__file__).with_name("plain_pread.c")
        flags = ["-O2", "-D_GNU_SOURCE", "-pthread"]
        subprocess.run(["cc", *flags, str(source), "-o", str(self._plain)], check=True)

    def close(self) -> None:
        os.close(self._fd)

    def warm(self) -> None:
        """Every page is in the cache."""
        pages = pages_touched(0, self._file_bytes)
        for _ in range(5):
            if resident_pages(self._fd, 0, self._file_bytes) == pages:
                return
            with open(self._directory / FLAT_FILE, "rb", buffering=0) as file:
                while file.read(8 << 20):
                    pass
        raise SystemExit("the file does not stay in the page cache: take a smaller --file-bytes")

    def cold(self) -> None:
        """No page is in the cache."""
        for _ in range(50):
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if resident_pages(self._fd, 0, self._file_bytes) == 0:
                return
            time.sleep(0.1)  # readahead still on its way
        raise SystemExit("the file cannot be proved cold: is it in use, or residency unknown?")

    def reader(self, order: Order, barrier: Barrier = "none") -> Run:
        extents = np.zeros(order.num_blocks, dtype=EXTENT_DTYPE)
        extents["offset"] = np.arange(order.num_blocks, dtype=np.uint64) * order.block_bytes
        extents["length"] = order.block_bytes
        starts = np.arange(order.num_blocks + 1, dtype=np.uint64)
        table = ExtentTable((str(self._directory / FLAT_FILE),), extents, starts)
        threads = self._threads
        with Reader(table, threads=threads, barrier=barrier, residency="off") as reader:
            result = reader.replay(order)
        wall_ns = int(result.iteration_end_ns[-1]) - result.start_ns
        return Run(wall_ns, result.user_ns, result.system_ns)

    def plain(self, order: Order) -> Run:
        command = [str(self._plain), FLAT_FILE, str(order.block_bytes), str(self._threads)]
        with tempfile.TemporaryFile(dir=self._directory) as offsets:
            offsets.write(order.offsets.tobytes())
            offsets.seek(0)
            done = subprocess.run(
                command, cwd=self._directory, stdin=offsets, stdout=subprocess.PIPE, check=True
            )
        wall_ns, user_ns, system_ns = (int(number) for number in done.stdout.split())
        return Run(wall_ns, user_ns, system_ns)

    def prepare_fio(self, order: Order) -> None:
        """Write each thread's share, and make sure that fio reads just that."""
        job = ["[global]", "ioengine=psync", "thread=1", "fadvise_hint=0", "invalidate=0"]
        job += [f"bs={order.block_bytes}", "group_reporting=1"]
        for thread in range(self._threads):
            lines = ["fio version 2 iolog", f"{FLAT_FILE} add", f"{FLAT_FILE} open"]
            for offset in order.offsets[thread :: self._threads].tolist():
                lines.append(f"{FLAT_FILE} read {offset} {order.block_bytes}")
            lines.append(f"{FLAT_FILE} close\n")
            (self._directory / f"share.{thread}").write_text("\n".join(lines))
            job += [f"[thread{thread}]", f"read_iolog=share.{thread}"]
        (self._directory / "job.fio").write_text("\n".join([*job, ""]))
        self._check_fio_order(order)

    def _check_fio_order(self, order: Order) -> None:
        self._run_fio("--write_lat_log=seen", "--log_offset=1")
        for thread in range(self._threads):
            log = (self._directory / f"seen_clat.{thread + 1}.log").read_text().splitlines()
            seen = [int(line.split(",")[4]) for line in log]
            if seen != order.offsets[thread :: self._threads].tolist():
                raise SystemExit(f"fio's thread {thread} does not read the order it was given")

    def fio(self, order: Order) -> Run:
        job = json.loads(self._run_fio())["jobs"][0]
        if job["read"]["io_bytes"] != len(order.experts) * order.block_bytes:
            raise SystemExit("fio did not read what it was given")
        wall_ns = int(job["read"]["runtime"]) * 1_000_000
        percent_ns = wall_ns * self._threads / 100  # of all threads together
        user_ns, system_ns = (int(job[name] * percent_ns) for name in ("usr_cpu", "sys_cpu"))
        return Run(wall_ns, user_ns, system_ns)

    def _run_fio(self, *options: str) -> str:
        command = ["fio", "--output-format=json", *options, "job.fio"]
        done = subprocess.run(command, cwd=self._directory, stdout=subprocess.PIPE, check=True)
        return done.stdout.decode()


def user_share(name: str, runs: list[Run]) -> Figure:
    """Of all runs together: the kernel counts in ticks, which are few in one cold run."""
    shares = [run.user_ns / (run.user_ns + run.system_ns) for run in runs]
    user_ns = sum(run.user_ns for run in runs)
    share = user_ns / (user_ns + sum(run.system_ns for run in runs))
    reached = share <= USER_SHARE_BAR
    return Figure(name, share, min(shares), max(shares), len(runs), USER_SHARE_BAR, reached)


def throughput(bench: Bench, options: argparse.Namespace, block: int) -> Iterator[Figure]:
    """Ours over fio's, and the share of user time."""
    warm_passes = max(1, round(options.warm_bytes / options.file_bytes))
    for state, passes, prepare in (("warm", warm_passes, bench.warm), ("cold", 1, bench.cold)):
        order = make_order(options.file_bytes, block, passes)
        bench.prepare_fio(order)

        def ours(order: Order = order, prepare: Callable[[], None] = prepare) -> Run:
            prepare()
            return bench.reader(order)

        def peer(order: Order = order, prepare: Callable[[], None] = prepare) -> Run:
            prepare()
            return bench.fio(order)

        rounds = alternate(options.rounds, ours, peer)
        total_bytes = len(order.experts) * block
        title = f"{state}, {block:,} B"
        speeds = [total_bytes / our.wall_ns for our, _ in rounds]
        yield median_of(f"{title}: GB/s", speeds)
        ratios = [fio.wall_ns / our.wall_ns for our, fio in rounds]
        yield at_least(THROUGHPUT_BAR, f"{title}: throughput / fio", ratios)
        yield median_of(
            f"{title}: fio's CPU time / ours", [f.cpu_ns / our.cpu_ns for our, f in rounds]
        )
        yield user_share(f"{title}: user / CPU time", [our for our, _ in rounds])


def overhead(bench: Bench, options: argparse.Namespace) -> Iterator[Figure]:
    """CPU time per small read above a bare pread, and what the record barrier adds."""
    passes = max(1, round(options.warm_bytes / 2 / options.file_bytes))
    order = make_order(options.file_bytes, SMALL_BLOCK, passes)
    bench.prepare_fio(order)
    bench.warm()
    rounds = alternate(
        options.rounds,
        lambda: bench.reader(order),
        lambda: bench.plain(order),
        lambda: bench.fio(order),
        lambda: bench.reader(order, "record"),
    )
    reads = len(order.experts)
    title = f"warm, {SMALL_BLOCK:,} B"

    def per_read_us(values: Iterable[int]) -> list[float]:
        return [value / reads / 1e3 for value in values]

    yield median_of(f"{title}: us of CPU time per read", per_read_us(r[0].cpu_ns for r in rounds))
    above = per_read_us(r[0].cpu_ns - r[1].cpu_ns for r in rounds)
    yield at_most(OVERHEAD_BAR_US, f"{title}: us of CPU above plain pread", above)
    wall = per_read_us(r[0].wall_ns - r[1].wall_ns for r in rounds)
    yield at_most(OVERHEAD_BAR_US, f"{title}: us of wall above plain pread", wall)
    yield median_of(f"{title}: throughput / fio", [r[2].wall_ns / r[0].wall_ns for r in rounds])
    yield median_of(f"{title}: fio's CPU time / ours", [r[2].cpu_ns / r[0].cpu_ns for r in rounds])
    for kind, values in (
        ("CPU", per_read_us(r[3].cpu_ns - r[0].cpu_ns for r in rounds)),
        ("wall", per_read_us(r[3].wall_ns - r[0].wall_ns for r in rounds)),
    ):
        name = f"{title}: us of {kind} per record barrier of {RECORD_READS}"
        yield median_of(name, [value * RECORD_READS for value in values])


@contextmanager
def prepared(options: argparse.Namespace) -> Iterator[Bench]:
    for program in ("fio", "cc"):
        if shutil.which(program) is None:
            raise SystemExit(f"{program} is not installed")
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        bench = Bench(Path(name), options.file_bytes, options.threads)
        yield bench
        bench.close()


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--directory", default="/var/tmp", help="where the file is made")
    parser.add_argument("--file-bytes", type=int, default=3 << 29)
    parser.add_argument("--warm-bytes", type=int, default=3 << 33, help="read per warm run")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=["large", "small"])
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser.parse_args(arguments)


def figures_of(bench: Bench, options: argparse.Namespace) -> Iterator[Figure]:
    if options.only != "large":
        yield from overhead(bench, options)
    if options.only != "small":
        for block in LARGE_BLOCKS:
            yield from throughput(bench, options, block)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    with prepared(options) as bench:
        return tell(figures_of(bench, options), options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
