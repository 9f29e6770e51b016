# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import pytest

from pagetier.analysis.report.agreement import agreement_section
from pagetier.analysis.report.capacity import EMULATED, capacity_section
from pagetier.analysis.report.drift import drift_section
from pagetier.analysis.report.equal_memory import equal_memory_section
from pagetier.analysis.report.prefetch import prefetch_section
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.reclaim import reclaim_section
from pagetier.analysis.report.section import Section
from pagetier.analysis.report.validity import validity_section
from pagetier.analysis.results import Cell

MakeCell = Callable[..., Cell]
MakeStudy = Callable[..., Study]
GB = 10**9
CLASSIC = 0


def rows_of(section: Section | None, table: int = 0) -> list[dict[str, Any]]:
    assert section is not None
    keys = [column.key for column in section.tables[table].columns]
    return [dict(zip(keys, row, strict=True)) for row in section.tables[table].rows]


# ---- capacity -----------------------------------------------------------------------------------


def test_amplification_never_stands_alone(make_cell: MakeCell, make_study: MakeStudy) -> None:
    study = make_study([make_cell(device=20 * GB, in_extent=12 * GB, misses=10 * GB)])
    (row,) = rows_of(capacity_section(study))
    assert row["amplification"] == pytest.approx(2.0)
    assert row["in_extent_amplification"] == pytest.approx(1.2)
    assert row["over_read_share"] == pytest.approx(0.4)


