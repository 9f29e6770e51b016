# SPDX-License-Identifier: Apache-2.0
"""XXH64 of bytes in memory, as the reader computes it of what it read.  The call leaves the GIL
free."""

from pagetier.native._core import ffi, lib

__all__ = ["digest"]


def digest(content: bytes | bytearray | memoryview, seed: int = 0) -> int:
    """The 64-bit hash of a buffer."""
    with ffi.from_buffer("unsigned char[]", content) as raw:
        return int(lib.pt_digest(raw, len(raw), seed))
