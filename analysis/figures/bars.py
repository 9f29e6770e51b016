# SPDX-License-Identifier: Apache-2.0
"""Bars from the left, a block of them per category: names are long, and so stand beside them.

Numbers of the first kind of the figure are bars with the range of their repetitions and their n;
simulated ones beside measured ones are a dashed mark across the block, rejected ones a cross.
"""

from collections.abc import Iterator
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.patches import Patch

from pagetier.analysis.figures.style import (
    COLOURS,
    HATCHES,
    INK,
    PAPER,
    heading,
    kind_handle,
    legend,
    new_sheet,
    unit_axis,
    wrapped,
)
from pagetier.analysis.report.section import Figure, FigurePoint, Kind, Series

__all__ = ["draw"]

_BAR_IN = 0.2
_LINE_IN = 0.15
_GAP_IN = 0.12
_LABEL_WIDTH = 30


def draw(figure: Figure) -> Sheet:
    """A panel per `panel` of the series, each with its categories from top to bottom."""
    panels = list(dict.fromkeys(series.panel for series in figure.series))
    barred = figure.series[0].kind
    blocks = [_Block([s for s in figure.series if s.panel == panel], barred) for panel in panels]
    heights = [block.height_in + 0.45 for block in blocks]
    sheet, axes = new_sheet(
        len(panels),
        height_in=sum(heights) + 0.8,
        height_ratios=heights,
        sharex=True,
    )
    names = list(dict.fromkeys(s.name for s in figure.series if s.kind == barred))
    for panel, block, ax in zip(panels, blocks, axes, strict=True):
        block.draw(ax, {name: at for at, name in enumerate(names)})
        if panel:
            heading(ax, panel, 70)
    axes[0].set_xlim(left=0, right=_right(figure))
    for ax in axes:
        unit_axis(ax.xaxis, figure.unit)
    axes[-1].set_xlabel(figure.y)
    legend(sheet, list(_handles(figure, names)))
    return sheet


def _right(figure: Figure) -> float:
    greatest = max((point.max for s in figure.series for point in s.points), default=0.0)
    return greatest * 1.12 or 1.0  # room for n at the right end


class _Block:
    """The categories of a panel, and how high each is."""

    def __init__(self, series: list[Series], barred: Kind) -> None:
        self._barred = [one for one in series if one.kind == barred]
        self._marks = [one for one in series if one.kind != barred]
        points = [point for one in series for point in one.points]
        self._labels = {str(point.x): wrapped(str(point.x), _LABEL_WIDTH) for point in points}
        self._heights = {name: self._height(name, text) for name, text in self._labels.items()}
        self.height_in = sum(self._heights.values())

    def _height(self, name: str, text: str) -> float:
        bars = max(1, len(self._bars(name)))
        return max(bars * _BAR_IN, (text.count("\n") + 1) * _LINE_IN) + _GAP_IN

    def _bars(self, name: str) -> list[tuple[Series, FigurePoint]]:
        return [(one, p) for one in self._barred for p in one.points if str(p.x) == name]

    def draw(self, ax: Axes, places: dict[str, int]) -> None:
        ticks, top = [], 0.0
        for name, height in self._heights.items():
            middle = top + height / 2
            ticks.append(middle)
            self._category(ax, name, middle, places)
            top += height
        ax.set_ylim(top, 0)
        ax.set_yticks(ticks, list(self._labels.values()))
        ax.tick_params(axis="y", length=0)
        ax.grid(visible=False, axis="y")

    def _category(self, ax: Axes, name: str, middle: float, places: dict[str, int]) -> None:
        bars = self._bars(name)
        first = middle - (len(bars) - 1) * _BAR_IN / 2
        for at, (series, point) in enumerate(bars):
            _bar(ax, first + at * _BAR_IN, point, places[series.name])
        half = max(1, len(bars)) * _BAR_IN / 2
        for series in self._marks:
            for point in (point for point in series.points if str(point.x) == name):
                _mark(ax, series, point, middle, half)


def _bar(ax: Axes, y: float, point: FigurePoint, place: int) -> None:
    ax.barh(
        y,
        point.y,
        height=_BAR_IN * 0.86,
        color=COLOURS[place % len(COLOURS)],
        hatch=HATCHES[place % len(HATCHES)],
        edgecolor=INK,
        linewidth=0.5,
    )
    if point.n > 1:
        ax.errorbar(
            point.y,
            y,
            xerr=[[point.y - point.min], [point.max - point.y]],
            color=INK,
            capsize=2.5,
            linewidth=1.1,
        )
    ax.annotate(
        f"n={point.n}",
        (1.0, y),
        xycoords=ax.get_yaxis_transform(),
        ha="right",
        va="center",
        fontsize=7.5,
    )


def _mark(ax: Axes, series: Series, point: FigurePoint, middle: float, half: float) -> None:
    if series.kind == "rejected":
        ax.plot(
            point.y, middle, marker="X", color=INK, markerfacecolor=PAPER, markersize=7, zorder=7
        )
        return
    ends = [middle - half, middle + half]
    ax.plot([point.y, point.y], ends, color=PAPER, linewidth=3.2, zorder=5)
    ax.plot([point.y, point.y], ends, color=INK, linewidth=1.4, linestyle="--", zorder=6)


def _handles(figure: Figure, names: list[str]) -> Iterator[Any]:
    barred = figure.series[0].kind
    for at, name in enumerate(names):
        yield Patch(
            facecolor=COLOURS[at % len(COLOURS)],
            hatch=HATCHES[at % len(HATCHES)],
            edgecolor=INK,
            linewidth=0.5,
            label=wrapped(name, 70),
        )
    marks = dict.fromkeys((s.kind, s.name) for s in figure.series if s.kind != barred)
    for kind, name in marks:
        yield kind_handle(kind, name, INK, "")
