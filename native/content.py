# SPDX-License-Identifier: Apache-2.0
"""Expert content computed from (seed, expert, offset): written, and verified without a copy.

Offsets are bytes within an expert unless they are called file offsets.  Files that end too early
raise OSError with errno ENODATA.  The calls leave the GIL free.
"""

import errno
import os

from pagetier.native._core import ffi, lib

__all__ = ["Transfer", "fill", "mismatch", "verify", "write"]


class Transfer:
    """A write in progress, to be watched and ended from another thread; serves many writes."""

    def __init__(self) -> None:
        self._written = ffi.new("uint64_t *")
        self._cancel = ffi.new("int *")

    @property
    def written_bytes(self) -> int:
        """Bytes written so far by all writes with this object."""
        return int(self._written[0])

    def cancel(self) -> None:
        """End the write in progress, and every later one, with errno ECANCELED."""
        self._cancel[0] = 1


def fill(buffer: bytearray | memoryview, seed: int, expert: int, offset: int = 0) -> None:
    """Fill a writable buffer with the bytes that start at ``offset`` of the expert."""
    with ffi.from_buffer("unsigned char[]", buffer, require_writable=True) as raw:
        lib.pt_content_fill(raw, len(raw), seed, expert, offset)


def mismatch(
    buffer: bytes | bytearray | memoryview, seed: int, expert: int, offset: int = 0
) -> int | None:
    """Index of the first byte that differs from the expert's at ``offset``, or None."""
    with ffi.from_buffer("unsigned char[]", buffer) as raw:
        agreeing = int(lib.pt_content_mismatch(raw, len(raw), seed, expert, offset))
        return None if agreeing == len(raw) else agreeing


def write(
    fd: int,
    file_offset: int,
    length: int,
    seed: int,
    expert: int,
    transfer: Transfer | None = None,
) -> None:
    """Write the first ``length`` bytes of an expert at ``file_offset``."""
    transfer = transfer or Transfer()
    _check(
        lib.pt_content_write(
            fd, file_offset, length, seed, expert, transfer._written, transfer._cancel
        )
    )


def verify(fd: int, file_offset: int, length: int, seed: int, expert: int) -> int | None:
    """Offset within the expert of the first wrong byte on file, or None when all are right."""
    offset = ffi.new("uint64_t *")
    result = lib.pt_content_verify(fd, file_offset, length, seed, expert, offset)
    if result == -errno.EILSEQ:
        return int(offset[0])
    _check(result)
    return None


def _check(result: int) -> None:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
