# SPDX-License-Identifier: Apache-2.0
"""The dense part of a model, as far as memory is concerned: anonymous bytes held locked.

It stands for the weights that every token reads, which admitted experts must not displace.  Every
page is touched and locked before the context begins; a partial lock is an error and leaves nothing.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import resource
from collections.abc import Callable, Iterator

from pagetier.native.errors import ArenaError

__all__ = ["locked_spine"]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


@contextlib.contextmanager
def locked_spine(size_bytes: int, vm_lck_bytes: Callable[[], int | None]) -> Iterator[None]:
    """Hold so many bytes locked, whole pages; ArenaError unless VmLck grows by exactly them."""
    if size_bytes == 0:
        yield
        return
    before = vm_lck_bytes()
    with _mapped(size_bytes) as pages:
        # Huge pages would be charged beyond the size asked for; without them there is no advice.
        with contextlib.suppress(OSError):
            pages.madvise(mmap.MADV_NOHUGEPAGE)
        _lock(pages)
        after = vm_lck_bytes()
        if before is None or after is None or after - before != len(pages):
            raise ArenaError(
                errno.ENOMEM,
                f"VmLck went from {before} to {after} bytes when {len(pages)} were locked",
                call="VmLck",
            )
        yield


def _mapped(size_bytes: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise _failure("mmap", error.errno or 0, size_bytes) from error


def _lock(pages: mmap.mmap) -> None:
    anchor = ctypes.c_char.from_buffer(pages)
    address = ctypes.addressof(anchor)
    del anchor  # a mapping with an exported pointer cannot be closed
    ctypes.memset(address, 1, len(pages))
    if _libc.mlock(address, len(pages)) != 0:
        raise _failure("mlock", ctypes.get_errno(), len(pages))


def _failure(call: str, code: int, size_bytes: int) -> ArenaError:
    soft_bytes, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = "unlimited" if soft_bytes == resource.RLIM_INFINITY else f"{soft_bytes} bytes"
    return ArenaError(
        code,
        f"{os.strerror(code)} ({call} of a spine of {size_bytes} bytes): RLIMIT_MEMLOCK is {limit};"
        " raise it with `ulimit -l unlimited`, run as root, or ask for less spine",
        call=call,
    )
