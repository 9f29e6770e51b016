# SPDX-License-Identifier: Apache-2.0
"""Replays plans of expert reads with a pool of C threads, the GIL free.

Times are nanoseconds of CLOCK_MONOTONIC, sizes bytes.  A failed read raises ReplayError with path,
offset and expert; arrays that do not fit together raise ValueError before anything is read.
"""

import contextlib
import errno
import os
import resource
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from pagetier.native._core import ffi, lib
from pagetier.native.errors import ReplayCancelled, ReplayError

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

Mode = Literal["pread", "mmap"]
Barrier = Literal["record", "iteration", "none"]
Advice = Literal["default", "random", "sequential"]
Residency = Literal["auto", "off", "cachestat", "mincore"]

# A pointer to a C structure: cffi checks its fields when they are used.
_CData = Any

_Index = TypeVar("_Index", np.uint32, np.uint64)

EXTENT_DTYPE: Final = np.dtype(
    [("file", np.uint32), ("offset", np.uint64), ("length", np.uint64)], align=True
)

_MODES: Final = {"pread": lib.PT_PREAD, "mmap": lib.PT_MMAP}
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

_MAX_THREADS: Final = 1024
# Descriptors left for the rest of the process (database, sockets, counters of the kernel).
_SPARE_DESCRIPTORS: Final = 256
_SUB_BUCKETS: Final = 32

_PROBLEMS: Final = {
    ("open", errno.ELOOP): "is a symbolic link, which a pool may not hold",
    ("open", errno.EMFILE): "too many open files: raise the limit (ulimit -n)",
    ("fstat", errno.EMEDIUMTYPE): "is not a regular file",
    ("fstat", errno.ENODATA): "file is truncated: shorter than its extents",
    ("lstat", errno.EMEDIUMTYPE): "is not a regular file any more",
    ("lstat", errno.ENODATA): "file was truncated while it was read",
    ("pread", errno.ENODATA): "file is truncated: it ends within an extent",
    ("memcpy", errno.ENODATA): "file is truncated: it ends within an extent",
    ("memcpy", errno.EIO): "the device failed to read a mapped page",
    ("mmap", errno.ENOMEM): "no more mappings: raise sysctl vm.max_map_count well above the number"
    " of pool files, or read with pread",
    ("verify", errno.EILSEQ): "content is not what the pool was filled with",
}


@dataclass(frozen=True, slots=True)
class ExtentTable:
    """Where the bytes of every expert lie.

    Expert e is the extents [expert_start[e], expert_start[e + 1]), in this order.
    """

    paths: tuple[str, ...]
    extents: NDArray[np.void]
    expert_start: NDArray[np.uint64]


class PlanArrays(Protocol):
    """The reads of a plan, in order.

    Record r is experts[record_start[r]:record_start[r + 1]]; iteration i is the records
    [iteration_start[i], iteration_start[i + 1]).  Both bounds start at 0 and end at the count.
    """

    @property
    def experts(self) -> NDArray[np.uint32]: ...
    @property
    def record_start(self) -> NDArray[np.uint64]: ...
    @property
    def iteration_start(self) -> NDArray[np.uint64]: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """What the replay in progress has completed so far."""

    reads: int
    bytes: int
    iterations: int


@dataclass(frozen=True, slots=True)
class PassResult:
    """One replay of a plan: one entry per iteration, and sums.

    iteration_end_ns: when the iteration's last read, and all before it, had completed.
    iteration_first_bytes, iteration_repeat_bytes: whole pages absent just before a read of an
    expert that this reader had never read, or had; None when residency is off.
    latency_histogram: reads per bucket of latency (32 buckets per octave; the copies alone).
    user_ns, system_ns: CPU time of the reading threads.
    """

    start_ns: int
    iteration_end_ns: NDArray[np.int64]
    iteration_bytes: NDArray[np.int64]
    iteration_reads: NDArray[np.int64]
    iteration_first_bytes: NDArray[np.int64] | None
    iteration_repeat_bytes: NDArray[np.int64] | None
    latency_histogram: NDArray[np.int64]
    user_ns: int
    system_ns: int
    verified_reads: int

    @property
    def iteration_wall_ns(self) -> NDArray[np.int64]:
        """From the end of the iteration before (or the start) to the end of each."""
        return np.diff(self.iteration_end_ns, prepend=np.int64(self.start_ns))

    def latency_quantile_ns(self, q: float) -> float | None:
        """The latency that a share ``q`` of the reads did not exceed, within 1.6 %; None if no
        read was made."""
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"a quantile lies between 0 and 1, not at {q}")
        reads = int(self.latency_histogram.sum())
        if reads == 0:
            return None
        rank = max(1, int(np.ceil(q * reads)))
        return _bucket_middle_ns(int(np.searchsorted(np.cumsum(self.latency_histogram), rank)))


