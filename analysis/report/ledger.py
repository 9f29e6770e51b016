# SPDX-License-Identifier: Apache-2.0
"""The byte ledger: as a table of arms beside page-exact misses, and as a picture of every cell,
rejected ones included and named so, beside its nominal misses."""

from collections.abc import Callable, Iterator
from typing import Any

from pagetier.analysis.derive import CellFacts, derive_cell
from pagetier.analysis.facts import ratio
from pagetier.analysis.page_exact import PageExact
from pagetier.analysis.report import formats
from pagetier.analysis.report.arms import Arm, arm_names, arms_of, device_bytes, mean_of
from pagetier.analysis.report.audit import audit_table
from pagetier.analysis.report.barred import MISSES
from pagetier.analysis.report.reading import Point, Study
from pagetier.analysis.report.section import Column, Figure, FigurePoint, Section, Series, Table
from pagetier.analysis.results import Cell

__all__ = ["TERMS", "TERMS_PROSE", "ledger_figure", "ledger_section"]

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

TERMS_PROSE = (
    "first and repeat lie inside the experts asked for: read for the first time in this cell, or"
    " read before and evicted since. Over-read is the rest of what the replaying process read,"
    " prefetch what a hint brought, foreign what others read, residual what two counters of the"
    " same reads differ by."
)
"""What the terms are, for a reader of the report."""

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

_COLUMNS = (
    Column("arm", "arm"),
    Column("capacity_bytes", "C", formats.capacity),
    Column("n", "n"),
    Column("device_bytes_per_iteration", "device/it", formats.spread_of(formats.size)),
    Column("first_bytes", "first", formats.size),
    Column("repeat_bytes", "repeat", formats.size),
    Column("over_read_bytes", "over-read", formats.size),
    Column("prefetch_bytes", "prefetch", formats.size),
    Column("foreign_bytes", "foreign", formats.size),
    Column("residual_bytes", "residual", formats.size),
    Column("page_misses_bytes", "page-exact misses at C", formats.size),
    Column("page_misses_effective_bytes", "at effective C", formats.size),
    Column("in_extent_ratio", "in-extent / those", formats.factor),
)


def ledger_section(study: Study) -> Section | None:
    """None without a kept cell."""
    arms = [arm for arm in arms_of(study) if arm.n]
    if not arms:
        return None
    name = arm_names(arms, "capacity_bytes")
    tables = (
        Table(
            "Bytes per iteration, by term", _COLUMNS, tuple(_row(arm, name(arm)) for arm in arms)
        ),
        audit_table(arms, name),
    )
    return Section(
        key="ledger",
        title="Byte ledger",
        prose=(
            TERMS_PROSE,
            "Terms are medians over the kept repetitions, and need not add up to the median of the"
            " device.",
            "Page-exact misses are simulated: an exact LRU of pages of this host's size, pages that"
            " two experts share counted once, at C and at the file pages that were really resident."
            " The last column is what reclaim answers for.",
        ),
        tables=tuple(table for table in tables if table.rows),
    )


def _row(arm: Arm, name: str) -> tuple[Any, ...]:
    ledger_terms = (mean_of(term) for term in _VALUES[:-1])
    return (
        name,
        arm.capacity_bytes,
        arm.n,
        arm.spread(device_bytes),
        *(arm.median(term) for term in ledger_terms),
        arm.median_of(_page_misses),
        arm.median_of(_page_misses_effective),
        arm.median_of(_in_extent_ratio),
    )


def _page_misses(point: Point) -> float | None:
    return point.facts.per_iteration(PageExact.of(point.cell).nominal_miss_bytes)


def _page_misses_effective(point: Point) -> float | None:
    return point.facts.per_iteration(PageExact.of(point.cell).effective_miss_bytes)


def _in_extent_ratio(point: Point) -> float | None:
    return ratio(point.facts.in_extent_bytes, PageExact.of(point.cell).effective_miss_bytes)


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
