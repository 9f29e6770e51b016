# SPDX-License-Identifier: Apache-2.0
"""Which pages the extents of experts lie on, and which of them experts share.

Weight files align tensors to 32 bytes or less, so that an expert seldom starts or ends with a page:
what a device reads for it is its pages, and a page at an edge is brought by either neighbour.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagetier.native.extents import ExtentTable

__all__ = ["Sharing", "aligned_extents", "extent_pages", "page_sharing"]

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sharing:
    """`pages` hold bytes of experts, `shared_pages` of more than one of them."""

    pages: int
    shared_pages: int


def extent_pages(table: ExtentTable, page_bytes: int) -> Int64:
    """Pages that each expert lies on; a page shared by two experts counts for both."""
    extents = _Extents(table, page_bytes)
    _, _, expert = extents.edges()
    pages = np.bincount(expert, minlength=len(table.expert_start) - 1)
    np.add.at(pages, extents.expert, extents.inner_pages())
    return np.asarray(pages, dtype=np.int64)


def page_sharing(table: ExtentTable, page_bytes: int) -> Sharing:
    """Pages of all experts together, each counted once."""
    extents = _Extents(table, page_bytes)
    file, page, _ = extents.edges()
    again = (np.diff(file) == 0) & (np.diff(page) == 0)
    # Of a run of experts on one page only the first repetition tells of a further shared page.
    shared = again & ~np.concatenate(([False], again))[: len(again)]
    pages = int(extents.inner_pages().sum()) + len(file) - int(np.count_nonzero(again))
    return Sharing(pages, int(np.count_nonzero(shared)))


def aligned_extents(table: ExtentTable, unit_bytes: int) -> int:
    """How many extents start and end on a multiple of `unit_bytes`."""
    offset = table.extents["offset"].astype(np.int64)
    end = offset + table.extents["length"].astype(np.int64)
    return int(np.count_nonzero((offset % unit_bytes == 0) & (end % unit_bytes == 0)))


class _Extents:
    """First and last page of every extent that has bytes, and whose it is."""

    def __init__(self, table: ExtentTable, page_bytes: int) -> None:
        start = table.expert_start.astype(np.int64)
        length = table.extents["length"].astype(np.int64)
        filled = length > 0
        offset = table.extents["offset"].astype(np.int64)[filled]
        self.expert = np.repeat(np.arange(len(start) - 1), np.diff(start))[filled]
        self.file = table.extents["file"].astype(np.int64)[filled]
        self.first = offset // page_bytes
        self.last = (offset + length[filled] - 1) // page_bytes

    def inner_pages(self) -> Int64:
        """Of each extent, those between its first and its last: nobody else's, as no bytes are."""
        return np.asarray(np.maximum(self.last - self.first - 1, 0), dtype=np.int64)

    def edges(self) -> tuple[Int64, Int64, Int64]:
        """File, page and expert of the first and last pages, each once and in this order."""
        file, expert = np.tile(self.file, 2), np.tile(self.expert, 2)
        page = np.concatenate((self.first, self.last))
        order = np.lexsort((expert, page, file))
        columns = file[order], page[order], expert[order]
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = np.any([np.diff(column) != 0 for column in columns], axis=0)
        return columns[0][new], columns[1][new], columns[2][new]
