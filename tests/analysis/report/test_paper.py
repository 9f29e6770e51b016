# SPDX-License-Identifier: Apache-2.0
"""The paper's own numbers, typed in: Table 2, the worked sizing example and the placement rules."""

from collections.abc import Callable

import pytest

from pagetier.analysis.report import formats
from pagetier.analysis.report.beside import Beside, Rates
from pagetier.analysis.report.capacity import capacity_section
from pagetier.analysis.report.placement import breakeven_reuse, direct_shortfall
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.sizing import Target, sizing_section
from pagetier.analysis.results import Cell

MakeStudy = Callable[..., Study]
GB = 10**9
RATES = Rates(host=327 * GB, hbm=2938 * GB, stream=346 * GB)


def test_table_2(paper_sweep: list[Cell], make_study: MakeStudy) -> None:
    (table,) = capacity_section(make_study(paper_sweep)).tables
    keys = [column.key for column in table.columns]
    rows = [dict(zip(keys, row, strict=True)) for row in table.rows]
    printed = [
        (
            row["capacity_bytes"] // GB,
            f"{row['iteration_s'].median:.2f}",
            formats.percent(row["iteration_s_spread"]),
            f"{row['device_bytes_per_iteration'].median / GB:.1f}",
            formats.change(row["inverse_deviation"]),
            f"{row['nominal_miss_bytes_per_iteration'] / GB:.1f}",
            formats.factor(row["amplification"]),
        )
        for row in rows
    ]
    assert printed == [
        (448, "0.99", "0.5%", "5.3", "+0.0%", "5.3", "0.99x"),
        (256, "1.37", "2.1%", "9.8", "+5.0%", "8.1", "1.22x"),
        (128, "1.95", "4.0%", "17.4", "-6.7%", "11.6", "1.50x"),
        (64, "2.76", "1.4%", "33.6", "-9.7%", "15.1", "2.22x"),
    ]
    assert {row["remarks"] for row in rows} == {"balloon-conditioned"}


def test_two_seconds_take_about_128_gb(paper_sweep: list[Cell], make_study: MakeStudy) -> None:
    section, answer = sizing_section(make_study(paper_sweep), Target(2.0), Beside())
    assert answer.state == "met"
    assert answer.capacity_bytes == pytest.approx(128 * GB, rel=0.05)
    assert answer.measured is not None and answer.measured.capacity_bytes == 128 * GB
    assert answer.sentence.startswith("Upper bound of the smallest C for 2 s: 124 GB; measured at")
    assert any("What a balloon says is an upper bound" in text for text in section.prose)


def test_what_no_capacity_meets(paper_sweep: list[Cell], make_study: MakeStudy) -> None:
    _, answer = sizing_section(make_study(paper_sweep), Target(0.5), Beside())
    assert (answer.state, answer.capacity_bytes) == ("unmet", None)
    assert answer.sentence == (
        "No C meets 0.5 s: at the largest measured C, 448 GB, it takes 0.99 [0.988-0.993] s;"
        " more was not measured."
    )


def test_what_every_capacity_meets(paper_sweep: list[Cell], make_study: MakeStudy) -> None:
    _, answer = sizing_section(make_study(paper_sweep), Target(3.0), Beside())
    assert (answer.state, answer.capacity_bytes) == ("met-everywhere", 64 * GB)
    assert "less was not measured, more is not worth it" in answer.sentence


def test_breakeven_reuse() -> None:
    found = breakeven_reuse(RATES)
    assert found is not None and f"{found:.2f}" == "1.06"


def test_direct_reads_are_close_to_streaming() -> None:
    # The paper's 5.6 % is of unrounded rates.
    found = direct_shortfall(RATES)
    assert found == pytest.approx(0.056, abs=0.002)
    far = direct_shortfall(Rates(host=23 * GB, stream=346 * GB))
    assert far is not None and far > 0.9


@pytest.mark.parametrize(
    "rates", [Rates(), Rates(host=1, stream=1), Rates(host=5, hbm=5, stream=1)]
)
def test_no_breakeven_without_rates_or_where_hbm_is_not_faster(rates: Rates) -> None:
    assert breakeven_reuse(rates) is None
