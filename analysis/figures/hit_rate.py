# SPDX-License-Identifier: Apache-2.0
"""Hit rate against budget: a line per policy, with the domains' least and greatest as its band."""

from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import FixedLocator

from pagetier.analysis.figures.lines import stacked_sheet, trace
from pagetier.analysis.figures.style import heading, unit_axis
from pagetier.analysis.report.section import Figure

__all__ = ["draw"]


def draw(figure: Figure) -> Sheet:
    """A panel per contract of the simulation: hit rates under two of them are not comparable."""
    sheet, panels = stacked_sheet(figure, 2.9)
    ticks = sorted({float(point.x) for series in figure.series for point in series.points})
    for panel, ax in panels:
        ax.set_xscale("log")
        ax.set_ylim(0, 1)
        heading(ax, panel.name, 72)
        trace(ax, [s for s in figure.series if s.panel == panel.name], panel.unit)
    last = panels[-1][1]
    unit_axis(last.xaxis, "count")
    if len(ticks) <= 10:
        last.xaxis.set_major_locator(FixedLocator(ticks))
    return sheet
