# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.native.extents import EXTENT_DTYPE, ExtentTable
from pagetier.tiers.pages import aligned_extents, extent_pages, page_sharing


@st.composite
def tables(draw: st.DrawFn) -> tuple[ExtentTable, list[list[tuple[int, int, int]]]]:
    """Extents that do not overlap, dealt out to experts: gaps, neighbours and empty ones."""
    pieces: list[tuple[int, int, int]] = []
    for file in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, 70))
        for gap, length in draw(
            st.lists(st.tuples(st.sampled_from([0, 0, 1, 40]), st.integers(0, 90)), max_size=8)
        ):
            pieces.append((file, at + gap, length))
            at += gap + length
    owner = draw(st.lists(st.integers(0, 3), min_size=len(pieces), max_size=len(pieces)))
    experts = [[p for p, o in zip(pieces, owner, strict=True) if o == e] for e in range(4)]
    start = np.cumsum([0, *map(len, experts)]).astype(np.uint64)
    extents = np.array([piece for expert in experts for piece in expert], dtype=EXTENT_DTYPE)
    return ExtentTable(("a", "b"), extents, start), experts


@given(tables(), st.sampled_from([16, 32]))
def test_pages_match_a_count_byte_by_byte(
    case: tuple[ExtentTable, list[list[tuple[int, int, int]]]], page: int
) -> None:
    table, experts = case
    touched = [
        {(file, byte // page) for file, at, length in expert for byte in range(at, at + length)}
        for expert in experts
    ]
    assert extent_pages(table, page).tolist() == [len(pages) for pages in touched]
    every = [one for pages in touched for one in pages]
    sharing = page_sharing(table, page)
    assert sharing.pages == len(set(every))
    assert sharing.shared_pages == sum(every.count(one) > 1 for one in set(every))


@pytest.mark.parametrize(
    ("offset", "length", "aligned"),
    [(0, 512, True), (512, 1024, True), (0, 511, False), (1, 511, False), (256, 512, False)],
)
def test_an_aligned_extent_starts_and_ends_on_the_unit(
    offset: int, length: int, aligned: bool
) -> None:
    extents = np.array([(0, offset, length)], dtype=EXTENT_DTYPE)
    table = ExtentTable(("a",), extents, np.array([0, 1], dtype=np.uint64))
    assert aligned_extents(table, 512) == aligned
