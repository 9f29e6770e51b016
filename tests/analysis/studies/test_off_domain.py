# SPDX-License-Identifier: Apache-2.0
"""Frozen tables on other traces, beside counts by hand in the same windows."""

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from pagetier.analysis.simulators import Budget, Contract, events_of_trace, lru_curve, prepare
from pagetier.analysis.simulators.contract import Warm
from pagetier.analysis.studies import off_domain

Draw = Callable[..., Any]


def parts(requests: Any, warm: Warm) -> tuple[list[Any], list[Any]]:
    """Steps that warm, steps that are scored."""
    steps = [step for one in requests for step in one]
    if isinstance(warm, str):
        return steps, steps
    first = int(Fraction(str(warm)) * len(steps))
    return steps[:first], steps[first:]


def reads(steps: list[Any]) -> list[tuple[int, int]]:
    return [
        (layer, expert)
        for one in steps
        for routed in one.passes
        for layer, experts in enumerate(routed)
        for expert in experts
    ]


def table_by_hand(steps: list[Any], quota: int) -> set[tuple[int, int]]:
    """The most used of each layer; only where no tie decides."""
    uses = Counter(reads(steps))
    held = set()
    for layer in range(3):
        ranked = sorted(((n, e) for (at, e), n in uses.items() if at == layer), reverse=True)
        assume(len(ranked) <= quota or ranked[quota - 1][0] > ranked[quota][0])
        held |= {(layer, expert) for _, expert in ranked[:quota]}
    return held


@given(
    seed=st.integers(0, 2**32),
    quota=st.integers(1, 5),
    warm=st.sampled_from(["nothing", "pass", 0.6]),
)
def test_beside_a_table_by_hand(drawn: Draw, seed: int, quota: int, warm: Warm) -> None:
    (here, steps_here), (there, steps_there) = drawn(seed), drawn(seed + 1)
    held = table_by_hand(parts(steps_here, warm)[0], quota)
    own = table_by_hand(parts(steps_there, warm)[0], quota)
    traces = {"here": events_of_trace(here), "there": events_of_trace(there)}
    contract = Contract(warm=warm)
    rows = off_domain("here", traces, contract, [Budget("experts", quota)])
    assert [row.scored_on for row in rows] == ["here", "there"]
    trained = "here, warm part" if warm == 0.6 else "here"
    assert {row.trained_on for row in rows} == {trained}
    scored = reads(parts(steps_there, warm)[1])
    assume(scored)
    found = rows[1]
    assert found.accesses == len(scored)
    assert found.table == sum(read in held for read in scored) / len(scored)
    assert found.own == sum(read in own for read in scored) / len(scored)
    assert found.initial_load == len(held)
    curve = lru_curve(prepare(traces["there"], contract))
    hits = len(scored) - curve.misses_at(Budget("experts", quota))
    assert found.lru == hits / len(scored)
    assert found.table_minus_lru == found.table - found.lru


def test_on_its_own_trace_the_table_is_its_own(drawn: Draw) -> None:
    traces = {"here": events_of_trace(drawn(8)[0]), "there": events_of_trace(drawn(9)[0])}
    rows = off_domain("here", traces, Contract(warm=0.5), [Budget("experts", n) for n in (2, 4)])
    assert [(row.scored_on, row.budget) for row in rows] == [
        ("here", "2"),
        ("here", "4"),
        ("there", "2"),
        ("there", "4"),
    ]
    assert rows[0].table == rows[0].own and rows[1].table == rows[1].own
    assert rows[0].as_document()["belady"] >= rows[0].as_document()["lru"]
