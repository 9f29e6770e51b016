# SPDX-License-Identifier: Apache-2.0
"""Reads the experts of a mapped pool through their extents and compares or records their digests.

Extents that were not cached are dropped behind their read, and so is all of a file that was cold;
of what was cached before, somebody may make use, so that it stays.
"""

import contextlib
import os
import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagetier.native.digest import digest
from pagetier.native.residency import page_bytes, resident_pages
from pagetier.tiers.filesystem import explain
from pagetier.tiers.models.digests import Digests, load_digests, save_digests
from pagetier.tiers.models.errors import TruncatedFile
from pagetier.tiers.models.pool import MappedPool
from pagetier.tiers.models.weights import WeightFile, opened_weights
from pagetier.tiers.workers import Claims, ProgressCallback, run_threads

__all__ = ["WrongExpert", "digest_experts", "verify_mapped"]

MAX_THREADS = 4


@dataclass(frozen=True, slots=True)
class WrongExpert:
    """An expert, the first of its weight files, where it starts there, and what is wrong."""

    expert: int
    path: str
    offset: int
    what: str


def verify_mapped(pool: MappedPool, on_progress: ProgressCallback | None) -> WrongExpert | None:
    """Reads every expert; the lowest that is not as it was when it was first read, or None.

    Raises a ModelError when a weight file is not the one that was mapped.
    """
    known = load_digests(pool)
    return _Reading(pool, np.arange(pool.total_experts), known, on_progress).run()


def digest_experts(
    pool: MappedPool, experts: NDArray[np.integer], on_progress: ProgressCallback | None = None
) -> NDArray[np.uint64]:
    """The digests of the pool, those of `experts` read where they are not known; 0 for the others.

    Raises a ModelError when one cannot be read.
    """
    known = load_digests(pool)
    missing = np.unique(experts)[~known.known[np.unique(experts)]]
    wrong = _Reading(pool, missing, known, on_progress).run()
    if wrong is not None:
        raise TruncatedFile(f"{wrong.path}, byte {wrong.offset}: {wrong.what}; {pool.remedy}")
    return known.value


class _Reading:
    def __init__(
        self,
        pool: MappedPool,
        experts: NDArray[np.integer],
        digests: Digests,
        on_progress: ProgressCallback | None,
    ) -> None:
        self._pool = pool
        self._files = pool.weight_files
        self._experts = experts
        self._digests = digests
        self._sizes = pool.expert_sizes
        self._on_progress = on_progress
        self._claims = Claims(len(experts))
        self._lock = threading.Lock()
        self._read_bytes = 0
        self._first_wrong: WrongExpert | None = None

    def run(self) -> WrongExpert | None:
        """The lowest wrong expert, or None; new digests are kept."""
        cold = self._cold_files()
        threads = max(2, min(MAX_THREADS, os.cpu_count() or 1))
        before = int(self._digests.known.sum())
        run_threads(self._work, threads, self._tick, self._stop)
        self._forget(cold)
        if int(self._digests.known.sum()) > before:
            save_digests(self._pool, self._digests)
        return self._first_wrong

    def _cold_files(self) -> set[WeightFile]:
        cold = set()
        for file in self._files:
            with opened_weights(file) as fd:
                if resident_pages(fd, 0, file.bytes) == 0:
                    cold.add(file)
        return cold

    def _forget(self, cold: set[WeightFile]) -> None:
        """Pages at the edges of experts, which two threads used; and a last look at each file: what
        was read while it changed is of no one state."""
        for file in self._files:
            with opened_weights(file) as fd:
                if file in cold:
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def _work(self) -> None:
        buffer = memoryview(bytearray(int(self._sizes[self._experts].max(initial=0))))
        with contextlib.ExitStack() as stack:
            opened: dict[int, int] = {}
            # Handed out in ascending order, so that all below a wrong one have been looked at.
            for number in self._claims:
                wrong = self._look(int(self._experts[number]), buffer, opened, stack)
                with self._lock:
                    self._read_bytes += int(self._sizes[self._experts[number]])
                    if wrong is not None and (
                        self._first_wrong is None or wrong.expert < self._first_wrong.expert
                    ):
                        self._first_wrong = wrong
                        self._claims.end_before(number)

    def _look(
        self, expert: int, buffer: memoryview, opened: dict[int, int], stack: contextlib.ExitStack
    ) -> WrongExpert | None:
        first, last = (int(bound) for bound in self._pool.table.expert_start[expert : expert + 2])
        done = 0
        for extent in self._pool.table.extents[first:last]:
            number, offset, length = (int(value) for value in extent)
            if number not in opened:
                fd = opened[number] = stack.enter_context(opened_weights(self._files[number]))
                # What is read ahead could not be told from what was there before.
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            problem = _read(opened[number], offset, buffer[done : done + length])
            if problem is not None:
                return WrongExpert(expert, self._files[number].path, offset, problem)
            done += length
        return self._compare(expert, first, digest(buffer[:done]))

    def _compare(self, expert: int, first: int, found: int) -> WrongExpert | None:
        digests = self._digests
        if not digests.known[expert]:
            digests.value[expert] = found
            digests.known[expert] = True
            return None
        if int(digests.value[expert]) == found:
            return None
        file, offset, _ = (int(value) for value in self._pool.table.extents[first])
        what = f"its bytes hash to {found:016x}, and to {int(digests.value[expert]):016x} before"
        return WrongExpert(expert, self._files[file].path, offset, what)

    def _tick(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self._read_bytes, int(self._sizes[self._experts].sum()))

    def _stop(self) -> None:
        self._claims.end_before(0)


def _read(fd: int, offset: int, into: memoryview) -> str | None:
    """Fills `into`; what went wrong, or None."""
    absent = _inner_pages(fd, offset, len(into)) == 0
    done = 0
    while done < len(into):
        try:
            count = os.preadv(fd, [into[done:]], offset + done)
        except OSError as error:
            return explain(error)
        if count == 0:
            return f"the file ends at byte {offset + done}"
        done += count
    if absent:
        # Of whole pages alone, as the kernel reads it.
        os.posix_fadvise(fd, offset, len(into), os.POSIX_FADV_DONTNEED)
    return None


def _inner_pages(fd: int, offset: int, length: int) -> int | None:
    """Pages in the page cache of those that lie within a range as a whole."""
    page = page_bytes()
    start, end = -(-offset // page) * page, (offset + length) // page * page
    return resident_pages(fd, start, max(end - start, 0))
