# SPDX-License-Identifier: Apache-2.0
"""One measured pass over its iterations: bytes, memory and stalls, a panel each."""

from matplotlib.figure import Figure as Sheet

from pagetier.analysis.figures.lines import stacked_sheet, trace
from pagetier.analysis.figures.style import unit_axis
from pagetier.analysis.report.section import Figure

__all__ = ["draw"]


def draw(figure: Figure) -> Sheet:
    """All panels start at 0: a small change is not to look large."""
    sheet, panels = stacked_sheet(figure, 1.45)
    for panel, ax in panels:
        lines = [series for series in figure.series if series.panel == panel.name]
        ax.set_ylim(0, 1.08 * max(p.y for s in lines for p in s.points) or 1.0)
        trace(ax, lines, panel.unit)
    unit_axis(panels[-1][1].xaxis, "count", ticks=8)
    return sheet
