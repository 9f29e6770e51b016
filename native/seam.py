# SPDX-License-Identifier: Apache-2.0
"""Between Python and C: checked copies of arrays, calls that Ctrl-C can end, and exceptions.

A failed call on a file raises ReplayError with path, offset and expert; arrays that do not fit
together raise ValueError.
"""

import errno
import os
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from pagetier.native._core import ffi, lib
from pagetier.native.errors import ReplayCancelled, ReplayError
from pagetier.native.extents import EXTENT_DTYPE, ExtentTable

__all__ = ["CData", "Call", "PoolArrays", "choice", "failure", "indices", "pointer", "text"]

# A pointer to a C structure: cffi checks its fields when they are used.
CData = Any

_Index = TypeVar("_Index", np.uint32, np.uint64)

_NO_DIRECT: Final = "the file system gives no O_DIRECT for this file: leave mode direct out"
_PROBLEMS: Final = {
    ("open", errno.ELOOP): "is a symbolic link, which a pool may not hold",
    ("open", errno.ESTALE): "is another file than the one that was mapped: map the model again",
    ("open", errno.EMFILE): "too many open files: raise the limit (ulimit -n)",
    ("open", errno.EINVAL): _NO_DIRECT,
    ("statx", errno.EOPNOTSUPP): _NO_DIRECT,
    ("open", errno.EMEDIUMTYPE): "is not a regular file",
    ("fstat", errno.EMEDIUMTYPE): "is not a regular file",
    ("fstat", errno.ENODATA): "file is truncated: shorter than its extents",
    ("lstat", errno.EMEDIUMTYPE): "is not a regular file any more",
    ("lstat", errno.ENODATA): "file was truncated while it was read",
    ("pread", errno.ENODATA): "file is truncated: it ends within an extent",
    ("pread", errno.EINVAL): "the file system refused a read by O_DIRECT: leave mode direct out",
    ("preadv2", errno.ENODATA): "file is truncated: it ends within an extent",
    ("preadv2", errno.EOPNOTSUPP): "RWF_DONTCACHE needs Linux 6.14 and a file system that knows it"
    f" (this is {os.uname().release}): leave mode dontcache out, or take drop-behind",
    ("memcpy", errno.ENODATA): "file is truncated: it ends within an extent",
    ("memcpy", errno.EIO): "the device failed to read a mapped page",
    ("madvise", errno.EINVAL): "MADV_POPULATE_READ needs Linux 5.14 (this is"
    f" {os.uname().release}): leave mode populate out",
    ("madvise", errno.ENODATA): "file is truncated: it ends within an extent",
    ("mmap", errno.ENOMEM): "no more mappings: raise sysctl vm.max_map_count well above the number"
    " of pool files, or read with pread",
    ("verify", errno.EILSEQ): "content is not what the pool was filled with",
}


class PoolArrays:
    """An ExtentTable as C reads it: copies, so that what was checked once stays as it was."""

    def __init__(self, table: ExtentTable) -> None:
        extents = np.array(table.extents, dtype=EXTENT_DTYPE).reshape(-1)
        expert_start = indices("expert_start", table.expert_start, np.uint64, at_least=1)
        block, pointers = _c_strings(table.paths)
        identities = _identities(table)
        self.paths = table.paths
        self.pool: CData = ffi.new("struct pt_pool *")
        self.pool.paths = pointer("char *[]", pointers)
        self.pool.num_files = len(table.paths)
        if identities is not None:
            self.pool.identities = pointer("struct pt_identity[]", identities)
        self.pool.extents = pointer("struct pt_extent[]", extents)
        self.pool.num_extents = len(extents)
        self.pool.expert_start = pointer("uint64_t[]", expert_start)
        self.pool.num_experts = len(expert_start) - 1
        self._keep_alive = (extents, expert_start, block, pointers, identities)