def test_arms_that_differ_in_more_than_capacity_have_anchors_of_their_own(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    cells = [
        make_cell(device=device * GB, capacity_bytes=c * GB, mechanism=mechanism)
        for mechanism, c, device in (
            ("wall", 200, 5),
            ("wall", 100, 11),
            ("balloon", 200, 8),
            ("balloon", 100, 8),
        )
    ]
    found = {
        (row["arm"], row["capacity_bytes"] // GB): row["inverse_deviation"]
        for row in rows_of(capacity_section(make_study(cells)))
    }
    assert found == {
        ("wall", 200): pytest.approx(0.0, abs=1e-6),
        ("wall", 100): pytest.approx(0.1, abs=1e-6),
        ("balloon", 200): pytest.approx(0.0, abs=1e-6),
        ("balloon", 100): pytest.approx(-0.5, abs=1e-6),
    }


def test_reclaim_parts_arms(make_cell: MakeCell, make_study: MakeStudy) -> None:
    rows = rows_of(capacity_section(make_study([make_cell(mask=7), make_cell(mask=CLASSIC)])))
    assert [row["n"] for row in rows] == [1, 1]
    assert {row["arm"].split(", ")[-1] for row in rows} == {"MGLRU", "classic LRU (MGLRU off)"}


def test_a_rejected_repetition_is_in_no_figure(make_cell: MakeCell, make_study: MakeStudy) -> None:
    cells = [make_cell(seconds=1.0), make_cell(seconds=9.0, repetition=2, state="rejected")]
    (row,) = rows_of(capacity_section(make_study(cells)))
    assert (row["n"], row["iteration_s"].median, row["iteration_s_spread"]) == (1, 1.0, None)
    assert row["remarks"] == "1 rejected"


def test_seconds_of_an_emulated_clock_are_not_shown(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    study = make_study(
        [make_cell(capacity_bytes=c * GB) for c in (100, 200)], host={"clock": "emulated"}
    )
    section = capacity_section(study)
    assert EMULATED in section.prose
    assert {row["iteration_s"] for row in rows_of(section)} == {None}
    assert all(row["device_bytes_per_iteration"] is not None for row in rows_of(section))
    assert [figure.key for figure in section.figures] == ["capacity-device"]


def test_the_figures_hold_what_the_table_says(
    paper_sweep: list[Cell], make_study: MakeStudy
) -> None:
    timed, read = capacity_section(make_study(paper_sweep)).figures
    (line,) = timed.series
    assert [(point.x, point.n) for point in line.points] == [
        (c * GB, 3) for c in (448, 256, 128, 64)
    ]
    assert [series.kind for series in read.series] == ["measured", "simulated", "reference"]
    reference = read.series[-1].points
    assert [point.y / reference[0].y for point in reference] == [1.0, 1.75, 3.5, 7.0]


# ---- reclaim and agreement ----------------------------------------------------------------------


def test_reclaim_beside_each_other(make_cell: MakeCell, make_study: MakeStudy) -> None:
    cells = [
        make_cell(device=device * GB, mask=mask, mechanism="balloon", locked=390 * GB)
        for mask, device in ((7, 36), (CLASSIC, 12))
    ]
    (row,) = rows_of(reclaim_section(make_study(cells)))
    assert row["ratio"].median == pytest.approx(3.0)
    assert row["ratio"].verdict == "undecided (n=1)"
    assert row["locked_share"] == pytest.approx(390 / 480)


def test_no_reclaim_section_of_one_implementation(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    assert reclaim_section(make_study([make_cell(), make_cell(mechanism="balloon")])) is None


def test_mechanisms_are_compared_under_one_reclaim(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    cells = [
        make_cell(device=device * GB, mask=mask, mechanism=mechanism, headroom="auto")
        for mechanism, mask, device in (
            ("wall", 7, 10),
            ("wall", CLASSIC, 10),
            ("balloon", 7, 20),
            ("balloon", CLASSIC, 11),
        )
    ]
    rows = rows_of(agreement_section(make_study(cells)))
    found = {row["reclaim"]: row["device_ratio"].median for row in rows}
    assert found == {
        "MGLRU": pytest.approx(2.0, rel=1e-6),
        "classic LRU (MGLRU off)": pytest.approx(1.1, rel=1e-6),
    }
    assert {row["remark"] for row in rows} == {""}


def test_a_pair_of_different_reclaim_is_flagged(make_cell: MakeCell, make_study: MakeStudy) -> None:
    cells = [make_cell(mask=7), make_cell(mechanism="balloon", mask=CLASSIC)]
    (row,) = rows_of(agreement_section(make_study(cells)))
    assert row["remark"] == "reclaim differs: no agreement of mechanisms"
    assert row["reclaim"] == "classic LRU (MGLRU off) / MGLRU"


def test_a_boot_beside_the_curve_at_its_effective_capacity(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    sweep = [
        make_cell(
            device=device * GB,
            seconds=seconds,
            mechanism="balloon",
            capacity_bytes=c * GB,
            file=c * GB,
        )
        for c, device, seconds in ((200, 10, 1.0), (100, 20, 2.0))
    ]
    boot = make_cell(
        device=16.5 * GB, seconds=1.2, mechanism="boot", capacity_bytes=160 * GB, file=150 * GB
    )
    (row,) = rows_of(agreement_section(make_study([*sweep, boot])))
    assert row["curve"] == "balloon"
    assert row["device_deviation"] == pytest.approx(0.1, abs=1e-6)  # 15 GB on the curve
    assert row["iteration_s_deviation"] == pytest.approx(-0.2, abs=1e-6)  # 1.5 s on it


def test_a_boot_outside_of_the_curve_is_not_compared(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    sweep = [make_cell(mechanism="balloon", capacity_bytes=c * GB) for c in (200, 100)]
    boot = make_cell(mechanism="boot", capacity_bytes=100 * GB, file=90 * GB)
    rows = rows_of(agreement_section(make_study([*sweep, boot])), table=1)
    assert (rows[0]["device_deviation"], rows[0]["range"]) == (None, "100 GB to 200 GB")


def test_a_boot_has_no_partner_of_its_time(make_cell: MakeCell, make_study: MakeStudy) -> None:
    cells = [
        make_cell(device=device * GB, mechanism=mechanism, repetition=n)
        for mechanism, values in (("wall", (10, 30)), ("boot", (11, 33)))
        for n, device in enumerate(values, start=1)
    ]
    (row,) = rows_of(agreement_section(make_study(cells)))
    # Pair by pair it would be 1.1 in both; unpaired, the two overlap.
    assert row["device_ratio"].verdict == "undecided"


# ---- tiers and hints ----------------------------------------------------------------------------


def test_tiers_beside_the_page_cache_of_their_budget(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    arena = {"table": "oracle", "fraction": 1.0}
    cells = [
        make_cell(seconds=seconds, repetition=n, tier=tier, arena=held, result=result)
        for n, (cached, pinned) in enumerate(((1.09, 1.0), (2.2, 2.0)), start=1)
        for tier, seconds, held, result in (
            ("page-cache", cached, None, {}),
            ("arena", pinned, arena, {"arena_bytes": 15 * 2 * GB}),
        )
    ]
    cells.append(make_cell(seconds=1.8, advice="random", arena=None))
    rows = {row["arm"]: row for row in rows_of(equal_memory_section(make_study(cells)))}
    pinned = rows["arena, wall, advice default"]
    assert pinned["time_ratio"].median == pytest.approx((1 / 1.09 + 2 / 2.2) / 2)
    assert pinned["time_ratio"].verdict == "lower (a hint: chance 1 in 2)"
    assert pinned["served_arena"] == pytest.approx(0.5)
    assert rows["page-cache, wall, advice default"]["time_ratio"] is None
    assert rows["page-cache, wall, advice random"]["time_ratio"].median == pytest.approx(1.8 / 1.09)


def test_no_equal_memory_of_one_arm(make_cell: MakeCell, make_study: MakeStudy) -> None:
    assert equal_memory_section(make_study([make_cell(), make_cell(repetition=2)])) is None


HINTS = {
    "submitted": 30,
    "overwritten": 4,
    "completed": 26,
    "failed": 0,
    "hinted_bytes": 1000,
    "resident_before_bytes": 0,
    "resident_after_bytes": 478,
    "brought_bytes": 400,
    "raced_bytes": 0,
    "used_bytes": 300,
    "evicted_bytes": 60,
    "unused_bytes": 40,
    "busy_ns": 5,
}


def hinted(plan: str, delivery: str) -> dict[str, Any]:
    return {"plan": plan, "delivery": delivery, "chunk": None, "min_layer_recall": 0.0}


def test_conditions_of_prefetch(make_cell: MakeCell, make_study: MakeStudy) -> None:
    cells = [
        make_cell(seconds=1.134, prefetch=None),
        make_cell(seconds=1.077, prefetch=hinted("oracle", "advice"), result={"hints": HINTS}),
        make_cell(seconds=1.151, prefetch=hinted("oracle", "blocking"), result={"hints": HINTS}),
    ]
    rows = {row["condition"]: row for row in rows_of(prefetch_section(make_study(cells)))}
    assert list(rows) == ["none", "oracle, advice", "oracle, blocking"]
    assert rows["oracle, advice"]["time_ratio"].median == pytest.approx(1.077 / 1.134)
    assert rows["oracle, blocking"]["time_ratio"].median == pytest.approx(1.151 / 1.134)
    counts = ("submitted", "overwritten", "completed", "failed", "used_bytes", "evicted_bytes")
    assert [rows["oracle, advice"][name] for name in counts] == [30, 4, 26, 0, 300, 60]
    assert rows["oracle, advice"]["resident_share"] == pytest.approx(0.478)
    assert (rows["none"]["submitted"], rows["none"]["time_ratio"]) == (None, None)


def test_no_prefetch_section_without_an_advisor(make_cell: MakeCell, make_study: MakeStudy) -> None:
    assert prefetch_section(make_study([make_cell(prefetch=None)])) is None


# ---- validity and drift -------------------------------------------------------------------------


def test_every_rejected_cell_is_listed_with_its_reasons(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    bad = make_cell(state="rejected", repetition=2, mechanism="balloon")
    study = make_study(
        [make_cell(), bad], not_run='[{"cell": "boot 1 GB", "reason": "no boot loader"}]'
    )
    section = validity_section(study)
    assert section.prose == ("Cells kept: 1 of 2; rejected, with the reasons below: 1.",)
    assert rows_of(section) == [
        {
            "id": bad.id,
            "arm": "balloon",
            "repetition": 2,
            "reasons": "it was rejected",
        }
    ]
    assert rows_of(section, table=1) == [{"cell": "boot 1 GB", "reason": "no boot loader"}]


def test_repetitions_that_drift_together(make_cell: MakeCell, make_study: MakeStudy) -> None:
    cells = [
        make_cell(seconds=c / 100 * slower, capacity_bytes=c * GB, repetition=n)
        for n, slower in ((1, 1.0), (2, 1.2))
        for c in range(100, 900, 100)
    ]
    (row,) = rows_of(drift_section(make_study(cells)))
    assert (row["repetition"], row["arms"]) == (2, 8)
    assert row["iteration_s_ratio"].median == pytest.approx(1.2)
    assert row["iteration_s_ratio"].verdict == "higher"
    assert row["device_ratio"].verdict == "undecided"


def test_a_pass_that_still_moves_is_named(make_cell: MakeCell, make_study: MakeStudy) -> None:
    falling = make_cell(seconds=[2.0 - 0.02 * n for n in range(40)], repetition=3)
    steady = make_cell(seconds=[1.0 + 0.01 * (n % 2) for n in range(40)], capacity_bytes=GB)
    section = drift_section(make_study([falling, steady]))
    (row,) = rows_of(section)
    assert (row["repetition"], row["reading"]) == (3, "not settled: the warm-up was too short")
    assert row["change"] < -0.2
    assert section is not None and section.prose[0] == (
        "Cells that are settled within the measured pass: 1; that still move: 1."
    )
