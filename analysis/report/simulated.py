# SPDX-License-Identifier: Apache-2.0
"""Hit rates of simulated policies against their budget, over the domains that were simulated.

A domain is one document of ``pagetier simulate --json``.  Rows of different contracts (replay,
scope, window) are never drawn together.  A static table of one trace is compared with LRU by
domain, on its own and off it: rows of ``simulate --off-domain``, or with ``--table``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from pagetier.analysis.derive import Spread
from pagetier.analysis.report import formats
from pagetier.analysis.report.beside import Beside
from pagetier.analysis.report.section import (
    Column,
    Figure,
    FigurePoint,
    Panel,
    Section,
    Series,
    Table,
)

__all__ = ["simulated_section"]

_COLUMNS = (
    Column("contract", "contract"),
    Column("policy", "policy"),
    Column("budget_experts", "budget in experts"),
    Column("domains", "domains"),
    Column("hit_rate", "hit rate, median [min-max]", formats.spread_of(formats.percent)),
)
# What a static table was fitted on, when that was the trace it is scored on.
_OWN_FITS = ("same trace", "warm part")
_BOUNDS = {"belady": "belady (offline bound)", "belady-forced": "belady-forced (offline bound)"}
_MAX_BUDGETS = 4

Domains = Iterable[tuple[str, tuple[Mapping[str, Any], ...]]]


@dataclass(frozen=True, slots=True)
class _Rate:
    contract: str
    policy: str
    budget: int | float
    domain: str
    fitted_on: str | None
    hit_rate: float


def simulated_section(beside: Beside) -> Section | None:
    """None without a simulation that has hit rates."""
    rates, moved = list(_rates(beside.domains)), list(_moved(beside.domains))
    if not rates and not moved:
        return None
    curves, transfer = _hit_rate(rates), _off_domain([*rates, *moved])
    domains = list(dict.fromkeys(rate.domain for rate in (*rates, *moved)))
    table = Table("Hit rates over the domains", _COLUMNS, tuple(_rows(rates)))
    return Section(
        key="simulated",
        title="Simulated policies",
        prose=(
            "All numbers of this section are simulated. A domain is one simulated trace:"
            f" {', '.join(domains)}.",
        ),
        tables=(table,) if table.rows else (),
        figures=tuple(figure for figure in (curves, transfer) if figure is not None),
    )


def _rates(domains: Domains) -> Iterator[_Rate]:
    """Of rows of a grid: a policy and a budget each."""
    for domain, rows in domains:
        for row in rows:
            rate, budget = row.get("hit_rate"), row.get("budget_experts")
            if isinstance(rate, int | float) and isinstance(budget, int | float) and budget > 0:
                fit = row.get("static_fit")
                yield _Rate(
                    _contract(row),
                    str(row.get("policy")),
                    budget,
                    domain,
                    fit if isinstance(fit, str) else None,
                    float(rate),
                )


def _moved(domains: Domains) -> Iterator[_Rate]:
    """Of rows of ``simulate --off-domain``: a table and LRU on one trace each."""
    for row in (row for _, rows in domains for row in rows if "scored_on" in row):
        table, lru, budget = row.get("table"), row.get("lru"), str(row.get("budget"))
        if isinstance(table, float) and isinstance(lru, float) and budget.isdecimal():
            domain = PurePath(str(row["scored_on"])).name.partition(".")[0]
            fit = str(row.get("trained_on"))
            yield _Rate(_contract(row), "static", int(budget), domain, fit, table)
            yield _Rate(_contract(row), "lru", int(budget), domain, None, lru)


def _contract(row: Mapping[str, Any]) -> str:
    window = row.get("window")
    scored = {None: "scored cold", "warm-pass": "after a warm-up pass"}.get(
        window, f"after the first {window} of the iterations"
    )
    scope = "experts per layer" if row.get("scope") == "per-layer" else "experts in all"
    cold = ", each request cold" if row.get("cold_start") == "per-request" else ""
    return f"{scope}, {row.get('replay')} replay, {scored}{cold}"


def _is_off(rate: _Rate) -> bool:
    return rate.fitted_on is not None and rate.fitted_on not in _OWN_FITS


def _curves(rates: list[_Rate]) -> dict[tuple[str, str], dict[float, list[float]]]:
    """Hit rates by contract and policy, then by budget, one a domain; tables of other traces are
    not in them."""
    found: dict[tuple[str, str], dict[float, dict[str, float]]] = {}
    for rate in rates:
        if not _is_off(rate):
            by_budget = found.setdefault((rate.contract, rate.policy), {})
            by_budget.setdefault(rate.budget, {})[rate.domain] = rate.hit_rate
    return {
        curve: {budget: list(domains.values()) for budget, domains in by_budget.items()}
        for curve, by_budget in found.items()
    }


def _rows(rates: list[_Rate]) -> Iterator[tuple[Any, ...]]:
    for (contract, policy), by_budget in _curves(rates).items():
        for budget, values in sorted(by_budget.items()):
            yield contract, policy, budget, len(values), Spread.of(values)


def _hit_rate(rates: list[_Rate]) -> Figure | None:
    curves = _curves(rates)
    if not curves:
        return None
    contracts = dict.fromkeys(contract for contract, _ in curves)
    return Figure(
        key="hit-rate",
        title="Hit rate against budget",
        x="budget in experts",
        y="hit rate (simulated)",
        scale="log",
        series=tuple(
            Series(_BOUNDS.get(policy, policy), "simulated", _points(by_budget), contract)
            for (contract, policy), by_budget in curves.items()
        ),
        form="hit-rate",
        unit="share",
        note=f"Lines are medians over n={_domains(rates)} domains, bands their least and greatest.",
        panels=tuple(Panel(contract, "hit rate (simulated)", "share") for contract in contracts),
    )


def _domains(rates: list[_Rate]) -> int:
    return len({rate.domain for rate in rates})


def _points(by_budget: dict[float, list[float]]) -> tuple[FigurePoint, ...]:
    spreads = ((budget, Spread.of(values)) for budget, values in sorted(by_budget.items()))
    return tuple(
        FigurePoint(budget, spread.median, spread.min, spread.max, spread.count)
        for budget, spread in spreads
        if spread is not None
    )


def _off_domain(rates: list[_Rate]) -> Figure | None:
    """None without a static table of another trace."""
    tables = list(dict.fromkeys(rate.fitted_on for rate in rates if _is_off(rate)))
    frozen = {(rate.contract, rate.budget) for rate in rates if _is_off(rate)}
    series: list[Series] = []
    for contract, budget in sorted(frozen)[-_MAX_BUDGETS:]:
        panel = f"{budget:g} {contract}"
        at = [rate for rate in rates if (rate.contract, rate.budget) == (contract, budget)]
        for table in tables:
            held = [rate for rate in at if rate.policy == "static" and rate.fitted_on == table]
            series.append(_by_domain(f"static table of {PurePath(table or '').name}", held, panel))
        series.append(_by_domain("lru", [rate for rate in at if rate.policy == "lru"], panel))
    if not series:
        return None
    return Figure(
        key="off-domain",
        title="A static table off its domain, and LRU",
        x="domain",
        y="hit rate (simulated)",
        scale="category",
        series=tuple(one for one in series if one.points),
        form="bars",
        unit="share",
        note="Each bar is one simulated trace (n=1).",
    )


def _by_domain(name: str, rates: list[_Rate], panel: str) -> Series:
    points = {r.domain: FigurePoint(r.domain, *(r.hit_rate,) * 3, 1) for r in rates}
    return Series(f"{name} (simulated)", "simulated", tuple(points.values()), panel)
