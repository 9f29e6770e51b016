# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pagetier.analysis.generate import default_trace
from pagetier.analysis.plans import build_plan
from pagetier.analysis.report.beside import Beside, Rates
from pagetier.analysis.report.placement import Promotion, placement_section, promotion_list
from pagetier.analysis.report.procedure import procedure_rows
from pagetier.analysis.report.reading import Study
from pagetier.analysis.results import Cell

MakeCell = Callable[..., Cell]
MakeStudy = Callable[..., Study]
GB = 10**9
RATES = Rates(host=327 * GB, hbm=2938 * GB, stream=346 * GB, hbm_bytes=2500)


def answers(study: Study) -> dict[str, tuple[str, str]]:
    return {line: (answer, evidence) for line, _, answer, evidence in procedure_rows(study)}


def test_what_is_used_again_often_enough_is_promoted_while_there_is_room() -> None:
    uses = np.array([1, 5, 0, 2, 5, 3], dtype=np.int64)
    # r* = 1.06: two reads are one use again, three are two.
    found = promotion_list(uses, 3, 1.06, room=10)
    assert found == [Promotion(0, 1, 5), Promotion(1, 1, 5), Promotion(1, 2, 3)]
    assert promotion_list(uses, 3, 1.06, room=1) == [Promotion(0, 1, 5)]
    assert promotion_list(uses, 3, 0.5, room=10)[-1] == Promotion(1, 0, 2)


def test_rules_with_rates_and_a_trace(make_cell: MakeCell, make_study: MakeStudy) -> None:
    plan = build_plan(default_trace(layers=2, experts=4, top_k=2, iterations=30, seed=1))
    section = placement_section(make_study([make_cell()]), Beside(rates=RATES, plan=plan))
    rules = {row[0]: row[1:] for row in section.tables[1].rows}
    assert rules["promote to accelerator memory what is used again more often than r*"] == (
        "r* = 1.06",
        "2 experts of this trace repay their transfer and fit",
    )
    (figure, answer) = rules["read directly where that is about as fast as streaming"]
    assert figure == "direct is 5.5% below streaming"
    assert answer.startswith("direct: within 10%")
    promoted = section.tables[2]
    counts = np.bincount(plan.experts, minlength=8)
    assert [row[2] for row in promoted.rows] == sorted(counts, reverse=True)[:2]


def test_rules_without_rates_say_what_they_need(make_cell: MakeCell, make_study: MakeStudy) -> None:
    section = placement_section(make_study([make_cell()]), Beside())
    rules = {row[0]: row[1:] for row in section.tables[1].rows}
    needed = [answer for _, answer in rules.values()][1:]
    assert all(answer.startswith("not answered: needs --rates") for answer in needed)


def test_a_discrete_card_streams(make_cell: MakeCell, make_study: MakeStudy) -> None:
    beside = Beside(rates=Rates(host=23 * GB, stream=346 * GB, hbm=23 * GB))
    rows = placement_section(make_study([make_cell()]), beside).tables[1].rows
    assert rows[1][2] == "no: its own memory is no faster than file pages in host memory"
    assert rows[2][2].startswith("stream, or own the bytes")


def test_nothing_is_answered_that_was_not_measured(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    found = answers(make_study([make_cell()]))
    assert {line for line, (answer, _) in found.items() if answer == "not measured"} == {
        "1",
        "2",
        "5",
        "7",
        "8",
    }


@pytest.mark.parametrize(
    ("direct", "answer"),
    [((2.0, 2.0), "yes"), ((0.5, 0.5), "no"), ((0.5, 2.0), "undecided")],
)
def test_admission_is_answered_by_tiers_without_it(
    make_cell: MakeCell, make_study: MakeStudy, direct: tuple[float, ...], answer: str
) -> None:
    cells = [make_cell(seconds=1.0, repetition=n) for n in (1, 2)]
    cells += [
        make_cell(seconds=s, tier="direct", repetition=n) for n, s in enumerate(direct, start=1)
    ]
    assert answers(make_study(cells))["1"][0] == answer


def test_advice_and_arena_and_spine(make_cell: MakeCell, make_study: MakeStudy) -> None:
    hint = {"plan": "oracle", "delivery": "advice", "chunk": "safe", "min_layer_recall": 0.0}
    held = {"table": "oracle", "fraction": 1.0}
    spine = 5 * GB
    specs: list[tuple[float, dict[str, Any]]] = [
        (1.0, {"tier": "page-cache", "prefetch": None, "arena": None}),
        (0.9, {"tier": "page-cache", "prefetch": hint, "arena": None}),
        (0.8, {"tier": "arena", "prefetch": None, "arena": held}),
    ]
    cells = [
        make_cell(seconds=s, repetition=n, spine_bytes=spine, **spec)
        for n in (1, 2)
        for s, spec in specs
    ]
    found = answers(make_study(cells))
    assert found["2"] == ("yes", "5.00 GB were locked in the scope of the measured cells")
    assert found["5"][0] == "yes"
    assert "100 GB oracle: 0.900x" in found["5"][1]
    assert found["8"][0].startswith("optional: faster on its own trace")


@pytest.mark.parametrize(
    ("balloon", "wall", "answer"),
    [(2.0, 1.0, "yes"), (2.0, 2.0, "undecided"), (1.0, 1.0, "no need seen")],
)
def test_confinement(
    make_cell: MakeCell, make_study: MakeStudy, balloon: float, wall: float, answer: str
) -> None:
    cells = [
        make_cell(misses=GB, device=x * GB, mechanism=mechanism, locked=locked)
        for mechanism, x, locked in (("balloon", balloon, 390 * GB), ("wall", wall, None))
    ]
    found = answers(make_study(cells))
    assert found["7"][0] == answer
    assert "81% locked" in found["7"][1]
    assert found["6"][0] == ("quiet" if balloon == wall == 1.0 else "alert")


def test_over_read_alone_is_no_alert(make_cell: MakeCell, make_study: MakeStudy) -> None:
    study = make_study([make_cell(device=20 * GB, in_extent=9 * GB, misses=10 * GB)])
    answer, evidence = answers(study)["6"]
    assert answer == "quiet"
    assert "amplification 2.00x, over-read 55.0%" in evidence
