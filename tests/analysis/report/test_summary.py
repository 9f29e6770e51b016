# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import pytest

from pagetier.analysis.report.beside import Beside
from pagetier.analysis.report.document import sections
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.summary import Summary, summary_of
from pagetier.analysis.results import Cell

MakeCell = Callable[..., Cell]
MakeStudy = Callable[..., Study]
GB = 10**9
CLASSIC = 0


def told(study: Study) -> Summary:
    return summary_of(study, sections(study, Beside()))


def reclaim_cells(make_cell: MakeCell, repetitions: int) -> list[Cell]:
    """MGLRU reads twice what classic LRU reads, more or less."""
    return [
        make_cell(device=device * (10 + at) * GB, misses=10 * GB, mask=mask, repetition=at)
        for at in range(1, repetitions + 1)
        for mask, device in ((7, 2), (CLASSIC, 1))
    ]


@pytest.mark.parametrize(
    ("repetitions", "where", "words"),
    [
        (1, "unknown", "undecided (n=1)"),
        (2, "hints", "2.00 to 2.00 in n=2: higher (a hint: chance 1 in 2)"),
        (5, "hints", "higher (a hint: chance 1 in 16)"),
        (6, "found", "2.00 to 2.00 in n=6: higher, chance 1 in 32"),
    ],
)
def test_certainty_grows_with_the_repetitions(
    make_cell: MakeCell, make_study: MakeStudy, repetitions: int, where: str, words: str
) -> None:
    summary = told(make_study(reclaim_cells(make_cell, repetitions)))
    sentence = f"wall at 100 GB: MGLRU read 2.00x what classic LRU read; {words}."
    everywhere = {
        "found": summary.found,
        "hints": summary.hints,
        "unknown": summary.unknown,
    }
    lists = [name for name, texts in everywhere.items() if any("MGLRU read" in t for t in texts)]
    assert lists == [where]
    (found,) = [text for text in everywhere[where] if "MGLRU read" in text]
    assert found == sentence or (repetitions == 5 and words in found)


def test_arms_that_overlap_are_not_found_to_differ(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    cells = [
        make_cell(device=device * GB, misses=10 * GB, mask=mask, repetition=at)
        for at, pair in enumerate(((10, 9), (9, 10), (10, 10), (9, 9)) * 3, start=1)
        for mask, device in zip((7, CLASSIC), pair, strict=True)
    ]
    summary = told(make_study(cells))
    assert not [text for text in (*summary.found, *summary.hints) if "MGLRU read" in text]
    assert [text for text in summary.unknown if "MGLRU read" in text and "undecided" in text]


def test_reads_are_set_against_the_simulated_lru(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    cells = [
        make_cell(device=device * GB, misses=10 * GB, capacity_bytes=c * GB, repetition=at)
        for at in range(1, 7)
        for c, device in ((300, 10.4), (200, 9.5), (100, 15 + at / 5))
    ]
    summary = told(make_study(cells))
    assert summary.found == (
        "Within a tenth of the misses of a simulated exact LRU of their C: 2 of 3 arms (medians,"
        " in-extent, n=6).",
        "wall at 100 GB: read in-extent 1.57x the misses of a simulated exact LRU of its C; 1.52 to"
        " 1.62 in n=6: higher, chance 1 in 32.",
    )


def test_over_read_is_called_readahead(make_cell: MakeCell, make_study: MakeStudy) -> None:
    cells = [
        make_cell(device=20 * GB, in_extent=10 * GB, misses=10 * GB, repetition=at) for at in (1, 2)
    ]
    (sentence,) = [text for text in told(make_study(cells)).found if "readahead" in text]
    assert sentence == (
        "wall at 100 GB: 50% of its reads lie outside the experts asked for: that is readahead, not"
        " reclaim (n=2)."
    )


def test_what_was_not_measured_is_said(make_cell: MakeCell, make_study: MakeStudy) -> None:
    summary = told(make_study([make_cell()], host={"clock": "emulated"}))
    told_of = " ".join(summary.unknown)
    for words in (
        "MGLRU and classic LRU were not both measured",
        "not compared at equal memory",
        "No prefetch was measured",
        "Only one mechanism",
        "the clock of this host is emulated",
        "1 arm with a single kept cell",
    ):
        assert words in told_of
    assert summary.cells == "Cells kept: 1 of 1."


def test_tiers_are_compared_in_time_and_in_bytes(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    cells = [
        make_cell(seconds=s, device=device * GB, misses=10 * GB, tier=tier, repetition=at)
        for at in range(1, 7)
        for tier, s, device in (("page-cache", 2.0, 10), ("arena", 1.0, 5))
    ]
    found = told(make_study(cells)).found
    assert (
        "arena, wall at 100 GB: an iteration took 0.50x the page cache's time; 0.50 to 0.50"
        in " ".join(found)
    )
    assert "arena, wall at 100 GB: read 0.50x what the page cache read" in " ".join(found)


def test_long_lists_are_cut_and_say_so(make_cell: MakeCell, make_study: MakeStudy) -> None:
    cells = [make_cell(device=2 * c * GB, misses=GB, capacity_bytes=c * GB) for c in range(10, 20)]
    unknown = told(make_study(cells)).unknown
    assert len([text for text in unknown if "read in-extent" in text]) == 2
    assert "8 more of this kind are in the tables of “Capacity”." in unknown
    # The farthest from the simulation first.
    assert unknown[0].startswith("wall at 19.0 GB: read in-extent 38.00x")


def test_nothing_kept_is_nothing_found(make_cell: MakeCell, make_study: MakeStudy) -> None:
    summary = told(make_study([make_cell(state="rejected")]))
    assert (summary.found, summary.hints) == ((), ())
    assert summary.cells.startswith("Cells rejected: 1 of 1")


def test_what_a_hint_brought_is_neither_a_miss_nor_readahead(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    hinted = {"plan": "oracle", "delivery": "advice"}
    cells = [
        make_cell(device=10 * GB, misses=10 * GB, in_extent=inside * GB, repetition=at, **spec)
        for at in (1, 2)
        for inside, spec in ((10, {}), (4, {"prefetch": hinted}))
    ]
    summary = told(make_study(cells))
    assert summary.found[0].startswith(
        "Within a tenth of the misses of a simulated exact LRU of their C: 1 of 1 arm"
    )
    assert not [t for t in (*summary.found, *summary.hints) if "read in-extent" in t]
    assert not [t for t in (*summary.found, *summary.hints) if "readahead" in t]
