# SPDX-License-Identifier: Apache-2.0
"""Demand and LRU misses in pages: what experts of odd sizes cost on pages of 4, 16 or 64 KiB.

A read of an expert touches every page that its bytes lie on, in the order of its extents; a page
that two experts share is one page.  The LRU is of single pages, exact, and as fast as one of whole
experts: pages that only one expert touches move together, so a run of them is one entry of which
only the least recently used can be half evicted.  Extents must not overlap.  Counts are pages.
"""

import itertools
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagetier.analysis.plans import Plan, per_iteration
from pagetier.native.reader import ExtentTable

__all__ = [
    "Extent",
    "PageLayout",
    "extents_of",
    "page_demand",
    "page_layout",
    "page_lru_misses",
]

Int64 = npt.NDArray[np.int64]
Extent = tuple[int, int, int]
"""File number, offset and length in bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class PageLayout:
    """Runs of pages that always move together, and the runs each expert touches, in order.

    An expert of two extents that meet on one page touches that page's run twice.
    """

    page_bytes: int
    run_pages: tuple[int, ...]
    touched_runs: tuple[tuple[int, ...], ...]

    @property
    def pool_pages(self) -> int:
        """Pages of the whole pool, each counted once."""
        return sum(self.run_pages)

    @property
    def expert_pages(self) -> Int64:
        """Distinct pages of each expert; a shared page counts for each of its experts."""
        pages = [sum(self.run_pages[run] for run in set(runs)) for runs in self.touched_runs]
        return np.array(pages, dtype=np.int64)


def extents_of(table: ExtentTable) -> list[list[Extent]]:
    """The extents of every expert of a pool's table."""
    extents: list[Extent] = table.extents[["file", "offset", "length"]].tolist()
    starts = table.expert_start.tolist()
    return [extents[start:end] for start, end in itertools.pairwise(starts)]


def page_layout(experts: Sequence[Sequence[Extent]], page_bytes: int) -> PageLayout:
    """The runs of a pool whose expert e lies in the extents experts[e]."""
    if page_bytes < 1 or page_bytes & (page_bytes - 1):
        raise ValueError(f"a page of {page_bytes} B is no power of two")
    _check_disjoint(experts)
    spans = [[_span(extent, page_bytes) for extent in expert if extent[2]] for expert in experts]
    # Extents that do not overlap can share no page but their first and last ones.
    edges = Counter(
        edge
        for expert in spans
        for file, first, last in expert
        for edge in {(file, first), (file, last)}
    )
    run_of: dict[tuple[int, int, int], int] = {}
    touched = tuple(
        tuple(
            run_of.setdefault(piece, len(run_of))
            for span in expert
            for piece in _pieces(span, edges)
        )
        for expert in spans
    )
    return PageLayout(page_bytes, tuple(last - first + 1 for _, first, last in run_of), touched)


def _span(extent: Extent, page_bytes: int) -> tuple[int, int, int]:
    file, offset, length = extent
    return file, offset // page_bytes, (offset + length - 1) // page_bytes


def _pieces(
    span: tuple[int, int, int], edges: Counter[tuple[int, int]]
) -> Iterator[tuple[int, int, int]]:
    """The shared edge pages of a span by themselves, and what is between them."""
    file, first, last = span
    shared_first, shared_last = edges[file, first] > 1, edges[file, last] > 1
    if shared_first:
        yield file, first, first
    inner = file, first + shared_first, last - (shared_last and (last > first or not shared_first))
    if inner[1] <= inner[2]:
        yield inner
    if shared_last and last > first:
        yield file, last, last


def _check_disjoint(experts: Sequence[Sequence[Extent]]) -> None:
    extents = sorted(extent for expert in experts for extent in expert if extent[2])
    for (file, offset, length), (next_file, next_offset, _) in itertools.pairwise(extents):
        if file == next_file and offset + length > next_offset:
            raise ValueError(f"extents of file {file} overlap at byte {next_offset}")


def page_demand(plan: Plan, layout: PageLayout) -> Int64:
    """Pages each iteration asks for, read by read."""
    return per_iteration(plan, layout.expert_pages[plan.experts])


def page_lru_misses(plan: Plan, layout: PageLayout, capacity_bytes: int, passes: int = 2) -> Int64:
    """Pages missed per iteration in the last of `passes` replays, by an exact LRU of pages."""
    if capacity_bytes < 0 or passes < 1:
        raise ValueError(f"capacity {capacity_bytes} B, {passes} passes")
    cache = _PageLru(layout, capacity_bytes // layout.page_bytes)
    experts = plan.experts.tolist()
    for _ in range(passes):
        missed = [cache.read(expert) for expert in experts]
    return per_iteration(plan, np.array(missed, dtype=np.int64))


class _PageLru:
    # Resident pages by run, least recently used run first.  Pages are evicted one by one from the
    # front, and within a run in the order in which they were touched, so that only the first run
    # can be there in part.
    def __init__(self, layout: PageLayout, capacity_pages: int) -> None:
        self._pages = layout.run_pages
        self._touched = layout.touched_runs
        self._capacity = capacity_pages
        self._held: OrderedDict[int, int] = OrderedDict()
        self._used = 0

    def read(self, expert: int) -> int:
        """Pages that had to be fetched for it."""
        return sum(self._touch(run) for run in self._touched[expert])

    def _touch(self, run: int) -> int:
        pages = self._pages[run]
        if self._held.get(run) == pages:
            self._held.move_to_end(run)
            return 0
        # A run that is there in part is the next to go: each page that it misses evicts the one
        # that it would need next, until none of it is left.
        self._used -= self._held.pop(run, 0)
        self._evict(self._used + pages - self._capacity)
        kept = min(pages, self._capacity)
        if kept:
            self._held[run] = kept
        self._used += kept
        return pages

    def _evict(self, surplus: int) -> None:
        while surplus > 0 and self._held:
            run, pages = next(iter(self._held.items()))
            gone = min(pages, surplus)
            if gone == pages:
                del self._held[run]
            else:
                self._held[run] = pages - gone
            self._used -= gone
            surplus -= gone
