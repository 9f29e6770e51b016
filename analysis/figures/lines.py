# SPDX-License-Identifier: Apache-2.0
"""Lines over a common x, in panels one above the other, with the range of their points as a band.

What is measured is drawn through, what is simulated dashed; within a panel lines differ in colour
and in marker too.
"""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from pagetier.analysis.figures.style import (
    COLOURS,
    KINDS,
    MARKERS,
    PAPER,
    new_sheet,
    unit_axis,
    wrapped,
)
from pagetier.analysis.report.section import Figure, Panel, Series

__all__ = ["panels_of", "stacked_sheet", "trace"]

_LEGEND_WIDTH = 34
# Markers on each of many points would be a smear.
_MARKS = 12


def panels_of(figure: Figure) -> list[Panel]:
    """Those of the figure that have a series; of a figure without any the one it is."""
    panels = figure.panels or tuple(
        Panel(name, figure.y, figure.unit)
        for name in dict.fromkeys(series.panel for series in figure.series)
    )
    used = {series.panel for series in figure.series}
    return [panel for panel in panels if panel.name in used]


def stacked_sheet(figure: Figure, panel_in: float) -> tuple[Sheet, list[tuple[Panel, Axes]]]:
    """Axes with a common x, one below the other, and the panel of each."""
    panels = panels_of(figure)
    sheet, axes = new_sheet(len(panels), height_in=panel_in * len(panels) + 0.5, sharex=True)
    for panel, ax in zip(panels, axes, strict=True):
        ax.set_ylabel(wrapped(panel.y, 22))
    axes[-1].set_xlabel(figure.x)
    return sheet, list(zip(panels, axes, strict=True))


def trace(ax: Axes, lines: Sequence[Series], unit: str, **options: Any) -> None:
    """The lines of a panel with their legend beside it, and units on its axis."""
    for at, series in enumerate(lines):
        _line(ax, at, series, **options)
    unit_axis(ax.yaxis, unit, ticks=4)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.03), handlelength=2.4, fontsize=7.5)


def _line(ax: Axes, at: int, series: Series, **options: Any) -> None:
    style, colour = KINDS[series.kind], COLOURS[at % len(COLOURS)]
    xs = [float(point.x) for point in series.points]
    if any(point.min != point.max for point in series.points):
        ax.fill_between(
            xs,
            [point.min for point in series.points],
            [point.max for point in series.points],
            color=colour,
            alpha=0.18,
            linewidth=0,
        )
    ax.plot(
        xs,
        [point.y for point in series.points],
        color=colour,
        linestyle=style.dash,
        marker=MARKERS[at % len(MARKERS)] if series.kind != "reference" else "none",
        markerfacecolor=colour if style.is_filled else PAPER,
        markersize=4,
        markevery=max(1, len(xs) // _MARKS),
        label=wrapped(series.name, _LEGEND_WIDTH),
        **options,
    )
