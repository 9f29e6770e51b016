# SPDX-License-Identifier: Apache-2.0
from typing import Any

from pagetier.analysis.report.beside import Beside
from pagetier.analysis.report.section import Figure
from pagetier.analysis.report.simulated import simulated_section


def row(policy: str, budget: int | None, rate: float | None, **more: Any) -> dict[str, Any]:
    contract = {"scope": "per-layer", "replay": "event", "window": 0.6, "cold_start": "once"}
    return {"policy": policy, "budget_experts": budget, "hit_rate": rate, **contract, **more}


def figures(*domains: tuple[str, tuple[dict[str, Any], ...]]) -> dict[str, Figure]:
    section = simulated_section(Beside(domains=domains))
    assert section is not None
    return {figure.key: figure for figure in section.figures}


def test_a_band_is_the_domains_least_and_greatest() -> None:
    found = figures(
        ("chat", (row("lru", 8, 0.2), row("lru", 16, 0.5))),
        ("code", (row("lru", 8, 0.4), row("lru", 16, 0.5))),
        ("prose", (row("lru", 8, 0.9),)),
    )
    (line,) = found["hit-rate"].series
    assert line.kind == "simulated"
    assert [(p.x, p.min, p.y, p.max, p.n) for p in line.points] == [
        (8, 0.2, 0.4, 0.9, 3),
        (16, 0.5, 0.5, 0.5, 2),
    ]


def test_a_domain_that_is_given_twice_counts_once() -> None:
    rows = (row("lru", 8, 0.2),)
    (line,) = figures(("chat", rows), ("chat", rows))["hit-rate"].series
    assert line.points[0].n == 1


def test_contracts_are_not_drawn_together() -> None:
    rows = (row("lru", 8, 0.2), row("lru", 8, 0.3, scope="global"), row("lru", 8, 0.4, window=None))
    figure = figures(("chat", rows))["hit-rate"]
    assert [panel.name for panel in figure.panels] == [
        "experts per layer, event replay, after the first 0.6 of the iterations",
        "experts in all, event replay, after the first 0.6 of the iterations",
        "experts per layer, event replay, scored cold",
    ]
    assert [len(series.points) for series in figure.series] == [1, 1, 1]


def test_a_table_of_another_trace_stands_beside_lru_by_domain() -> None:
    def rows(lru: float, off: float) -> tuple[dict[str, Any], ...]:
        own = row("static", 8, 0.5, static_fit="warm part")
        return row("lru", 8, lru), own, row("static", 8, off, static_fit="/x/prose.jsonl.gz")

    found = figures(("prose", rows(0.74, 0.57)), ("chat", rows(0.7, 0.21)))
    table, lru = found["off-domain"].series
    assert table.name == "static table of prose.jsonl.gz (simulated)"
    assert [(p.x, p.y) for p in table.points] == [("prose", 0.57), ("chat", 0.21)]
    assert [(p.x, p.y) for p in lru.points] == [("prose", 0.74), ("chat", 0.7)]
    # The curve of `static` is that of its own trace alone.
    static = next(s for s in found["hit-rate"].series if s.name == "static")
    assert [p.y for p in static.points] == [0.5]


def test_rows_of_an_off_domain_study_are_that_picture_alone() -> None:
    contract = {"scope": "per-layer", "replay": "event", "window": 0.6, "cold_start": "once"}
    rows = tuple(
        {
            "scored_on": f"/x/{name}.jsonl.gz",
            "trained_on": "/x/prose.jsonl.gz, warm part",
            "budget": budget,
            "table": table,
            "lru": lru,
            **contract,
        }
        for budget in ("159", "40 %")
        for name, table, lru in (("prose", 0.57, 0.74), ("chat", 0.21, 0.7))
    )
    found = figures(("study", rows))
    assert list(found) == ["off-domain"]
    table, lru = found["off-domain"].series
    assert table.name == "static table of prose.jsonl.gz, warm part (simulated)"
    assert table.panel == (
        "159 experts per layer, event replay, after the first 0.6 of the iterations"
    )
    assert [(p.x, p.y) for p in table.points] == [("prose", 0.57), ("chat", 0.21)]
    assert [(p.x, p.y) for p in lru.points] == [("prose", 0.74), ("chat", 0.7)]


def test_without_hit_rates_there_is_no_section() -> None:
    assert simulated_section(Beside()) is None
    rows = (row("lru", None, 0.2), row("lru", 8, None), {"policy": "lru"})
    assert simulated_section(Beside(domains=(("chat", rows),))) is None
