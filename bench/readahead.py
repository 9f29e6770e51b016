# SPDX-License-Identifier: Apache-2.0
"""The readahead window of the device that a pool is read from, overridden for a cell.

In KiB, as `read_ahead_kb` of the backing device writes it; the kernel keeps whole pages.  An open
file has copied the value at its open, so it is set before the reader starts.  Restored on any exit;
a journal entry written first lets the next start restore it after kill -9.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pagetier.analysis.errors import CapabilityError
from pagetier.bench.kernel.text import read_count
from pagetier.cgroups.roots import Roots
from pagetier.native.hints import DEFAULT_CHUNK_BYTES

__all__ = ["is_settable", "read_ahead", "restore_read_ahead", "safe_chunk_bytes"]

# The kernel submits a hint in pieces of so much (mm/readahead.c, force_page_cache_ra).
_PIECE_BYTES = 2 << 20


def safe_chunk_bytes(max_sectors_kb: int | None) -> int:
    """Bytes of one WILLNEED call that no kernel cuts: it takes at least one request of the device,
    whatever the readahead window; without the size of that, a stock window."""
    if max_sectors_kb is None:
        return DEFAULT_CHUNK_BYTES
    return min(_PIECE_BYTES, max(max_sectors_kb * 1024, DEFAULT_CHUNK_BYTES))


def is_settable(bdi: str, roots: Roots) -> bool:
    """Whether this process may set the window of a backing device."""
    return os.access(_path(bdi, roots), os.W_OK)


@contextlib.contextmanager
def read_ahead(bdi: str, wanted_kb: int, roots: Roots) -> Iterator[int]:
    """Set the window of a backing device and yield what the kernel reads back.

    CapabilityError when it cannot be set, with what is needed for it.
    """
    path = _path(bdi, roots)
    before_kb = read_count(path)
    if before_kb is None:
        raise CapabilityError(f"{path}: not there: leave read_ahead_kb out of the campaign")
    try:
        _write(path, wanted_kb)
        found_kb = read_count(path)
        if found_kb is None or abs(found_kb - wanted_kb) >= _MAX_PAGE_KB:
            raise CapabilityError(
                f"{path}: reads {found_kb} after {wanted_kb} was written: the device caps it; "
                "ask for another read_ahead_kb"
            )
        yield found_kb
    finally:
        _write(path, before_kb)


_MAX_PAGE_KB = 64


def restore_read_ahead(bdi: str, before_kb: int, roots: Roots) -> bool:
    """Put the window of before back; False when it is there already, or its device is gone."""
    path = _path(bdi, roots)
    if read_count(path) in (before_kb, None):
        return False
    _write(path, before_kb)
    return True


def _path(bdi: str, roots: Roots) -> Path:
    return roots.sys / "class/bdi" / bdi / "read_ahead_kb"


def _write(path: Path, value_kb: int) -> None:
    try:
        path.write_text(f"{value_kb}\n", encoding="ascii")
    except OSError as error:
        raise CapabilityError(
            f"{path}: cannot be written ({error.strerror}): run as root, or leave read_ahead_kb "
            "out of the campaign"
        ) from error
