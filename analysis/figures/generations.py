# SPDX-License-Identifier: Apache-2.0
"""File pages by generation of the MGLRU over a measured pass: one area upon the other, the
youngest below."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from pagetier.analysis.figures.lines import stacked_sheet
from pagetier.analysis.figures.style import COLOURS, HATCHES, INK, unit_axis
from pagetier.analysis.report.section import Figure, Series

__all__ = ["draw"]


def draw(figure: Figure) -> Sheet:
    """The series are youngest first; each has a point at every sample."""
    sheet, panels = stacked_sheet(figure, 2.3)
    for panel, ax in panels:
        _areas(ax, [series for series in figure.series if series.panel == panel.name])
        ax.set_ylim(bottom=0)
        unit_axis(ax.yaxis, panel.unit, ticks=4)
    unit_axis(panels[-1][1].xaxis, "count", ticks=8)
    return sheet


def _areas(ax: Axes, layers: list[Series]) -> None:
    xs = [float(point.x) for point in layers[0].points]
    below = [0.0] * len(xs)
    for at, series in enumerate(layers):
        above = [low + point.y for low, point in zip(below, series.points, strict=True)]
        ax.fill_between(
            xs,
            below,
            above,
            facecolor=COLOURS[at % len(COLOURS)],
            hatch=HATCHES[at % len(HATCHES)],
            edgecolor=INK,
            linewidth=0.5,
            label=series.name,
        )
        below = above
    ax.margins(x=0)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.03), fontsize=7.5, reverse=True)