def _bucket_middle_ns(bucket: int) -> float:
    octave = max(0, bucket // _SUB_BUCKETS - 1)
    width = 1 << octave
    return (bucket - octave * _SUB_BUCKETS) * width + (width - 1) / 2


class Reader:
    """Threads, buffers and open files for one pool; a context manager.

    ``barrier``: the group that must be complete before a read of the next one starts.
    ``residency``: "auto" takes what the kernel offers for every file of the pool.
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
    ) -> None:
        if not 1 <= threads <= _MAX_THREADS:
            raise ValueError(f"threads must lie between 1 and {_MAX_THREADS}, not be {threads}")
        self._paths = table.paths
        self._keep_alive: list[object] = []
        self._reader: _CData = ffi.NULL
        self._run: _Run | None = None
        self._replaying = threading.RLock()
        # Between the calls of other threads and the end of what they call into.
        self._handle = threading.RLock()
        self._pool = self._make_pool(table)
        options = ffi.new("struct pt_options *")
        options.threads = threads
        options.mode = _choice("mode", _MODES, mode)
        options.barrier = _choice("barrier", _BARRIERS, barrier)
        options.advice = _choice("advice", _ADVICE, advice)
        if mode == "pread":
            options.max_descriptors = _descriptors_at_hand(self._descriptors(threads), threads)
        self._residency = self._open(options, mode, residency)
        self._kept_open_files = int(lib.pt_reader_kept_files(self._reader))

    def _make_pool(self, table: ExtentTable) -> _CData:
        # Copies, as of the plan: what was checked once must not change under the threads.
        extents = np.array(table.extents, dtype=EXTENT_DTYPE).reshape(-1)
        expert_start = _indices("expert_start", table.expert_start, np.uint64, at_least=1)
        text, pointers = _c_strings(table.paths)
        pool = ffi.new("struct pt_pool *")
        pool.paths = _pointer("char *[]", pointers)
        pool.num_files = len(table.paths)
        pool.extents = _pointer("struct pt_extent[]", extents)
        pool.num_extents = len(extents)
        pool.expert_start = _pointer("uint64_t[]", expert_start)
        pool.num_experts = len(expert_start) - 1
        self._keep_alive += [extents, expert_start, text, pointers]
        return pool

    def _descriptors(self, threads: int) -> int:
        """Descriptors that would keep every file open."""
        descriptors = ffi.new("uint64_t *")
        fault = ffi.new("struct pt_fault *")
        result = lib.pt_reader_descriptors(self._pool, threads, descriptors, fault)
        if result < 0:
            raise self._error(result, fault)
        return int(descriptors[0])

    def _open(self, options: _CData, mode: Mode, residency: Residency) -> str | None:
        """Open the reader in C and return the residency method in effect."""
        if mode == "mmap" and residency == "cachestat":
            raise ValueError("residency of a mapping is asked by mincore, not by cachestat")
        method = residency
        if residency == "auto":
            method = "mincore" if mode == "mmap" else "cachestat"
        while True:
            options.residency = _choice("residency", _RESIDENCY, method)
            made = ffi.new("struct pt_reader **")
            fault = ffi.new("struct pt_fault *")
            result = lib.pt_reader_open(self._pool, options, made, fault)
            if result == 0:
                self._reader = made[0]
                return None if method == "off" else method
            if residency != "auto" or _text(fault.call) != method:
                raise self._error(result, fault)
            method = _weaker_residency(method, -result)

    @property
    def residency(self) -> str | None:
        """How residency is asked for before each read; None = it is not."""
        return self._residency

    @property
    def kept_open_files(self) -> int:
        """Files that stay open; the rest is opened for each read. None of them when mapped."""
        return self._kept_open_files

    def replay(
        self,
        plan: PlanArrays,
        *,
        verify_every: int = 0,
        content_seed: int = 0,
        on_progress: Callable[[Progress], None] | None = None,
        progress_interval_s: float = 0.1,
    ) -> PassResult:
        """Read the whole plan once.

        ``verify_every`` compares the content of every n-th read with the pool's seed.
        ``on_progress`` is called at the interval and once at the end; an exception in it, like
        Ctrl-C, cancels the replay and passes through.
        """
        if not self._replaying.acquire(blocking=False):
            raise RuntimeError("this reader is replaying a plan already")
        try:
            if self._is_running():
                raise RuntimeError("this reader is replaying a plan already")
            self._run = run = _Run(self._opened(), plan, verify_every, content_seed)
            run.start()
            self._wait(run, on_progress or _ignore, progress_interval_s)
            if run.result < 0:
                raise self._error(run.result, run.fault)
            return run.pass_result(self._residency)
        finally:
            self._replaying.release()

    def _wait(
        self, run: "_Run", on_progress: Callable[[Progress], None], interval_s: float
    ) -> None:
        try:
            while not run.done.wait(interval_s):
                on_progress(self.progress())
            on_progress(self.progress())
        finally:
            if not run.done.is_set():
                self.cancel()
            run.done.wait()

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
        if self._reader == ffi.NULL:
            return
        if self._run is not None and self._is_running():
            self.cancel()
            self._run.done.wait()
        with self._replaying, self._handle:
            reader, self._reader = self._reader, ffi.NULL
            if reader != ffi.NULL:
                lib.pt_reader_close(reader)

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
        return self._run is not None and not self._run.done.is_set()

    def _opened(self) -> _CData:
        if self._reader == ffi.NULL:
            raise ValueError("the reader is closed")
        return self._reader

    def _error(self, result: int, fault: _CData) -> Exception:
        call, code, offset = _text(fault.call), -result, int(fault.offset)
        if code == errno.EINVAL and fault.file == lib.PT_NONE:
            return ValueError(f"{call}[{offset}] does not fit the other arrays or is out of range")
        expert = None if fault.expert == lib.PT_NONE else int(fault.expert)
        path = None if fault.file == lib.PT_NONE else self._paths[fault.file]
        problem = _PROBLEMS.get((call, code), os.strerror(code))
        where = f"{call} at byte {offset}" + ("" if expert is None else f", expert {expert}")
        kind = ReplayCancelled if code == errno.ECANCELED else ReplayError
        return kind(code, f"{problem} ({where})", path, call=call, offset=offset, expert=expert)


class _Run:
    """The arguments of one replay in C, alive for as long as the call, and its outcome."""

    def __init__(
        self, reader: _CData, plan: PlanArrays, verify_every: int, content_seed: int
    ) -> None:
        self.result = 0
        # Not Thread.join: interrupted by Ctrl-C it forgets that the thread runs on (Python 3.11,
        # threading._wait_for_tstate_lock).
        self.done = threading.Event()
        self.fault = ffi.new("struct pt_fault *")
        self._reader = reader
        self._experts = _indices("experts", plan.experts, np.uint32)
        self._records = _indices("record_start", plan.record_start, np.uint64, at_least=1)
        self._iterations = _indices("iteration_start", plan.iteration_start, np.uint64, at_least=1)
        self._plan = ffi.new("struct pt_plan *")
        self._plan.experts = _pointer("uint32_t[]", self._experts)
        self._plan.num_reads = len(self._experts)
        self._plan.record_start = _pointer("uint64_t[]", self._records)
        self._plan.num_records = len(self._records) - 1
        self._plan.iteration_start = _pointer("uint64_t[]", self._iterations)
        self._plan.num_iterations = len(self._iterations) - 1
        self._pass = ffi.new("struct pt_pass *")
        self._pass.verify_every = verify_every
        self._pass.content_seed = content_seed
        self._arrays = {name: self._array(name) for name in _PASS_ARRAYS}

    def _array(self, name: str) -> NDArray[np.int64]:
        histogram = name == "latency_histogram"
        length = lib.PT_HISTOGRAM_BUCKETS if histogram else self._plan.num_iterations
        array = np.zeros(length, dtype=np.int64)
        setattr(self._pass, name, ffi.cast("uint64_t *", _pointer("int64_t[]", array)))
        return array

    def start(self) -> None:
        try:
            threading.Thread(target=self._call, name="pagetier-replay").start()
        except RuntimeError:  # no more threads
            self.done.set()
            raise

    def _call(self) -> None:
        try:
            self.result = lib.pt_reader_replay(self._reader, self._plan, self._pass, self.fault)
        finally:
            self.done.set()

    def pass_result(self, residency: str | None) -> PassResult:
        arrays: dict[str, NDArray[np.int64]] = self._arrays
        known = residency is not None
        return PassResult(
            start_ns=int(self._pass.start_ns),
            iteration_end_ns=arrays["iteration_end_ns"],
            iteration_bytes=arrays["iteration_bytes"],
            iteration_reads=arrays["iteration_reads"],
            iteration_first_bytes=arrays["iteration_first_bytes"] if known else None,
            iteration_repeat_bytes=arrays["iteration_repeat_bytes"] if known else None,
            latency_histogram=arrays["latency_histogram"],
            user_ns=int(self._pass.user_ns),
            system_ns=int(self._pass.system_ns),
            verified_reads=int(self._pass.verified_reads),
        )


_PASS_ARRAYS: Final = (
    "iteration_end_ns",
    "iteration_bytes",
    "iteration_reads",
    "iteration_first_bytes",
    "iteration_repeat_bytes",
    "latency_histogram",
)


def _ignore(progress: Progress) -> None:
    """Nobody wants to know."""


def _text(characters: _CData) -> str:
    return os.fsdecode(ffi.string(characters))


def _choice(name: str, choices: dict[str, int], wanted: str) -> int:
    if wanted not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {wanted!r}")
    return choices[wanted]


def _weaker_residency(method: str, code: int) -> Residency:
    """What to try next.  Not mincore after a refusal: it would report every page resident."""
    return "mincore" if method == "cachestat" and code == errno.ENOSYS else "off"


def _indices(
    name: str, array: NDArray[_Index], dtype: type[_Index], *, at_least: int = 0
) -> NDArray[_Index]:
    """A copy as C wants it; ValueError rather than a value that wraps around."""
    if array.ndim != 1 or array.dtype.kind not in "iu" or len(array) < at_least:
        raise ValueError(f"{name} must be {at_least} or more integers in one dimension")
    if len(array) and (array.min() < 0 or array.max() > np.iinfo(dtype).max):
        raise ValueError(f"{name} holds values outside 0 to {np.iinfo(dtype).max}")
    return np.array(array, dtype=dtype)


def _pointer(kind: str, array: NDArray[np.generic]) -> _CData:
    """A C pointer into an array, which must be kept alive by other means."""
    return ffi.from_buffer(kind, array)


def _c_strings(paths: tuple[str, ...]) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """All paths as one block of C strings, and the address of each."""
    encoded = [os.fsencode(path) for path in paths]
    for path, text in zip(paths, encoded, strict=True):
        if b"\0" in text:
            raise ValueError(f"a path may not contain a null character: {path!r}")
    block = np.frombuffer(b"".join(text + b"\0" for text in encoded), dtype=np.uint8)
    starts = np.zeros(len(encoded), dtype=np.uint64)
    starts[1:] = np.cumsum([len(text) + 1 for text in encoded[:-1]], dtype=np.uint64)
    return block, starts + np.uint64(block.ctypes.data)


def _descriptors_at_hand(wanted: int, threads: int) -> int:
    """What may stay open of what is wanted, after the limit was raised as far as it goes."""
    spare = _SPARE_DESCRIPTORS + threads
    _raise_descriptor_limit(wanted + spare)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(0, min(wanted, soft - spare))


def _raise_descriptor_limit(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    # "Unlimited" still ends at fs.nr_open; less than wanted is no error, see kept_open_files.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, reachable), hard))
