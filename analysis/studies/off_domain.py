# SPDX-License-Identifier: Apache-2.0
"""What a static table is worth on traces that it was not made from, beside LRU that needs no table.

All is scored in the same windows: where a part of the iterations warms the caches, the table is
counted in that part of its own trace, and of another trace the same part is left out of the score.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pagetier.analysis.simulators import (
    Budget,
    Contract,
    Events,
    ExpertBytes,
    Prepared,
    Table,
    prepare,
    simulate,
)
from pagetier.analysis.simulators.table import same_trace_table

__all__ = ["OffDomainRow", "off_domain", "train"]


@dataclass(frozen=True, slots=True)
class OffDomainRow:
    """Hit rates on one trace: of the table from elsewhere, of one from this trace's own warming
    part, of LRU and of the offline optimum.

    own: fitted on what it is scored on where nothing warms the replay.  initial_load: experts that
    the table loads before the first access, not among the misses.
    """

    scored_on: str
    trained_on: str
    budget: str
    accesses: int
    initial_load: int
    table: float | None
    own: float | None
    lru: float | None
    belady: float | None

    @property
    def table_minus_lru(self) -> float | None:
        """Positive where the table wins."""
        return None if self.table is None or self.lru is None else self.table - self.lru

    def as_document(self) -> dict[str, Any]:
        """Flat, for a row of JSON or CSV."""
        return {**asdict(self), "table_minus_lru": self.table_minus_lru}


def train(prepared: Prepared, source: str) -> Table:
    """The table of what warms a replay, or of the whole trace where nothing does."""
    table = same_trace_table(prepared)
    part = ", warm part" if table.source == "warm part" else ""
    return replace(table, source=f"{source}{part}")


def off_domain(
    trained_on: str,
    traces: Mapping[str, Events],
    contract: Contract,
    budgets: Sequence[Budget],
    sizes: ExpertBytes | None = None,
) -> list[OffDomainRow]:
    """A row for each trace of the mapping and budget; `trained_on` names one of the traces."""
    prepared = {name: prepare(events, contract) for name, events in traces.items()}
    table = train(prepared[trained_on], trained_on)
    return [
        _row(name, one, table, budget, sizes)
        for name, one in prepared.items()
        for budget in budgets
    ]


def _row(
    name: str, prepared: Prepared, table: Table, budget: Budget, sizes: ExpertBytes | None
) -> OffDomainRow:
    frozen = simulate(prepared, "static", budget, sizes, table)
    rates = {
        policy: simulate(prepared, policy, budget, sizes).hit_rate
        for policy in ("static", "lru", "belady")
    }
    return OffDomainRow(
        scored_on=name,
        trained_on=table.source,
        budget=str(budget),
        accesses=frozen.accesses,
        initial_load=len(frozen.initial_load),
        table=frozen.hit_rate,
        own=rates["static"],
        lru=rates["lru"],
        belady=rates["belady"],
    )
