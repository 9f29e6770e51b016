# SPDX-License-Identifier: Apache-2.0
"""The byte ledger of every cell, rejected ones included and named so, beside its nominal misses."""

from collections.abc import Callable, Iterator

from pagetier.analysis.derive import CellFacts, derive_cell
from pagetier.analysis.report.arms import Arm, arm_names
from pagetier.analysis.report.barred import MISSES
from pagetier.analysis.report.section import Figure, FigurePoint, Series
from pagetier.analysis.results import Cell

__all__ = ["TERMS", "ledger_figure"]

TERMS = (
    "in-extent, first",
    "in-extent, repeat",
    "over-read",
    "prefetch",
    "foreign",
    "residual",
    "not told apart",
)
"""Names of the series in their order; each keeps its colour where others have nothing to show."""

# Beyond this a page of bars is no picture any more.
MAX_CELLS = 60

_Row = tuple[str, CellFacts]
_VALUES: tuple[Callable[[CellFacts], int | None], ...] = (
    lambda facts: facts.ledger.first,
    lambda facts: facts.ledger.repeat,
    lambda facts: facts.ledger.over_read,
    lambda facts: facts.ledger.prefetch,
    lambda facts: facts.ledger.foreign,
    lambda facts: facts.ledger.residual,
    lambda facts: _untold(facts),
)


def ledger_figure(arms: list[Arm]) -> Figure | None:
    """None where no cell counted the device's bytes."""
    cells = sum(len(arm.cells) for arm in arms)
    rows = list(_rows(arms, _all if cells <= MAX_CELLS else _middle))
    told = [_series(name, rows, term) for name, term in zip(TERMS, _VALUES, strict=True)]
    measured = tuple(series for series in told if any(point.y for point in series.points))
    if not measured:
        return None
    missed = _series(MISSES, rows, lambda facts: facts.nominal_miss_bytes)
    note = f"{len(rows)} of {cells} cells"
    if len(rows) < cells:
        note += ", of each arm the one in the middle by device bytes"
    return Figure(
        key="ledger",
        title="What the device read, by cell",
        x="cell",
        y="bytes per iteration",
        scale="category",
        series=(*measured, Series(missed.name, "simulated", missed.points)),
        form="ledger",
        note=f"{note}. A rejected cell is pale and named so; each bar is one cell (n=1).",
    )


def _untold(facts: CellFacts) -> int | None:
    """What the device read where the terms of the ledger are not all known."""
    ledger = facts.ledger
    if None not in (ledger.first, ledger.repeat, ledger.over_read):
        return None
    known = [ledger.first, ledger.repeat, ledger.prefetch, ledger.foreign, ledger.residual]
    device = facts.device_bytes
    return None if device is None else device - sum(term for term in known if term is not None)


def _series(name: str, rows: list[_Row], term: Callable[[CellFacts], int | None]) -> Series:
    points = (
        (category, value)
        for category, facts in rows
        if (value := facts.per_iteration(term(facts))) is not None
    )
    return Series(name, "measured", tuple(FigurePoint(x, y, y, y, 1) for x, y in points))


def _rows(arms: list[Arm], cells: Callable[[Arm], Iterator[Cell]]) -> Iterator[_Row]:
    name = arm_names(arms)
    for arm in arms:
        known = {point.cell.id: point.facts for point in arm.points}
        for cell in cells(arm):
            rejected = ", rejected" if cell.state == "rejected" else ""
            label = f"{name(arm)} #{cell.spec.get('repetition')}{rejected}"
            yield label, known.get(cell.id) or derive_cell(cell)


def _all(arm: Arm) -> Iterator[Cell]:
    yield from sorted(arm.cells, key=lambda cell: str(cell.spec.get("repetition")).zfill(9))


def _middle(arm: Arm) -> Iterator[Cell]:
    ordered = sorted(arm.points, key=lambda point: point.facts.device_bytes or 0)
    if ordered:
        yield ordered[(len(ordered) - 1) // 2].cell
