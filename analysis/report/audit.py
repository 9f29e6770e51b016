# SPDX-License-Identifier: Apache-2.0
"""How LRU is the kernel: of the experts that a simulated LRU would hold, the share it held.

A cell that was audited has in its facts ``audit``: the `points` of `pagetier.analysis.audit`, one
for each look into the page cache.
"""

from pagetier.analysis.counters import number
from pagetier.analysis.derive import Spread
from pagetier.analysis.naming import mapping
from pagetier.analysis.report.arms import Arm, arm_names
from pagetier.analysis.report.section import Figure, FigurePoint, Panel, Series
from pagetier.analysis.results import Cell

__all__ = ["residency_figure"]


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
    points = mapping(cell.facts.get("audit")).get("points")
    found = []
    for look in map(mapping, points if isinstance(points, list) else []):
        lru, overlap = number(look, "lru_bytes"), number(look, "overlap_bytes")
        iteration = number(look, "iteration")
        if iteration is not None and lru and overlap is not None:
            found.append((iteration, overlap / lru))
    return found
