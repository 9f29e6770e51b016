# SPDX-License-Identifier: Apache-2.0
"""The byte ledger: a stacked bar per cell, cells of an arm together, simulated misses across it.

A category is ``ARM #REPETITION``; a cell that was rejected says so behind it and is drawn pale.  A
term below 0 (counters that disagree) stands on the left of 0, never clamped.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from pagetier.analysis.figures.style import (
    COLOURS,
    HATCHES,
    INK,
    PAPER,
    legend,
    new_sheet,
    unit_axis,
    wrapped,
)
from pagetier.analysis.report.ledger import TERMS
from pagetier.analysis.report.section import Figure

__all__ = ["draw"]

_ROW_IN = 0.19
_LINE_IN = 0.15
_GAP_IN = 0.13
_LABEL_WIDTH = 34
_PALE = 0.35


@dataclass(slots=True)
class _Arm:
    """The rows of an arm: category and what stands behind `#`."""

    name: str
    rows: list[tuple[str, str]] = field(default_factory=list)

    @property
    def label(self) -> str:
        return wrapped(self.name, _LABEL_WIDTH)

    @property
    def height_in(self) -> float:
        lines = self.label.count("\n") + 1
        return max(len(self.rows) * _ROW_IN, lines * _LINE_IN) + _GAP_IN


def draw(figure: Figure) -> Sheet:
    """From top to bottom in the order of the arms."""
    arms = _arms(figure)
    sheet, (ax,) = new_sheet(height_in=sum(arm.height_in for arm in arms) + 1.2)
    bars = _Bars(figure)
    labels, repetitions, top = [], [], 0.0
    for arm in arms:
        first = top + arm.height_in / 2 - (len(arm.rows) - 1) * _ROW_IN / 2
        labels.append((top + arm.height_in / 2, arm.label))
        for at, (category, row) in enumerate(arm.rows):
            repetitions.append((first + at * _ROW_IN, row))
            bars.draw(ax, category, first + at * _ROW_IN)
        top += arm.height_in
        ax.axhline(top, color=INK, linewidth=0.3, alpha=0.4)
    ax.set_ylim(top, 0)
    _names(ax, labels, repetitions)
    ax.axvline(0, color=INK, linewidth=0.8)
    unit_axis(ax.xaxis, figure.unit)
    ax.set_xlabel(figure.y)
    legend(sheet, list(_handles(figure)))
    return sheet


def _arms(figure: Figure) -> list[_Arm]:
    arms: dict[str, _Arm] = {}
    for category in dict.fromkeys(str(p.x) for s in figure.series for p in s.points):
        name, _, row = category.rpartition(" #")
        arms.setdefault(name, _Arm(name)).rows.append((category, row))
    return list(arms.values())


def _names(ax: Axes, labels: list[tuple[float, str]], repetitions: list[tuple[float, str]]) -> None:
    """Arms as major, repetitions as minor ticks, nearer to the axis."""
    ax.set_yticks([y for y, _ in labels], [text for _, text in labels])
    ax.set_yticks([y for y, _ in repetitions], [f"#{row}" for _, row in repetitions], minor=True)
    # A row in the middle of its arm lies where the arm's own tick does.
    ax.yaxis.remove_overlapping_locs = False
    widest = max((len(row) for _, row in repetitions), default=1)
    ax.tick_params(axis="y", which="major", length=0, pad=16 + 4.4 * widest)
    ax.tick_params(axis="y", which="minor", length=0, labelsize=7)
    ax.grid(visible=False, axis="y")


class _Bars:
    """Terms one behind the other, in the order of the series."""

    def __init__(self, figure: Figure) -> None:
        self._values = [
            (TERMS.index(series.name), {str(p.x): p.y for p in series.points})
            for series in figure.series
            if series.kind == "measured"
        ]
        self._nominal = {
            str(p.x): p.y for s in figure.series if s.kind == "simulated" for p in s.points
        }

    def draw(self, ax: Axes, category: str, y: float) -> None:
        right = left = 0.0
        for at, values in self._values:
            value = values.get(category)
            if not value:
                continue
            ax.barh(
                y,
                value,
                left=right if value > 0 else left,
                height=_ROW_IN * 0.8,
                color=COLOURS[at % len(COLOURS)],
                hatch=HATCHES[at % len(HATCHES)],
                edgecolor=INK,
                linewidth=0.4,
                alpha=_PALE if "rejected" in category.rpartition(" #")[2] else 1.0,
            )
            right, left = (right + value, left) if value > 0 else (right, left + value)
        nominal = self._nominal.get(category)
        if nominal is not None:
            ends = [y - _ROW_IN / 2, y + _ROW_IN / 2]
            ax.plot([nominal, nominal], ends, color=PAPER, linewidth=3, zorder=5)
            ax.plot([nominal, nominal], ends, color=INK, linewidth=1.5, zorder=6)


def _handles(figure: Figure) -> Iterator[Any]:
    for series in figure.series:
        if series.kind == "simulated":
            yield Line2D(
                [], [], color=INK, linestyle="none", marker="|", markersize=11, label=series.name
            )
            continue
        at = TERMS.index(series.name)
        yield Patch(
            facecolor=COLOURS[at % len(COLOURS)],
            hatch=HATCHES[at % len(HATCHES)],
            edgecolor=INK,
            linewidth=0.5,
            label=series.name,
        )
