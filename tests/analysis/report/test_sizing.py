# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import pytest

from pagetier.analysis.report.beside import Beside, Rates, offline_at
from pagetier.analysis.report.budget import Regime, regime_of
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import Section
from pagetier.analysis.report.sizing import Target, sizing_section
from pagetier.analysis.results import Cell

MakeCell = Callable[..., Cell]
MakeStudy = Callable[..., Study]
GB = 10**9


def sweep(
    make_cell: MakeCell, mechanism: str, *points: tuple[int, float], **more: Any
) -> list[Cell]:
    return [
        make_cell(seconds=s, mechanism=mechanism, capacity_bytes=c * GB, **more) for c, s in points
    ]


def table(section: Section, caption: str) -> list[dict[str, Any]]:
    (found,) = [table for table in section.tables if table.caption == caption]
    keys = [column.key for column in found.columns]
    return [dict(zip(keys, row, strict=True)) for row in found.rows]


def test_the_best_evidence_answers_and_all_of_it_is_shown(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    cells = sweep(make_cell, "balloon", (100, 4.0), (200, 1.0))
    cells += sweep(make_cell, "wall", (100, 3.0), (200, 1.0))
    section, answer = sizing_section(make_study(cells), Target(2.0), Beside())
    assert answer.capacity_bytes == 150 * GB
    assert answer.sentence.startswith("Smallest C for 2 s: 150 GB; measured at 200 GB (1 (n=1) s)")
    assert answer.sentence.endswith("n=1, so that no spread is known.")
    rows = table(section, "Seconds per iteration")
    assert [row["arm"] for row in rows] == ["wall", "balloon"]
    assert "Upper bound of the smallest" in rows[1]["answer"]


def test_a_repetition_that_misses_the_target_is_told(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    cells = [
        make_cell(seconds=s, capacity_bytes=c * GB, repetition=n)
        for c, times in ((100, (3.0, 3.0, 3.0)), (200, (1.8, 1.9, 2.2)))
        for n, s in enumerate(times, start=1)
    ]
    _, answer = sizing_section(make_study(cells), Target(2.0), Beside())
    assert answer.sentence.endswith("its slowest repetition does not meet it.")


def test_more_memory_is_not_worth_it_when_all_is_in_memory(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    cells = sweep(make_cell, "wall", (100, 3.0), (200, 1.0), in_extent=0)
    _, answer = sizing_section(make_study(cells), Target(0.5), Beside())
    assert answer.state == "unmet"
    assert answer.sentence.endswith(
        "with all of the demand in memory: more memory is not worth it."
    )


def test_no_size_from_an_emulated_clock(make_cell: MakeCell, make_study: MakeStudy) -> None:
    study = make_study(sweep(make_cell, "wall", (100, 3.0)), host={"clock": "emulated"})
    section, answer = sizing_section(study, Target(5.0, 1.0), Beside())
    assert answer.state == "unknown"
    assert "its seconds are no times" in section.prose[0]
    assert "Seconds per iteration" not in [table.caption for table in section.tables]


def test_no_size_without_a_limit(make_cell: MakeCell, make_study: MakeStudy) -> None:
    study = make_study([make_cell(mechanism="none", capacity_bytes=None, file=1)])
    assert sizing_section(study, Target(5.0), Beside())[1].state == "unknown"


def test_tokens_are_sized_apart(make_cell: MakeCell, make_study: MakeStudy) -> None:
    # Two iterations per accepted token: 2 s an iteration are 4 s a token.
    cells = sweep(make_cell, "wall", (100, 4.0), (200, 2.0), tokens=1)
    section, answer = sizing_section(make_study(cells), Target(4.0, 0.25), Beside())
    assert answer.capacity_bytes == 100 * GB
    (row,) = table(section, "Seconds per accepted token")
    assert (row["capacity_bytes"], row["measured_s"].median) == (200 * GB, 4.0)


def test_tokens_unknown(make_cell: MakeCell, make_study: MakeStudy) -> None:
    cells = sweep(make_cell, "wall", (100, 4.0), tokens=None)
    section, _ = sizing_section(make_study(cells), Target(4.0, 1.0), Beside())
    assert (
        "1 accepted tokens per second: not told, for want of times or of tokens." in section.prose
    )


def test_the_bandwidth_budget(make_cell: MakeCell, make_study: MakeStudy) -> None:
    # 5 GB per iteration, one token each: 3 tokens a second take 15 GB/s.
    cells = sweep(make_cell, "wall", (100, 4.0), device=5 * GB)
    beside = Beside(rates=Rates(device=12 * GB))
    section, _ = sizing_section(make_study(cells), Target(4.0, 3.0), beside)
    (row,) = table(section, "Bandwidth at 3 accepted tokens per second")
    assert row["device_bytes_per_token"] == pytest.approx(5 * GB)
    assert row["needed_bytes_per_s"] == pytest.approx(15 * GB)
    assert (row["device_bytes_per_s"], row["answer"]) == (12 * GB, "over")


def test_the_rate_of_the_device_is_the_fastest_pass(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    cells = sweep(make_cell, "wall", (100, 2.0), (200, 1.0), device=5 * GB)
    section, _ = sizing_section(make_study(cells), Target(4.0, 1.0), Beside())
    told = "Device: 5.00 GB per second (at least: the fastest pass of this campaign)."
    assert told in section.prose


# ---- the four cases -----------------------------------------------------------------------------


def rows(**misses: float) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "policy": policy.replace("_", "-"),
            "scope": "global",
            "replay": "access",
            "budget_bytes": 100 * GB,
            "miss_bytes_per_iteration": value * GB,
        }
        for policy, value in misses.items()
    )


@pytest.mark.parametrize(
    ("offline", "gap", "budget", "case"),
    [
        (1.0, 0.05, 2.0, "existing policies suffice"),
        (1.0, 0.45, 2.0, "genuine headroom"),
        (3.0, 0.05, 2.0, "no residency policy"),
        (3.0, 0.45, 2.0, "the oracle fails as well"),
    ],
)
def test_the_four_cases(offline: float, gap: float, budget: float, case: str) -> None:
    found = regime_of(offline, gap, budget).case
    assert found is not None and found.startswith(case)


@pytest.mark.parametrize(
    ("figures", "regime"),
    [
        ((None, 0.5, 2.0), Regime(None, False)),
        ((1.0, None, 2.0), Regime(True, None)),
        ((1.0, 0.0, None), Regime(None, True)),
    ],
)
def test_without_a_figure_there_is_no_case(figures: tuple[Any, ...], regime: Regime) -> None:
    found = regime_of(*figures)
    assert found == regime
    assert found.case is None


def test_the_case_of_this_host(make_cell: MakeCell, make_study: MakeStudy) -> None:
    cells = sweep(make_cell, "wall", (100, 1.0))
    beside = Beside(rates=Rates(device=12 * GB), simulation=rows(lru=4.0, lfu=5.0, belady=2.0))
    section, _ = sizing_section(make_study(cells), Target(4.0, 3.0), beside)
    assert section.prose[-1] == (
        "Case of this host: genuine headroom for a policy on this sequence (at a budget of 100 GB"
        " the offline optimum reads 6.00 GB per second at this rate, 50.0% below the best causal"
        " policy (lru), all simulated)."
    )


def test_without_the_optimum_the_row_may_be_known(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    cells = sweep(make_cell, "wall", (100, 1.0), misses=3 * GB)
    for rate, told in ((12 * GB, "within the budget"), (2 * GB, "not told without")):
        beside = Beside(rates=Rates(device=rate))
        section, _ = sizing_section(make_study(cells), Target(4.0, 3.0), beside)
        assert section.prose[-1].startswith(f"Case of this host: {told}")


def test_the_bounds_at_a_budget() -> None:
    # The second paper's Table 14, B = 8, in percent of the logical accesses.
    found = offline_at(
        rows(lfru=18.01, lfu=19.14, belady=9.93, belady_forced=11.198, static=1.0), 150 * GB
    )
    assert found is not None
    assert (found.causal_policy, found.budget_bytes) == ("lfru", 100 * GB)
    assert found.gap == pytest.approx(0.4485, abs=2e-4)
    assert found.admission_share == pytest.approx(0.1569, abs=2e-4)


def test_no_bounds_above_the_capacity_nor_of_another_replay() -> None:
    assert offline_at(rows(lru=4.0, belady=2.0), 99 * GB) is None
    event = tuple({**row, "replay": "event"} for row in rows(lru=4.0, belady=2.0))
    assert offline_at(event, 200 * GB) is None
    assert offline_at(rows(belady=2.0), 200 * GB) is None
