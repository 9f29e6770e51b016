# SPDX-License-Identifier: Apache-2.0
"""Latency of reads: the share that took at most so long, on a logarithmic axis of time."""

from matplotlib.figure import Figure as Sheet

from pagetier.analysis.figures.lines import stacked_sheet, trace
from pagetier.analysis.figures.style import unit_axis
from pagetier.analysis.report.section import Figure

__all__ = ["draw"]


def draw(figure: Figure) -> Sheet:
    """A panel per capacity; a step is a bucket of the histogram."""
    sheet, panels = stacked_sheet(figure, 2.1)
    for panel, ax in panels:
        ax.set_xscale("log")
        ax.set_ylim(0, 1.03)
        ax.set_title(panel.name, loc="left")
        lines = [series for series in figure.series if series.panel == panel.name]
        trace(ax, lines, panel.unit, drawstyle="steps-post")
    unit_axis(panels[-1][1].xaxis, "s")
    return sheet
