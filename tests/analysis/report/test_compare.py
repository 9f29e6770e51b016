# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import pytest

from pagetier.analysis.errors import InputError
from pagetier.analysis.report.compare import compare_section, differences
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import Section
from pagetier.analysis.results import Cell

MakeCell = Callable[..., Cell]
MakeStudy = Callable[..., Study]
GB = 10**9


def table(section: Section, caption: str) -> list[dict[str, Any]]:
    for found in section.tables:
        if found.caption == caption:
            keys = [column.key for column in found.columns]
            return [dict(zip(keys, row, strict=True)) for row in found.rows]
    return []


RATIOS, POOLED, DIFFERING = (
    "The same arms in several results",
    "Repetitions pooled",
    "Facts that differ",
)


def test_equal_facts_are_pooled(make_cell: MakeCell, make_study: MakeStudy) -> None:
    studies = [
        make_study([make_cell(seconds=s, repetition=n) for n, s in enumerate(times, start=1)])
        for times in ((1.0, 2.0), (3.0, 4.0, 6.0))
    ]
    section = compare_section(studies)
    (row,) = table(section, POOLED)
    assert (row["n"], row["iteration_s"].median, row["iteration_s_interval"]) == (5, 3.0, None)
    (ratio,) = table(section, RATIOS)
    assert ratio["iteration_s_ratio"].median == pytest.approx(4.0 / 1.5)
    assert ratio["iteration_s_ratio"].direction == "higher"
    assert "no fact that a figure depends on differs" in section.prose[0]


def test_six_pooled_repetitions_have_an_interval(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    studies = [
        make_study([make_cell(seconds=s, repetition=s) for s in times])
        for times in ((1, 2, 3), (4, 5, 6))
    ]
    (row,) = table(compare_section(studies), POOLED)
    assert row["iteration_s_interval"] == "1.5-5.5"


@pytest.mark.parametrize(
    ("host", "fact"),
    [
        ({"kernel": "6.13"}, "kernel"),
        ({"mem_total_bytes": 1}, "mem_total_bytes"),
        ({"mglru": {"available": True, "enabled": False}}, "mglru enabled"),
        ({"device": {"name": "nvme0n1", "model": "other"}}, "device model"),
        ({"clock": "emulated"}, "clock"),
        ({"vm": {"swappiness": "1"}}, "vm"),
    ],
)
def test_what_differs_is_named_and_not_pooled(
    make_cell: MakeCell, make_study: MakeStudy, host: dict[str, Any], fact: str
) -> None:
    studies = [make_study([make_cell()]), make_study([make_cell()], host=host)]
    section = compare_section(studies)
    assert [difference.fact for difference in differences(studies)] == [fact]
    assert f"are not pooled, for they differ in: {fact}." in section.prose[0]
    assert [row["fact"] for row in table(section, DIFFERING)] == [fact]
    assert not table(section, POOLED)
    assert len(table(section, RATIOS)) == 1


def test_a_fact_that_one_does_not_hold_differs(make_cell: MakeCell, make_study: MakeStudy) -> None:
    studies = [make_study([make_cell()], host={"page_bytes": 4096}), make_study([make_cell()])]
    (found,) = differences(studies)
    assert (found.fact, found.values) == ("page_bytes", (4096, None))


def test_other_reads_are_not_compared(make_cell: MakeCell, make_study: MakeStudy) -> None:
    studies = [make_study([make_cell()]), make_study([make_cell()], plan_sha256="plan2")]
    section = compare_section(studies)
    (row,) = table(section, DIFFERING)
    assert row["forbids"] == "nothing is compared: they replay different reads"
    assert not table(section, RATIOS) and not table(section, POOLED)


def test_overlapping_results_are_undecided(make_cell: MakeCell, make_study: MakeStudy) -> None:
    studies = [
        make_study([make_cell(seconds=s, repetition=n) for n, s in enumerate(times)])
        for times in ((1.0, 3.0), (2.0, 4.0))
    ]
    (row,) = table(compare_section(studies), RATIOS)
    assert row["iteration_s_ratio"].verdict == "undecided"


def test_single_repetitions_decide_nothing(make_cell: MakeCell, make_study: MakeStudy) -> None:
    studies = [make_study([make_cell(seconds=s)]) for s in (1.0, 9.0)]
    (row,) = table(compare_section(studies), RATIOS)
    assert row["iteration_s_ratio"].verdict == "undecided (n=1)"
    assert row["iteration_s_ratio"].interval is None


def test_seconds_of_an_emulated_clock_are_not_compared(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    studies = [make_study([make_cell()]), make_study([make_cell()], host={"clock": "emulated"})]
    (row,) = table(compare_section(studies), RATIOS)
    assert row["iteration_s_ratio"] is None
    assert row["device_ratio"].median == 1.0


def test_pools_are_the_same_by_their_digest(make_cell: MakeCell, make_study: MakeStudy) -> None:
    moved = make_study([make_cell(pool="/elsewhere/pool")])
    other = make_study([make_cell(facts={"pool_sha256": "pool2"})])
    here = make_study([make_cell()])
    assert len(table(compare_section([here, moved]), RATIOS)) == 1
    section = compare_section([here, other])
    assert section.prose[-1] == "No arm was measured in more than one of them."


def test_copies_are_refused(make_cell: MakeCell, make_study: MakeStudy) -> None:
    cell = make_cell()
    copies = [make_study([cell]), make_study([cell, make_cell(repetition=2)])]
    with pytest.raises(InputError, match=r"holds cells of .*: give one of the two"):
        compare_section(copies)


def test_three_results_are_compared_two_by_two(make_cell: MakeCell, make_study: MakeStudy) -> None:
    studies = [make_study([make_cell(seconds=s)]) for s in (1.0, 2.0, 4.0)]
    rows = table(compare_section(studies), RATIOS)
    assert [row["iteration_s_ratio"].median for row in rows] == [2.0, 4.0, 2.0]
