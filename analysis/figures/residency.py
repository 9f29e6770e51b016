# SPDX-License-Identifier: Apache-2.0
"""How much of what a simulated LRU would hold the kernel really held, over the iterations."""

from matplotlib.figure import Figure as Sheet

from pagetier.analysis.figures.lines import stacked_sheet, trace
from pagetier.analysis.figures.style import unit_axis
from pagetier.analysis.report.section import Figure

__all__ = ["draw"]


def draw(figure: Figure) -> Sheet:
    """A line per arm; 100 % is an exact LRU."""
    sheet, panels = stacked_sheet(figure, 2.9)
    for panel, ax in panels:
        ax.set_ylim(0, 1.03)
        trace(ax, [s for s in figure.series if s.panel == panel.name], panel.unit)
    unit_axis(panels[-1][1].xaxis, "count", ticks=8)
    return sheet
