# SPDX-License-Identifier: Apache-2.0
"""Page-cache insertions as the kernel traces them, told apart by the read that made them.

Parses the text of a trace_pipe: mm_filemap_add_to_page_cache (`ofs` is in bytes, `ino` hexadecimal,
`order` since 5.18 and 0 without) and the entry of pread64 (numbers hexadecimal, with 0x before them
or not).  A buffered read inserts its pages, readahead included, in the thread that called: an
insertion inside the extent that its thread is reading is in-extent, any other is over-read.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["INSERTION", "READ", "InsertionCounts", "Span"]

INSERTION, READ = "filemap/mm_filemap_add_to_page_cache", "syscalls/sys_enter_pread64"

Span = tuple[int, int]
"""Offset and length in bytes."""

_HEAD = rb"-(\d+)\s+(?:\(.*?\)\s+)?\[\d+\]"
_INSERTED = re.compile(
    _HEAD + rb".*mm_filemap_add_to_page_cache: dev (\d+):(\d+) ino ([0-9a-f]+) .*ofs=(\d+)"
    rb"(?: order=(\d+))?"
)
_READING = re.compile(
    _HEAD + rb".*sys_pread64\(fd: (?:0x)?([0-9a-f]+), .*pos: (?:0x)?([0-9a-f]+)\)"
)
_LOST = re.compile(rb"LOST (\d+) EVENTS")


@dataclass(slots=True)
class InsertionCounts:
    """Pages inserted into the files of a pool by the threads that are traced.

    `spans` are the extents of each file (device and inode), in order; `files` names the file of a
    descriptor, None where it is none of the pool's.
    """

    page_bytes: int
    spans: Mapping[tuple[int, int, int], Sequence[Span]]
    in_extent_pages: int = 0
    over_read_pages: int = 0
    unmatched_reads: int = 0
    outside_reads_pages: int = 0
    lost_events: int = 0
    _reading: dict[int, int] = field(default_factory=dict)

    def take(self, line: bytes) -> None:
        """One line; what is neither event is passed over."""
        match = _INSERTED.search(line)
        if match is not None:
            thread, major, minor = (int(match[index]) for index in (1, 2, 3))
            pages = 1 << int(match[6] or 0)
            self._insert(thread, (major, minor, int(match[4], 16)), int(match[5]), pages)
            return
        match = _READING.search(line)
        if match is not None:
            self._reading[int(match[1])] = int(match[3], 16)
            return
        match = _LOST.search(line)
        if match is not None:
            self.lost_events += int(match[1])

    def _insert(self, thread: int, file: tuple[int, int, int], offset: int, pages: int) -> None:
        spans = self.spans.get(file)
        if spans is None:
            return
        position = self._reading.get(thread)
        if position is None:
            self.outside_reads_pages += pages
            return
        span = _span_at(spans, position)
        if span is None:
            self.unmatched_reads += 1
            return
        first, last = span[0] // self.page_bytes, (span[0] + span[1] - 1) // self.page_bytes
        start = offset // self.page_bytes
        inside = max(0, min(last, start + pages - 1) - max(first, start) + 1)
        self.in_extent_pages += inside
        self.over_read_pages += pages - inside


def _span_at(spans: Sequence[Span], position: int) -> Span | None:
    index = bisect_right(spans, (position, 1 << 63)) - 1
    if index < 0 or position >= spans[index][0] + spans[index][1]:
        return None
    return spans[index]
