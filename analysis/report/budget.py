# SPDX-License-Identifier: Apache-2.0
"""Bytes per accepted token times a service rate, against what the device gives.

A gap between the best policy and the offline optimum decides nothing alone: only with the optimum's
bytes against this budget does it say whether a policy is worth building (the four cases of
`Regime`).  The optimum comes from a simulation; without one the row may be known, the column not.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pagetier.analysis.derive import CellFacts
from pagetier.analysis.report import formats
from pagetier.analysis.report.arms import Arm, FigureOf
from pagetier.analysis.report.beside import Beside, Offline, device_rate, offline_at
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import Column, Table

__all__ = ["SMALL_GAP", "Regime", "budget_prose", "budget_tables", "bytes_per_token", "regime_of"]

# Below this share of the best causal policy's misses a gap is small.
SMALL_GAP = 0.10

_BUDGET = (
    Column("arm", "arm"),
    Column("capacity_bytes", "C", formats.capacity),
    Column("device_bytes_per_token", "device per accepted token", formats.size),
    Column("needed_bytes_per_s", "needed per second", formats.size),
    Column("device_bytes_per_s", "the device gives", formats.size),
    Column("answer", "budget"),
)
_REGIMES = (
    Column("traffic", "offline traffic"),
    Column("small", "small gap to the offline optimum"),
    Column("large", "large gap"),
)
_CASES = {
    (True, True): "existing policies suffice: a controller is not worth it",
    (True, False): "genuine headroom for a policy on this sequence",
    (False, True): "no residency policy on this sequence is viable",
    (False, False): "the oracle fails as well: the gap is not enough to cross the budget",
}


@dataclass(frozen=True, slots=True)
class Regime:
    """Where a sequence stands: None is what cannot be told."""

    within_budget: bool | None
    small_gap: bool | None

    @property
    def case(self) -> str | None:
        if self.within_budget is None or self.small_gap is None:
            return None
        return _CASES[self.within_budget, self.small_gap]


def regime_of(
    offline_bytes_per_s: float | None, gap: float | None, budget_bytes_per_s: float | None
) -> Regime:
    """`offline_bytes_per_s`: the optimum's transfers at the rate asked for."""
    within = None
    if offline_bytes_per_s is not None and budget_bytes_per_s is not None:
        within = offline_bytes_per_s <= budget_bytes_per_s
    return Regime(within, None if gap is None else gap < SMALL_GAP)


def bytes_per_token(figure: Callable[[CellFacts], int | None]) -> FigureOf:
    """A total of the pass per accepted token."""

    def value(facts: CellFacts) -> float | None:
        total = figure(facts)
        return (
            total / facts.accepted_tokens if total is not None and facts.accepted_tokens else None
        )

    return value


def budget_tables(
    study: Study,
    groups: list[list[Arm]],
    tokens_per_s: float,
    beside: Beside,
    name: Callable[[Arm], str],
) -> list[Table]:
    """Every measured point against the device, then the four cases."""
    rate, _ = device_rate(study, beside.rates)
    rows = tuple(
        _budget_row(arm, name(arm), tokens_per_s, rate) for group in groups for arm in group
    )
    cases = tuple(
        (
            f"{'within' if within else 'over'} the budget",
            _CASES[within, True],
            _CASES[within, False],
        )
        for within in (True, False)
    )
    return [
        Table(f"Bandwidth at {tokens_per_s:g} accepted tokens per second", _BUDGET, rows),
        Table("What a gap means", _REGIMES, cases),
    ]


def _budget_row(arm: Arm, name: str, tokens_per_s: float, rate: float | None) -> tuple[Any, ...]:
    per_token = arm.median(bytes_per_token(lambda facts: facts.device_bytes))
    needed = None if per_token is None else per_token * tokens_per_s
    answer = None if needed is None or rate is None else "within" if needed <= rate else "over"
    return name, arm.capacity_bytes, per_token, needed, rate, answer


def budget_prose(
    study: Study,
    groups: list[list[Arm]],
    tokens_per_s: float,
    beside: Beside,
    capacity_bytes: float | None,
) -> Iterator[str]:
    """What the device's rate is known by, and the case of this host."""
    rate, how = device_rate(study, beside.rates)
    yield f"Device: {formats.size(rate)} per second ({how})."
    arm = _nearest(groups, capacity_bytes)
    if arm is None:
        yield "Case of this host: not told, there is no measured point."
        return
    offline = offline_at(beside.simulation, arm.capacity_bytes or 0)
    optimum = _bytes_per_s(arm, None if offline is None else offline.belady, tokens_per_s)
    if offline is None:
        yield from _without_optimum(arm, tokens_per_s, rate)
        return
    yield _case_sentence(offline, optimum, regime_of(optimum, offline.gap, rate))


def _nearest(groups: list[list[Arm]], capacity_bytes: float | None) -> Arm | None:
    """The smallest measured point of the first sweep that is not below the size told, else its
    largest."""
    if not groups:
        return None
    arms = sorted(groups[0], key=lambda arm: arm.capacity_bytes or 0)
    enough = [arm for arm in arms if capacity_bytes is not None and _at_least(arm, capacity_bytes)]
    return enough[0] if enough else arms[-1]


def _at_least(arm: Arm, capacity_bytes: float) -> bool:
    return (arm.capacity_bytes or 0) >= capacity_bytes


def _bytes_per_s(arm: Arm, per_iteration: float | None, tokens_per_s: float) -> float | None:
    tokens = arm.median(
        lambda facts: (
            facts.accepted_tokens / facts.iterations
            if facts.accepted_tokens and facts.iterations
            else None
        )
    )
    return None if per_iteration is None or not tokens else per_iteration / tokens * tokens_per_s


def _without_optimum(arm: Arm, tokens_per_s: float, rate: float | None) -> Iterator[str]:
    simulated = arm.median(bytes_per_token(lambda facts: facts.nominal_miss_bytes))
    remedy = (
        "give pagetier simulate --json of this trace, policies lru and belady, with --simulation"
    )
    if simulated is not None and rate is not None and simulated * tokens_per_s <= rate:
        yield (
            "Case of this host: within the budget, for the simulated LRU is and the optimum reads"
            f" no more; how large the gap is needs the optimum ({remedy})."
        )
        return
    yield f"Case of this host: not told without the offline optimum ({remedy})."


def _case_sentence(offline: Offline, optimum: float | None, regime: Regime) -> str:
    gap = "n/a" if offline.gap is None else f"{offline.gap:.1%}"
    told = (
        f"at a budget of {formats.size(offline.budget_bytes)} the offline optimum reads"
        f" {formats.size(optimum)} per second at this rate, {gap} below the best causal policy"
        f" ({offline.causal_policy}), all simulated"
    )
    return f"Case of this host: {regime.case or 'not told, a figure is missing'} ({told})."
