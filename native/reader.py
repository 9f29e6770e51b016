# SPDX-License-Identifier: Apache-2.0
"""Replays plans of expert reads with a pool of C threads, the GIL free.

Times are nanoseconds of CLOCK_MONOTONIC, sizes bytes.  A failed read raises ReplayError with path,
offset and expert; arrays that do not fit together raise ValueError before anything is read.
"""

import errno
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from pagetier.native._core import ffi, lib
from pagetier.native.arena import Arena
from pagetier.native.extents import EXTENT_DTYPE, ExtentTable, PlanArrays
from pagetier.native.hints import HintArrays, HintDelivery
from pagetier.native.limits import descriptors_at_hand
from pagetier.native.passes import PassResult, Progress
from pagetier.native.run import Run
from pagetier.native.seam import Call, CData, PoolArrays, choice, failure, text

__all__ = [
    "EXTENT_DTYPE",
    "Advice",
    "Barrier",
    "ExtentTable",
    "Mode",
    "PassResult",
    "PlanArrays",
    "Progress",
    "Reader",
    "Residency",
]

Mode = Literal["pread", "mmap", "populate", "direct", "dontcache", "drop-behind"]
Barrier = Literal["record", "iteration", "none"]
Advice = Literal["default", "random", "sequential"]
Residency = Literal["auto", "off", "cachestat", "mincore"]

_MODES: Final = {
    "pread": lib.PT_PREAD,
    "mmap": lib.PT_MMAP,
    "populate": lib.PT_POPULATE,
    "direct": lib.PT_DIRECT,
    "dontcache": lib.PT_DONTCACHE,
    "drop-behind": lib.PT_DROP_BEHIND,
}
_BARRIERS: Final = {
    "record": lib.PT_BARRIER_RECORD,
    "iteration": lib.PT_BARRIER_ITERATION,
    "none": lib.PT_BARRIER_NONE,
}
_ADVICE: Final = {
    "default": lib.PT_ADVICE_DEFAULT,
    "random": lib.PT_ADVICE_RANDOM,
    "sequential": lib.PT_ADVICE_SEQUENTIAL,
}
_RESIDENCY: Final = {
    "off": lib.PT_RESIDENCY_OFF,
    "cachestat": lib.PT_RESIDENCY_CACHESTAT,
    "mincore": lib.PT_RESIDENCY_MINCORE,
}
_DELIVERIES: Final = {"advice": lib.PT_DELIVERY_ADVICE, "blocking": lib.PT_DELIVERY_BLOCKING}

_MAX_THREADS: Final = 1024


