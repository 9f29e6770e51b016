# SPDX-License-Identifier: Apache-2.0
"""Whether kernel and file system can read around the page cache, asked of them and not by version.

A file of the pool is opened and read from; where there is none yet, a file without a name is made
in the folder that the pool will be in, which leaves nothing.  What cannot be asked is no problem
here: the reader says so when it is made.
"""

import contextlib
import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["mode_problem"]

# Linux 6.14 (include/uapi/linux/fs.h); ext4 and xfs know it from there on, others later or never.
_RWF_DONTCACHE = 0x80
_REFUSALS = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)


def mode_problem(mode: str, place: Path) -> str | None:
    """Why files at `place`, a file or a folder, cannot be read in a mode, with the remedy."""
    if mode == "direct" and not _opens(place, os.O_DIRECT):
        return (
            f"{place}: its file system has no O_DIRECT: put the pool on ext4 or xfs, or leave tier "
            "direct out"
        )
    if mode == "dontcache" and not _reads_uncached(place):
        return (
            f"{place}: no RWF_DONTCACHE here (Linux 6.14, on ext4 or xfs): leave tier dontcache "
            "out, or use drop-behind"
        )
    return None


def _opens(place: Path, flags: int) -> bool:
    try:
        with _opened(place, flags):
            return True
    except OSError as error:
        return error.errno not in _REFUSALS


def _reads_uncached(place: Path) -> bool:
    try:
        with _opened(place, 0) as fd:
            if place.is_dir():
                os.write(fd, bytes(mmap.PAGESIZE))
            os.preadv(fd, [bytearray(mmap.PAGESIZE)], 0, _RWF_DONTCACHE)
    except OSError as error:
        return error.errno not in _REFUSALS
    return True


@contextlib.contextmanager
def _opened(place: Path, flags: int) -> Iterator[int]:
    nameless = os.O_TMPFILE | os.O_RDWR
    fd = os.open(place, flags | (nameless if place.is_dir() else os.O_RDONLY), 0o600)
    try:
        yield fd
    finally:
        os.close(fd)
