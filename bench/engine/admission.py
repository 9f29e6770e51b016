# SPDX-License-Identifier: Apache-2.0
"""Decoding without admission to the page cache: what a token brought is dropped after it.

POSIX_FADV_DONTNEED alone does nothing to pages that a process has mapped, so they are unmapped
first, in the engine's own mappings, found in /proc/self/maps by device and inode.  Unmapping may
take a neighbour's part of a page along, which only costs it a minor fault; the page cache drops
whole pages inside the extents alone.
"""

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from pagetier.analysis.errors import CapabilityError

__all__ = ["Dropper", "Extents", "MappedPart", "merged", "parse_maps"]

Extents = Sequence[tuple[int, int]]
"""Offset and length of parts of a file."""

_MADV_DONTNEED: Final = 4  # asm-generic/mman-common.h


@dataclass(frozen=True, slots=True)
class MappedPart:
    """`length` bytes of a file from `offset` on, at `address`."""

    address: int
    offset: int
    length: int
    device: int
    inode: int


def parse_maps(text: str) -> list[MappedPart]:
    """Mappings of files, from the text of /proc/PID/maps."""
    parts = []
    for line in text.splitlines():
        span, _, offset, device, inode, *_ = line.split()
        if inode == "0":
            continue
        start, end = (int(part, 16) for part in span.split("-"))
        major, minor = (int(part, 16) for part in device.split(":"))
        parts.append(
            MappedPart(start, int(offset, 16), end - start, os.makedev(major, minor), int(inode))
        )
    return parts


def merged(extents: Extents) -> list[tuple[int, int]]:
    """In order, and those that touch or overlap as one."""
    whole: list[tuple[int, int]] = []
    for offset, length in sorted(extents):
        if whole and offset <= whole[-1][0] + whole[-1][1]:
            start = whole[-1][0]
            whole[-1] = start, max(whole[-1][1], offset + length - start)
        else:
            whole.append((offset, length))
    return whole


class Dropper:
    """Drops parts of files that this process has mapped; a context manager.

    Raises CapabilityError where a part is not mapped: the engine keeps its weights elsewhere.
    """

    def __init__(self, files: Mapping[Path, Extents]) -> None:
        self._madvise = ctypes.CDLL(None, use_errno=True).madvise
        self._madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self._open: list[int] = []
        self._files: list[tuple[int, list[tuple[int, int]]]] = []
        self._mapped: list[tuple[int, int]] = []
        maps = parse_maps(Path("/proc/self/maps").read_text())
        try:
            for path, extents in files.items():
                self._add(path, merged(extents), maps)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; may be called again."""
        while self._open:
            os.close(self._open.pop())

    def unmap(self) -> None:
        """Take the pages out of the page tables; they stay in the page cache."""
        for address, length in self._mapped:
            if self._madvise(address, length, _MADV_DONTNEED) != 0:
                code = ctypes.get_errno()
                raise CapabilityError(
                    f"madvise(MADV_DONTNEED) of the weights failed: {os.strerror(code)}"
                    f"{' (they are locked)' if code == errno.EINVAL else ''}; leave the arm out"
                )

    def drop(self) -> None:
        """Take them out of the page cache; does nothing to a page that is mapped."""
        for fd, extents in self._files:
            for offset, length in extents:
                os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)

    def __call__(self) -> None:
        self.unmap()
        self.drop()

    def _add(self, path: Path, extents: list[tuple[int, int]], maps: list[MappedPart]) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._open.append(fd)
        status = os.fstat(fd)
        own = [part for part in maps if (part.device, part.inode) == (status.st_dev, status.st_ino)]
        spans = [span for offset, length in extents for span in _spans(own, offset, length)]
        if sum(covered for _, _, covered in spans) != sum(length for _, length in extents):
            raise CapabilityError(
                f"{path}: is not mapped where its experts lie: the engine keeps them elsewhere; "
                "leave the arm no-admission out"
            )
        self._files.append((fd, extents))
        self._mapped += [(address, length) for address, length, _ in spans]


def _spans(parts: list[MappedPart], offset: int, length: int) -> Iterator[tuple[int, int, int]]:
    """Address and length in whole pages of a file's extent, and its bytes in them."""
    for part in parts:
        start = max(offset, part.offset)
        end = min(offset + length, part.offset + part.length)
        if start < end:
            first = start // mmap.PAGESIZE * mmap.PAGESIZE
            last = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
            yield part.address + first - part.offset, last - first, end - start