class Reader:
    """Threads, buffers and open files for one pool; a context manager.

    ``mode``: how an expert's bytes come into the thread's buffer.
      "pread"        through the page cache
      "mmap"         copied out of a mapping
      "populate"     the same after MADV_POPULATE_READ of the extent (Linux 5.14)
      "direct"       O_DIRECT; an extent that is not aligned by way of a second buffer
      "dontcache"    preadv2 with RWF_DONTCACHE (Linux 6.14)
      "drop-behind"  pread, then DONTNEED of the whole pages in the extent: an edge page that it
                     shares with its neighbour stays
    A mode that the kernel or the file system does not have is an error, never another mode.
    ``barrier``: the group that must be complete before a read of the next one starts.
    ``residency``: "auto" takes what the kernel offers for every file of the pool.
    ``arena``: experts that are copied out of it, loaded and of the same table; it must outlive the
    reader.
    ``hints``: a worker that takes hints during a replay; not with mode "direct", whose reads do not
    see what it brings.
    The soft limit of open files is raised toward the hard one; files over it are opened per read.
    A file that holds several extents is open once per thread, so that each has a readahead state
    of its own.
    """

    def __init__(
        self,
        table: ExtentTable,
        *,
        threads: int = 8,
        mode: Mode = "pread",
        barrier: Barrier = "record",
        advice: Advice = "default",
        residency: Residency = "auto",
        arena: Arena | None = None,
        hints: HintDelivery | None = None,
    ) -> None:
        if not 1 <= threads <= _MAX_THREADS:
            raise ValueError(f"threads must lie between 1 and {_MAX_THREADS}, not be {threads}")
        self._reader: CData = ffi.NULL
        self._arena: Arena | None = None
        self._run: Run | None = None
        self._mode = mode
        self._delivery = hints
        self._replaying = threading.RLock()
        # Between the calls of other threads and the end of what they call into.
        self._handle = threading.RLock()
        self._pool = PoolArrays(table)
        options = ffi.new("struct pt_options *")
        options.threads = threads
        options.mode = choice("mode", _MODES, mode)
        options.barrier = choice("barrier", _BARRIERS, barrier)
        options.advice = choice("advice", _ADVICE, advice)
        if mode == "direct" and advice != "default":
            raise ValueError(f"advice {advice} does nothing to reads of mode direct: leave it out")
        self._set_delivery(options)
        lent = self._borrow(arena, table)
        try:
            self._residency = self._open(options, residency, lent)
        except BaseException:
            self.close()
            raise
        self._kept_open_files = int(lib.pt_reader_kept_files(self._reader))

    def _set_delivery(self, options: CData) -> None:
        hints = self._delivery
        if hints is None:
            return
        if self._mode == "direct":
            raise ValueError(
                "hints fill the page cache, which reads of mode direct bypass: everything would be "
                "read twice; leave one of the two out"
            )
        if hints.chunk_bytes < 0:
            raise ValueError(f"chunk_bytes must be 0 (whole) or more, not {hints.chunk_bytes}")
        options.delivery = choice("delivery", _DELIVERIES, hints.how)
        options.hint_chunk_bytes = hints.chunk_bytes

    def _borrow(self, arena: Arena | None, table: ExtentTable) -> CData:
        if arena is None:
            return ffi.NULL
        if not _same(arena.table, table):
            raise ValueError("the arena holds experts of another table than the reader's")
        lent = arena.lend()
        self._arena = arena
        return lent

    def _set_descriptors(self, options: CData) -> None:
        """Share out what may stay open: the threads first, then the worker."""
        wanted = self._descriptors(options)
        worker, threads = 0, int(options.threads)
        if self._delivery is not None:
            worker, threads = len(self._pool.paths), threads + 1
        at_hand = descriptors_at_hand(wanted + worker, threads)
        options.max_descriptors = min(wanted, at_hand)
        options.max_hint_descriptors = at_hand - options.max_descriptors

    def _descriptors(self, options: CData) -> int:
        """Descriptors that would keep every file open."""
        descriptors = ffi.new("uint64_t *")
        fault = ffi.new("struct pt_fault *")
        result = lib.pt_reader_descriptors(self._pool.pool, options, descriptors, fault)
        if result < 0:
            raise failure(result, fault, self._pool.paths)
        return int(descriptors[0])

    def _open(self, options: CData, residency: Residency, arena: CData) -> str | None:
        """Open the reader in C and return the residency method in effect."""
        method = residency
        if residency == "auto":
            method = "mincore" if self._asks_mappings() else "cachestat"
        while True:
            options.residency = choice("residency", _RESIDENCY, method)
            self._set_descriptors(options)
            made = ffi.new("struct pt_reader **")
            fault = ffi.new("struct pt_fault *")
            result = lib.pt_reader_open(self._pool.pool, options, arena, made, fault)
            if result == 0:
                self._reader = made[0]
                return None if method == "off" else method
            if residency != "auto" or text(fault.call) != method:
                raise failure(result, fault, self._pool.paths)
            method = _weaker_residency(method, -result)

    def _asks_mappings(self) -> bool:
        """Whether residency is better asked of the mapping than of a descriptor kept for it.

        With hints it is not: mincore calls a page absent whose read a hint has submitted.
        """
        return self._mode in ("mmap", "populate") and self._delivery is None

    @property
    def residency(self) -> str | None:
        """How residency is asked for before each read; None = it is not."""
        return self._residency

    @property
    def kept_open_files(self) -> int:
        """Files that stay open; the rest is opened for each read. None of them when mapped, unless
        cachestat is asked."""
        return self._kept_open_files

    def replay(
        self,
        plan: PlanArrays,
        *,
        hints: HintArrays | None = None,
        verify_every: int = 0,
        content_seed: int = 0,
        expert_digests: NDArray[np.uint64] | None = None,
        hash_content: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
        progress_interval_s: float = 0.1,
    ) -> PassResult:
        """Read the whole plan once.

        ``hints`` are given by the worker that the reader was made with; a hint for an expert of the
        arena is a ValueError.  A hint that fails ends nothing: see PassResult.hints.
        ``verify_every`` compares the content of every n-th read with the pool's seed, or with
        ``expert_digests``: native.digest of every expert, by its number.
        ``hash_content`` makes one figure of all bytes read, the same for every mode, slowly.
        ``on_progress`` is called at the interval and once at the end; an exception in it, like
        Ctrl-C, cancels the replay and passes through.
        """
        if (hints is None) != (self._delivery is None):
            raise ValueError("hints need a reader made with hints, and such a reader needs them")
        if not self._replaying.acquire(blocking=False):
            raise RuntimeError("this reader is replaying a plan already")
        try:
            if self._is_running():
                raise RuntimeError("this reader is replaying a plan already")
            run = Run(self._opened(), plan, hints)
            run.check_content(verify_every, content_seed, hash_content)
            if expert_digests is not None:
                run.compare_digests(expert_digests, int(self._pool.pool.num_experts))
            self._run = run  # from here on close() waits for its end
            self._wait(run.call, on_progress or _ignore, progress_interval_s)
            if run.call.result < 0:
                raise failure(run.call.result, run.fault, self._pool.paths)
            return run.pass_result(
                residency=self._residency is not None,
                direct=self._mode == "direct",
                arena=self._arena is not None,
                paths=self._pool.paths,
            )
        finally:
            self._replaying.release()

    def _wait(self, call: Call, on_progress: Callable[[Progress], None], interval_s: float) -> None:
        call.start()
        call.wait(lambda: on_progress(self.progress()), interval_s, self.cancel)

    def progress(self) -> Progress:
        """What the replay in progress, or else the last one, has completed."""
        progress = ffi.new("struct pt_progress *")
        with self._handle:
            lib.pt_reader_progress(self._opened(), progress)
        return Progress(progress.reads, progress.bytes, progress.iterations)

    def cancel(self) -> None:
        """End the replay in progress within one read of each thread, from any thread.

        For good: ReplayCancelled is also what any later replay raises.
        """
        with self._handle:
            lib.pt_reader_cancel(self._opened())

    def close(self) -> None:
        """Give back threads, buffers and files; ends a replay in progress. May be repeated."""
        if self._reader == ffi.NULL and self._arena is None:
            return
        if self._run is not None and self._is_running():
            self.cancel()
            self._run.call.done.wait()
        with self._replaying, self._handle:
            reader, self._reader = self._reader, ffi.NULL
            if reader != ffi.NULL:
                lib.pt_reader_close(reader)
            arena, self._arena = self._arena, None
            if arena is not None:
                arena.give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_reader", ffi.NULL) != ffi.NULL:
            self.close()

    def _is_running(self) -> bool:
        """C may still run after replay() has left: a second Ctrl-C ends its wait for the end."""
        return self._run is not None and not self._run.call.done.is_set()

    def _opened(self) -> CData:
        if self._reader == ffi.NULL:
            raise ValueError("the reader is closed")
        return self._reader


def _same(one: ExtentTable, other: ExtentTable) -> bool:
    return one is other or (
        one.paths == other.paths
        and np.array_equal(one.extents, other.extents)
        and np.array_equal(one.expert_start, other.expert_start)
    )


def _ignore(progress: Progress) -> None:
    """Nobody wants to know."""


def _weaker_residency(method: str, code: int) -> Residency:
    """What to try next.  Not mincore after a refusal: it would report every page resident."""
    return "mincore" if method == "cachestat" and code == errno.ENOSYS else "off"