class Call:
    """One call into C on a thread of its own: the caller stays open to Ctrl-C."""

    def __init__(self, name: str, function: Callable[[], int]) -> None:
        self.result = 0
        # Not Thread.join: interrupted by Ctrl-C it forgets that the thread runs on (Python 3.11,
        # threading._wait_for_tstate_lock).
        self.done = threading.Event()
        self._name = name
        self._function = function

    def start(self) -> None:
        """Start the thread; `done` is set when the call has returned."""
        try:
            threading.Thread(target=self._call, name=self._name).start()
        except RuntimeError:  # no more threads
            self.done.set()
            raise

    def wait(
        self, on_tick: Callable[[], None], interval_s: float, cancel: Callable[[], None]
    ) -> None:
        """Until the call has returned; an exception meanwhile cancels it and passes through."""
        try:
            while not self.done.wait(interval_s):
                on_tick()
            on_tick()
        finally:
            if not self.done.is_set():
                cancel()
            self.done.wait()

    def _call(self) -> None:
        try:
            self.result = self._function()
        finally:
            self.done.set()


def failure(result: int, fault: CData, paths: tuple[str, ...]) -> Exception:
    """The exception that a negative result of C stands for."""
    call, code, offset = text(fault.call), -result, int(fault.offset)
    if code == errno.EINVAL and fault.file == lib.PT_NONE:
        return ValueError(f"{call}[{offset}] does not fit the other arrays or is out of range")
    expert = None if fault.expert == lib.PT_NONE else int(fault.expert)
    path = None if fault.file == lib.PT_NONE else paths[fault.file]
    problem = _PROBLEMS.get((call, code), os.strerror(code))
    where = f"{call} at byte {offset}" + ("" if expert is None else f", expert {expert}")
    kind = ReplayCancelled if code == errno.ECANCELED else ReplayError
    return kind(code, f"{problem} ({where})", path, call=call, offset=offset, expert=expert)


def text(characters: CData) -> str:
    """A C string."""
    return os.fsdecode(ffi.string(characters))


def choice(name: str, choices: dict[str, int], wanted: str) -> int:
    """The number of a named option; ValueError lists the names."""
    if wanted not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {wanted!r}")
    return choices[wanted]


def indices(
    name: str, array: NDArray[_Index], dtype: type[_Index], *, at_least: int = 0
) -> NDArray[_Index]:
    """A copy as C wants it; ValueError rather than a value that wraps around."""
    if array.ndim != 1 or array.dtype.kind not in "iu" or len(array) < at_least:
        raise ValueError(f"{name} must be {at_least} or more integers in one dimension")
    if len(array) and (array.min() < 0 or array.max() > np.iinfo(dtype).max):
        raise ValueError(f"{name} holds values outside 0 to {np.iinfo(dtype).max}")
    return np.array(array, dtype=dtype)


def pointer(kind: str, array: NDArray[np.generic]) -> CData:
    """A C pointer into an array, which must be kept alive by other means."""
    return ffi.from_buffer(kind, array)


def _identities(table: ExtentTable) -> NDArray[np.uint64] | None:
    if table.identities is None:
        return None
    found = indices("identities", table.identities.reshape(-1), np.uint64)
    if len(found) != 2 * len(table.paths):
        raise ValueError("identities must have st_dev and st_ino of each path")
    return found


def _c_strings(paths: tuple[str, ...]) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """All paths as one block of C strings, and the address of each."""
    encoded = [os.fsencode(path) for path in paths]
    for path, name in zip(paths, encoded, strict=True):
        if b"\0" in name:
            raise ValueError(f"a path may not contain a null character: {path!r}")
    block = np.frombuffer(b"".join(name + b"\0" for name in encoded), dtype=np.uint8)
    starts = np.zeros(len(encoded), dtype=np.uint64)
    starts[1:] = np.cumsum([len(name) + 1 for name in encoded[:-1]], dtype=np.uint64)
    return block, starts + np.uint64(block.ctypes.data)
