# SPDX-License-Identifier: Apache-2.0
"""Capacity response, log-log: a panel per arm on common axes, measured beside its references."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import FixedLocator

from pagetier.analysis.figures.style import (
    COLOURS,
    INK,
    KINDS,
    MARKERS,
    MUTED,
    PAPER,
    heading,
    kind_handle,
    legend,
    new_sheet,
    unit_axis,
)
from pagetier.analysis.report.section import Figure, FigurePoint, Kind, Series

__all__ = ["draw"]

_ROLES: dict[Kind, tuple[str, str]] = {
    "measured": (COLOURS[0], MARKERS[0]),
    "simulated": (COLOURS[3], MARKERS[1]),
    "reference": (MUTED, ""),
    "projected": (COLOURS[2], MARKERS[3]),
    "rejected": (INK, "X"),
}
# Labels of two capacities nearer than this would touch.
_APART = 1.35


def draw(figure: Figure) -> Sheet:
    """Median and range of the repetitions at each C."""
    panels = list(dict.fromkeys(series.panel for series in figure.series))
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    sheet, axes = new_sheet(
        rows,
        columns,
        height_in=0.7 + (2.5 if columns > 1 else 3.4) * rows,
        sharex=True,
        sharey=True,
    )
    for panel, ax in zip(panels, axes, strict=False):
        _panel(ax, panel, [series for series in figure.series if series.panel == panel])
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    _scales(axes, figure)
    for ax in axes[: len(panels)][-columns:]:
        ax.set_xlabel(figure.x)
        ax.tick_params(labelbottom=True)
    for ax in axes[::columns]:
        ax.set_ylabel(figure.y)
    legend(sheet, _handles(figure))
    return sheet


def _panel(ax: Axes, name: str, lines: Sequence[Series]) -> None:
    for series in lines:
        colour, marker = _ROLES[series.kind]
        style = KINDS[series.kind]
        points = sorted(series.points, key=_x)
        ax.errorbar(
            [_x(point) for point in points],
            [point.y for point in points],
            yerr=_ranges(points),
            color=colour,
            linestyle=style.dash,
            marker=marker or "none",
            markerfacecolor=colour if style.is_filled else PAPER,
            capsize=3,
            zorder=4 if series.kind == "measured" else 3,
        )
    measured = [point for s in lines if s.kind == "measured" for point in s.points]
    counts = {point.n for point in measured}
    if len(counts) == 1:
        heading(ax, f"{name} (n={counts.pop()})".strip(), 40)
        return
    heading(ax, name, 40)
    for point in measured:
        place = (_x(point), point.y)
        ax.annotate(f"n={point.n}", place, (6, 4), textcoords="offset points", fontsize=7.5)


def _ranges(points: Sequence[FigurePoint]) -> list[list[float]] | None:
    """Down and up from each median; None where nothing was repeated."""
    if all(point.min == point.max for point in points):
        return None
    return [[p.y - p.min for p in points], [p.max - p.y for p in points]]


def _x(point: FigurePoint) -> float:
    return float(point.x)


def _scales(axes: Sequence[Axes], figure: Figure) -> None:
    first = axes[0]
    first.set_xscale("log")
    # A logarithm would hide a point at 0: nothing was read there.
    least = min(point.min for series in figure.series for point in series.points)
    first.set_yscale("log" if least > 0 else "linear")
    xs = sorted({_x(point) for series in figure.series for point in series.points})
    first.set_xlim(xs[0] / 1.25, xs[-1] * 1.25)
    ticks = [xs[0]]
    for x in xs[1:]:
        if x / ticks[-1] >= _APART:
            ticks.append(x)
    for ax in axes:
        unit_axis(ax.xaxis, "bytes")
        ax.xaxis.set_major_locator(FixedLocator(ticks))
        unit_axis(ax.yaxis, figure.unit)


def _handles(figure: Figure) -> list[Any]:
    names: dict[Kind, str] = {}
    for series in figure.series:
        names.setdefault(series.kind, series.name)
    return [kind_handle(kind, name, *_ROLES[kind]) for kind, name in names.items()]
