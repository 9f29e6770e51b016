# SPDX-License-Identifier: Apache-2.0
"""The table of an engine's arms, the check by a replay, and the pairs that do not count."""

from collections.abc import Callable
from typing import Any

import pytest

from pagetier.analysis.report.beside import Beside
from pagetier.analysis.report.document import report_document, sections
from pagetier.analysis.report.engine import engine_section
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.render import section_text
from pagetier.analysis.report.section import Section
from pagetier.analysis.results import Cell

GB = 10**9
TOKENS = [4, 8, 15, 16, 23, 42, 8, 4]
CAMPAIGN = {"engine": {"name": "llama.cpp"}, "arms": ["mmap", "no-admission"]}

Rows = list[dict[str, Any]]


@pytest.fixture
def decoded(make_cell: Callable[..., Cell]) -> Callable[..., Cell]:
    """A cell of an arm in a round: decoding a token takes `seconds`, and the device `device`."""

    def made(arm: str, repetition: int, tokens: list[int] = TOKENS, **more: Any) -> Cell:
        tier = "pagetier replay" if arm == "replay" else f"llama.cpp {arm}"
        more.setdefault("prompt", 0)
        return make_cell(
            arm=arm,
            tier=tier,
            domain="prose",
            repetition=repetition,
            result={"tokens": tokens},
            facts={"engine": {"backend": "CPU", "tokens": TOKENS}},
            **more,
        )

    return made


@pytest.fixture
def cells(decoded: Callable[..., Cell]) -> list[Cell]:
    """Three rounds of two arms and a replay; in the last round an output differs."""
    found = []
    for at, factor in ((1, 2.0), (2, 3.0), (3, 9.0)):
        other = TOKENS if at < 3 else TOKENS[::-1]
        found += [
            decoded("mmap", at, seconds=1.0 * at, device=4 * GB),
            decoded("no-admission", at, other, seconds=factor * at, device=30 * GB),
            decoded("replay", at, seconds=0.5, device=(4 + at) * GB, in_extent=3 * GB),
        ]
    return found


def rows_of(section: Section | None, caption: str) -> Rows:
    assert section is not None
    for table in section.tables:
        if table.caption == caption:
            keys = [column.key for column in table.columns]
            return [dict(zip(keys, row, strict=True)) for row in table.rows]
    return []


def test_arms_beside_the_first(cells: list[Cell], make_study: Callable[..., Study]) -> None:
    section = engine_section(make_study(cells, campaign=CAMPAIGN))
    plain, dropped = rows_of(section, "Arms of the engine")
    assert (plain["arm"], plain["n"], plain["pairs"], plain["time_ratio"]) == (
        "mmap",
        3,
        None,
        None,
    )
    assert (dropped["arm"], dropped["n"], dropped["pairs"]) == ("no-admission", 3, "2 of 3")
    assert dropped["identical"] is False
    ratio = dropped["time_ratio"]
    assert (ratio.median, ratio.min, ratio.max, ratio.count) == (2.5, 2.0, 3.0, 2)
    assert dropped["device_bytes"].median == dropped["own_bytes"].median == 30 * GB
    assert (plain["demand_bytes"], plain["nominal_bytes"]) == (30 * GB, 5 * GB)


def test_the_check_is_paired_by_round(cells: list[Cell], make_study: Callable[..., Study]) -> None:
    section = engine_section(make_study(cells, campaign=CAMPAIGN))
    (check,) = rows_of(section, "A replay of the same routing")
    ratio = check["ratio"]
    assert (ratio.median, ratio.min, ratio.max, check["n"]) == (1.5, 1.25, 1.75, 3)
    assert (check["first"], check["repeat"], check["over_read"]) == (0, 3 * GB, 3 * GB)


def test_pairs_that_do_not_count_are_listed(
    cells: list[Cell], decoded: Callable[..., Cell], make_study: Callable[..., Study]
) -> None:
    alone = decoded("no-admission", 7)
    section = engine_section(make_study([*cells, alone], campaign=CAMPAIGN))
    problems = rows_of(section, "Pairs that do not count")
    assert [(row["round"], row["why"]) for row in problems] == [
        (3, "the outputs differ"),
        (7, "its partner was not measured"),
    ]


def test_prompts_and_limits_are_apart(
    decoded: Callable[..., Cell], make_study: Callable[..., Study]
) -> None:
    cells = [
        decoded(arm, 1, prompt=prompt, capacity_bytes=capacity, mechanism=mechanism)
        for prompt in (0, 1)
        for mechanism, capacity in (("none", None), ("wall", GB), ("wall", 2 * GB))
        for arm in ("mmap", "no-admission")
    ]
    section = engine_section(make_study(cells, campaign=CAMPAIGN))
    found = rows_of(section, "Arms of the engine")
    assert [(row["capacity_bytes"], row["prompt"], row["arm"]) for row in found] == [
        (capacity, prompt, arm)
        for capacity in (None, 2 * GB, GB)
        for prompt in (0, 1)
        for arm in ("mmap", "no-admission")
    ]
    assert rows_of(section, "A replay of the same routing") == []


def test_an_emulated_clock_has_no_times(
    cells: list[Cell], make_study: Callable[..., Study]
) -> None:
    section = engine_section(make_study(cells, {"clock": "emulated"}, CAMPAIGN))
    for row in rows_of(section, "Arms of the engine"):
        assert row["s_per_token"] is None and row["time_ratio"] is None


def test_the_report_of_an_engine_has_this_section_and_no_other_of_replays(
    cells: list[Cell], make_study: Callable[..., Study]
) -> None:
    study = make_study(cells, campaign=CAMPAIGN)
    told = sections(study, Beside())
    assert [section.key for section in told] == ["validity", "engine"]
    document = report_document(study, told)
    assert {cell["arm"] for cell in document["cells"]} == {"mmap", "no-admission", "replay"}
    text = section_text(told[1])
    assert "identical" in text and "2 of 3" in text


def test_a_campaign_of_replays_has_no_such_section(
    make_cell: Callable[..., Cell], make_study: Callable[..., Study]
) -> None:
    assert engine_section(make_study([make_cell()])) is None
