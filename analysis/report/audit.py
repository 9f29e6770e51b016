# SPDX-License-Identifier: Apache-2.0
"""How LRU is the kernel: of the experts that a simulated LRU would hold, the share it held.

A cell that was audited has in its facts ``audit``: the `points` of `pagetier.analysis.audit`, one
for each look into the page cache.  What is kept instead is told by its age and by how often the
plan reads it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pagetier.analysis.counters import number
from pagetier.analysis.derive import Spread
from pagetier.analysis.facts import ratio
from pagetier.analysis.ledger import Traced, traced
from pagetier.analysis.naming import mapping
from pagetier.analysis.report import formats
from pagetier.analysis.report.arms import Arm, arm_names
from pagetier.analysis.report.reading import Point
from pagetier.analysis.report.section import Column, Figure, FigurePoint, Panel, Series, Table
from pagetier.analysis.results import Cell

__all__ = ["audit_table", "residency_figure"]

_Look = Mapping[str, Any]

_SHARES = formats.spread_of(formats.percent)
_COLUMNS = (
    Column("arm", "arm"),
    Column("capacity_bytes", "C", formats.capacity),
    Column("n", "n"),
    Column("reclaim", "reclaim"),
    Column("overlap", "of the LRU's set, resident", _SHARES),
    Column("same_size_overlap", "of an LRU of the resident size", _SHARES),
    Column("never_read_share", "resident, never read", formats.percent),
    Column("kept_instead_age", "age of what is kept instead", formats.three_digits),
    Column("kept_instead_reads", "its reads a pass", formats.three_digits),
    Column("missing_reads", "reads a pass of what is missing", formats.three_digits),
    Column("traced_in_extent_bytes", "traced in-extent/it", formats.size),
    Column("traced_over_read_bytes", "traced over-read/it", formats.size),
    Column("taken_while_reading_bytes", "taken while reading/it", formats.size),
)


def audit_table(arms: list[Arm], name: Callable[[Arm], str]) -> Table:
    """Shares over all looks of all repetitions; without a row where no kept cell was audited.

    An age of 1 is what the LRU has just dropped.  More reads of what is kept instead than of what
    is missing: frequency is kept against recency.
    """
    rows = tuple(_row(arm, name(arm)) for arm in arms if any(map(_all_looks, _cells(arm))))
    return Table("How LRU the kernel is: the experts kept beside a simulated LRU", _COLUMNS, rows)


def _row(arm: Arm, name: str) -> tuple[Any, ...]:
    looks = [look for cell in _cells(arm) for look in _all_looks(cell)]
    return (
        name,
        arm.capacity_bytes,
        arm.n,
        arm.reclaim,
        _over(looks, "overlap"),
        _over(looks, "same_size_overlap"),
        _median(_never_read(looks)),
        *(
            _median(_over(looks, key))
            for key in ("kept_instead_age", "kept_instead_reads", "missing_reads")
        ),
        arm.median_of(_traced(lambda found: found.in_extent)),
        arm.median_of(_traced(lambda found: found.over_read)),
        arm.median_of(_traced(lambda found: found.taken_while_reading)),
    )


def _cells(arm: Arm) -> Iterator[Cell]:
    return (point.cell for point in arm.points)


def _over(looks: list[_Look], key: str) -> Spread | None:
    values = (_figure(look, key) for look in looks)
    return Spread.of([value for value in values if value is not None])


def _never_read(looks: list[_Look]) -> Spread | None:
    shares = (
        ratio(_figure(look, "never_read_bytes"), _figure(look, "resident_bytes")) for look in looks
    )
    return Spread.of([share for share in shares if share is not None])


def _median(spread: Spread | None) -> float | None:
    return None if spread is None else spread.median


def _figure(look: _Look, key: str) -> float | None:
    value = look.get(key)
    return value if isinstance(value, int | float) else None


def _traced(term: Callable[[Traced], int | None]) -> Callable[[Point], float | None]:
    def per_iteration(point: Point) -> float | None:
        measured = point.cell.passes.get("measured")
        found = None if measured is None else traced(measured)
        return None if found is None else point.facts.per_iteration(term(found))

    return per_iteration


def residency_figure(arms: list[Arm]) -> Figure | None:
    """None where no kept cell was audited."""
    audited = [(arm, points) for arm in arms if (points := _points(arm))]
    if not audited:
        return None
    name = arm_names(arm for arm, _ in audited)
    return Figure(
        key="residency",
        title="What the kernel held of a simulated LRU's set",
        x="iteration of the measured pass",
        y="share of the LRU's bytes that was resident",
        scale="linear",
        series=tuple(Series(name(arm), "measured", points, "share") for arm, points in audited),
        form="residency",
        unit="share",
        note="Lines are medians of the kept repetitions, bands their least and greatest.",
        panels=(Panel("share", "share held of the LRU's set", "share"),),
    )


def _points(arm: Arm) -> tuple[FigurePoint, ...]:
    shares: dict[int, list[float]] = {}
    for point in arm.points:
        for iteration, share in _looks(point.cell):
            shares.setdefault(iteration, []).append(share)
    spreads = {iteration: Spread.of(values) for iteration, values in sorted(shares.items())}
    return tuple(
        FigurePoint(iteration, spread.median, spread.min, spread.max, spread.count)
        for iteration, spread in spreads.items()
        if spread is not None
    )


def _looks(cell: Cell) -> list[tuple[int, float]]:
    found = []
    for look in _all_looks(cell):
        lru, overlap = number(look, "lru_bytes"), number(look, "overlap_bytes")
        iteration = number(look, "iteration")
        if iteration is not None and lru and overlap is not None:
            found.append((iteration, overlap / lru))
    return found


def _all_looks(cell: Cell) -> list[_Look]:
    points = mapping(cell.facts.get("audit")).get("points")
    return [mapping(look) for look in points] if isinstance(points, list) else []
