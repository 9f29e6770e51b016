# SPDX-License-Identifier: Apache-2.0
"""An arena: chosen experts in one locked, anonymous region, loaded past the page cache.  Bytes.

Every page is touched and then locked, as a balloon's are.  Huge pages are off unless asked for:
the region is then exactly what it is charged as, on hosts with 512 MiB huge pages too, and as
coarse as the page cache that it is compared with.  The region is left out of core dumps, and it is
unmapped by close, by Ctrl-C in any phase, and by any error.
"""

import errno
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pagetier.native._core import ffi, lib
from pagetier.native.errors import ArenaError
from pagetier.native.extents import ExtentTable
from pagetier.native.residency import page_bytes
from pagetier.native.seam import Call, CData, PoolArrays, choice, failure, indices, pointer, text

__all__ = ["Arena", "HugePages", "Preload", "region_bytes", "slot_bytes"]

HugePages = Literal["off", "on"]

_HUGE_PAGES: Final = {"off": 0, "on": 1}
# The calls of C that fail over the region, and not over a file of the pool.
_REGION_CALLS: Final = ("mmap", "madvise", "mlock", "mprotect")


def slot_bytes(table: ExtentTable) -> NDArray[np.int64]:
    """What each expert of the pool takes in an arena: its bytes, rounded up to a cache line."""
    lengths = np.asarray(table.extents["length"], dtype=np.int64)
    ends = np.concatenate(([0], np.cumsum(lengths)))
    sizes = np.diff(ends[table.expert_start.astype(np.int64)])
    slot = int(lib.PT_ARENA_SLOT_BYTES)
    return np.asarray((sizes + slot - 1) // slot * slot, dtype=np.int64)


def region_bytes(table: ExtentTable, experts: ArrayLike) -> int:
    """What an arena of these experts locks, to be charged to the budget: slots, in whole pages."""
    page = page_bytes()
    slots = int(slot_bytes(table)[np.asarray(experts, dtype=np.int64)].sum())
    return (slots + page - 1) // page * page


@dataclass(frozen=True, slots=True)
class Preload:
    """What loading an arena read from the pool, and how.

    direct_bytes: all of the experts' bytes when they came by O_DIRECT, or else 0: one file of the
    pool does not give it, and they came by buffered reads whose pages were dropped again.
    over_read_bytes came along with the first where extents are not aligned.
    admitted_bytes: pages of the experts in the page cache afterwards, less those before; None where
    the kernel does not tell.
    """

    ns: int
    bytes: int
    direct_bytes: int
    over_read_bytes: int
    admitted_bytes: int | None

    @property
    def way(self) -> Literal["direct", "buffered"]:
        """How the page cache was bypassed: the same for all files of a pool."""
        return "direct" if self.direct_bytes == self.bytes else "buffered"


class Arena:
    """Experts locked in memory; a context manager.

    Making one maps, touches and locks; ``preload`` reads.  Both can be ended by Ctrl-C.  A reader
    that is given an arena must be closed before it.

    ``vm_lck_bytes``: reads VmLck of this process; locking must raise it by exactly region_bytes,
    or else ArenaError.  ``on_progress`` is called with the bytes locked so far.
    """

    def __init__(
        self,
        table: ExtentTable,
        experts: ArrayLike,
        *,
        vm_lck_bytes: Callable[[], int | None],
        huge_pages: HugePages = "off",
        on_progress: Callable[[int], None] | None = None,
        progress_interval_s: float = 0.1,
    ) -> None:
        self._arena: CData = ffi.NULL
        self._readers = 0
        self._preload: Preload | None = None
        self._table = table
        self._pool = PoolArrays(table)
        self._experts = indices("experts", _chosen(experts), np.uint32)
        self._open(choice("huge_pages", _HUGE_PAGES, huge_pages))
        try:
            self._lock(vm_lck_bytes, on_progress or _ignore, progress_interval_s)
        except BaseException:
            self.close()
            raise

    @property
    def table(self) -> ExtentTable:
        """The pool that the experts are of."""
        return self._table

    @property
    def experts(self) -> NDArray[np.uint32]:
        """The experts held, in the order given."""
        return self._experts.copy()

    @property
    def region_bytes(self) -> int:
        """Bytes locked: what VmLck grew by."""
        return int(lib.pt_arena_bytes(self._opened()))

    @property
    def preloaded(self) -> Preload | None:
        """The outcome of `preload`; None before it."""
        return self._preload

    def preload(
        self,
        *,
        on_progress: Callable[[int], None] | None = None,
        progress_interval_s: float = 0.1,
    ) -> Preload:
        """Read every expert from the pool into its place, once; raises ReplayError.

        ``on_progress`` is called with the bytes read so far; an exception in it, like Ctrl-C, ends
        the loading and passes through.
        """
        if self._preload is not None:
            raise RuntimeError("this arena is loaded already")
        read = ffi.new("struct pt_preload *")
        fault = ffi.new("struct pt_fault *")
        arena = self._opened()
        self._run(
            Call("pagetier-preload", lambda: int(lib.pt_arena_preload(arena, read, fault))),
            fault,
            on_progress or _ignore,
            progress_interval_s,
        )
        self._preload = Preload(
            ns=int(read.ns),
            bytes=int(read.bytes),
            direct_bytes=int(read.direct_bytes),
            over_read_bytes=int(read.over_read_bytes),
            admitted_bytes=int(read.admitted_bytes) if read.residency == 0 else None,
        )
        return self._preload

    def cancel(self) -> None:
        """End locking or loading within one step, from any thread, for good."""
        lib.pt_arena_cancel(self._opened())

    def close(self) -> None:
        """Unlock and unmap.  May be repeated."""
        if self._readers:
            raise RuntimeError("a reader still uses this arena: close the reader first")
        arena, self._arena = self._arena, ffi.NULL
        if arena != ffi.NULL:
            lib.pt_arena_close(arena)

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
        if getattr(self, "_arena", ffi.NULL) != ffi.NULL:
            lib.pt_arena_close(self._arena)

    def lend(self) -> CData:
        """For a reader: the arena in C, which stays until `give_back`."""
        arena = self._opened()
        if self._preload is None:
            raise ValueError("the arena is not loaded: preload it before a reader takes it")
        self._readers += 1
        return arena

    def give_back(self) -> None:
        """The reader that borrowed the arena is closed."""
        self._readers -= 1

    def _open(self, huge_pages: int) -> None:
        made = ffi.new("struct pt_arena **")
        fault = ffi.new("struct pt_fault *")
        experts = pointer("uint32_t[]", self._experts)
        count = len(self._experts)
        result = lib.pt_arena_open(self._pool.pool, experts, count, huge_pages, made, fault)
        if result < 0:
            raise self._failure(result, fault)
        self._arena = made[0]

    def _lock(
        self,
        vm_lck_bytes: Callable[[], int | None],
        on_progress: Callable[[int], None],
        interval_s: float,
    ) -> None:
        before = vm_lck_bytes()
        fault = ffi.new("struct pt_fault *")
        arena = self._opened()
        call = Call("pagetier-lock", lambda: int(lib.pt_arena_lock(arena, fault)))
        self._run(call, fault, on_progress, interval_s)
        after = vm_lck_bytes()
        if before is None or after is None or after - before != self.region_bytes:
            raise ArenaError(
                errno.ENOMEM,
                f"VmLck went from {before} to {after} bytes when {self.region_bytes} were locked",
                call="VmLck",
            )

    def _run(
        self, call: Call, fault: CData, on_progress: Callable[[int], None], interval_s: float
    ) -> None:
        call.start()
        call.wait(
            lambda: on_progress(int(lib.pt_arena_progress(self._opened()))), interval_s, self.cancel
        )
        if call.result < 0:
            raise self._failure(call.result, fault)

    def _opened(self) -> CData:
        if self._arena == ffi.NULL:
            raise ValueError("the arena is closed")
        return self._arena

    def _failure(self, result: int, fault: CData) -> Exception:
        call = text(fault.call)
        if call not in _REGION_CALLS:
            return failure(result, fault, self._pool.paths)
        offset = int(fault.offset)
        problem = f"{os.strerror(-result)} ({call} at byte {offset} of the region)"
        return ArenaError(-result, problem + _remedy(call, -result), call=call, offset=offset)


def _chosen(experts: ArrayLike) -> NDArray[np.uint32]:
    array = np.asarray(experts)
    return array if array.size else np.zeros(0, dtype=np.uint32)  # of [] numpy makes floats


def _remedy(call: str, code: int) -> str:
    if call != "mlock" or code not in (errno.ENOMEM, errno.EPERM, errno.EAGAIN):
        return ""
    soft_bytes, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = "unlimited" if soft_bytes == resource.RLIM_INFINITY else f"{soft_bytes} bytes"
    return (
        f": RLIMIT_MEMLOCK is {limit}; raise it with `ulimit -l unlimited` or "
        "LimitMEMLOCK=infinity in the systemd unit, run as root, or ask for a smaller arena"
    )


def _ignore(locked_or_read_bytes: int) -> None:
    """Nobody wants to know."""
