# SPDX-License-Identifier: Apache-2.0
"""Lines of a trace_pipe, as 6.12 and 6.18 print them, to pages inside and outside of reads."""

import pytest

from pagetier.bench.kernel.filemap_events import InsertionCounts

PAGE = 4096
FILE = (254, 0, 0x1A2B)


def counts() -> InsertionCounts:
    """One file with two extents of two and a half pages each."""
    return InsertionCounts(PAGE, {FILE: [(0, 10240), (10240, 10240)]})


def read(thread: int, offset: int, prefix: str = "") -> bytes:
    return (
        f"         python3-{thread}    [001] .....  5.1: sys_pread64(fd: {prefix}7, buf: "
        f"{prefix}7f00aa, count: {prefix}2800, pos: {prefix}{offset:x})"
    ).encode()


def inserted(thread: int, page: int, order: int | None = 0, ino: int = FILE[2]) -> bytes:
    tail = "" if order is None else f" order={order}"
    return (
        f" my-worker 1-{thread}    [000] d..1.  5.2: mm_filemap_add_to_page_cache: dev 254:0 "
        f"ino {ino:x} pfn=0x12af ofs={page * PAGE}{tail}"
    ).encode()


def taken(*lines: bytes) -> InsertionCounts:
    found = counts()
    for line in lines:
        found.take(line)
    return found


def test_pages_of_the_extent_being_read_are_in_extent_and_the_rest_over_read() -> None:
    found = taken(read(5, 0), *(inserted(5, page) for page in range(5)))
    # The first extent touches pages 0 to 2.
    assert (found.in_extent_pages, found.over_read_pages) == (3, 2)


def test_each_thread_reads_an_extent_of_its_own() -> None:
    found = taken(read(5, 0), read(6, 10240), inserted(5, 0), inserted(6, 4), inserted(6, 1))
    assert (found.in_extent_pages, found.over_read_pages) == (2, 1)


@pytest.mark.parametrize("prefix", ["", "0x"])
def test_the_rest_of_a_short_read_is_of_the_same_extent(prefix: str) -> None:
    found = taken(read(5, 10240 + 8192, prefix), inserted(5, 3))
    assert (found.in_extent_pages, found.over_read_pages) == (1, 0)


def test_a_large_folio_is_divided_at_the_extents_end() -> None:
    found = taken(read(5, 0), inserted(5, 0, order=3))
    assert (found.in_extent_pages, found.over_read_pages) == (3, 5)


def test_kernels_before_5_18_name_no_order() -> None:
    assert taken(read(5, 0), inserted(5, 1, order=None)).in_extent_pages == 1


def test_other_files_and_other_lines_do_not_count() -> None:
    found = taken(read(5, 0), inserted(5, 0, ino=99), b"# tracer: nop", b"")
    assert (found.in_extent_pages, found.over_read_pages, found.unmatched_reads) == (0, 0, 0)


def test_what_cannot_be_attributed_is_counted_apart() -> None:
    found = taken(inserted(5, 0), read(6, 999999), inserted(6, 0), b"CPU:1 [LOST 12 EVENTS]")
    assert (found.outside_reads_pages, found.unmatched_reads, found.lost_events) == (1, 1, 12)
