# SPDX-License-Identifier: Apache-2.0
"""What all pictures share: sheet, colours, marks of what a number is, units on ticks, files.

Every distinction is made twice, by colour and by marker, dash or hatch, so that it survives
printing in grey and colour blindness (colours after Okabe and Ito).  Equal figures give equal
bytes: the user's matplotlib settings are not read, nothing carries a date, ids are salted alike.
"""

import io
import math
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Sheet
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from pagetier.analysis.report.section import Kind
from pagetier.analysis.units import format_bytes

__all__ = [
    "COLOURS",
    "GRID",
    "HATCHES",
    "INK",
    "KINDS",
    "MARKERS",
    "MUTED",
    "PAPER",
    "Picture",
    "clean",
    "heading",
    "kind_handle",
    "legend",
    "new_sheet",
    "picture",
    "shown",
    "styled",
    "unit_axis",
    "wrapped",
]

# A page may replace these four by its own, for dark paper.
INK, MUTED, GRID, PAPER = "#1c1c1e", "#6b6b70", "#dcdce1", "#fffffe"

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#8c8c3c", "#7a5ab5")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
# Of lines alone: a hatch of dots makes a file of megabytes.
HATCHES = ("", "////", "----", "xxxx", "||||", "\\\\\\\\", "++++", "//")

WIDTH_IN = 6.4
_PNG_DPI = 144
# Characters of a legend that fit into half of the width.
_HALF_WIDTH = 42

_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "svg.hashsalt": "pagetier",
    "svg.fonttype": "path",
    # A name with dollar signs is a name and no formula.
    "text.parse_math": False,
    "path.simplify": True,
}


Dash = Literal["-", "--", ":", "-.", "none"]


@dataclass(frozen=True, slots=True)
class Kinds:
    """How a number of a kind is drawn: dash of its line, whether its marker is filled."""

    dash: Dash
    is_filled: bool
    marker: str | None = None


KINDS: dict[Kind, Kinds] = {
    "measured": Kinds("-", True),
    "simulated": Kinds("--", False),
    "reference": Kinds(":", False, ""),
    "projected": Kinds("-.", False, "D"),
    "rejected": Kinds("none", False, "X"),
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure as the bytes of its two files."""

    svg: bytes
    png: bytes


@contextmanager
def styled() -> Iterator[None]:
    """Matplotlib's own settings and ours; glyphs that a font lacks are boxes and no warnings."""
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def new_sheet(
    rows: int = 1, columns: int = 1, height_in: float = 3.2, **options: Any
) -> tuple[Sheet, list[Axes]]:
    """A sheet of the common width with its axes, row by row."""
    sheet = Sheet(figsize=(WIDTH_IN, height_in), layout="constrained")
    FigureCanvasAgg(sheet)
    axes = sheet.subplots(rows, columns, squeeze=False, **options)
    return sheet, list(axes.flat)


def picture(sheet: Sheet) -> Picture:
    """Both files; without dates and program names, which would differ between equal figures."""
    svg, png = io.BytesIO(), io.BytesIO()
    sheet.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    sheet.set_layout_engine("none")  # the places stay: finding them takes longer than drawing
    sheet.savefig(png, format="png", dpi=_PNG_DPI, metadata={"Software": None})
    return Picture(svg.getvalue(), png.getvalue())


# ---- texts --------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """Without control characters: no XML may hold them."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)


def wrapped(text: str, width: int) -> str:
    """In lines of at most `width` characters."""
    return "\n".join(textwrap.wrap(text, width)) or text


def heading(axes: Axes, text: str, width: int = 46) -> None:
    """A title above the left end of its axes."""
    axes.set_title(wrapped(text, width), loc="left")


def kind_handle(kind: Kind, label: str, colour: str = MUTED, marker: str = "o") -> Line2D:
    """An entry of a legend that stands for numbers of a kind."""
    style = KINDS[kind]
    shape = marker if style.marker is None else style.marker
    return Line2D(
        [],
        [],
        color=INK if kind == "rejected" else colour,
        linestyle=style.dash,
        marker=shape or "none",
        markerfacecolor=colour if style.is_filled else PAPER,
        label=label,
    )


def legend(sheet: Sheet, handles: Sequence[Any]) -> None:
    """Below the axes, where it hides no number; long names have a line of their own."""
    if handles:
        longest = max(len(handle.get_label()) for handle in handles)
        columns = 2 if longest <= _HALF_WIDTH else 1
        sheet.legend(handles=handles, loc="outside lower left", ncols=columns)


# ---- units --------------------------------------------------------------------------------------


def _seconds(value: float) -> str:
    if value == 0:
        return "0 s"
    for factor, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def _bytes(value: float) -> str:
    text = format_bytes(value)
    number, _, unit = text.partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


_SHOWN: dict[str, Callable[[float], str]] = {
    "bytes": _bytes,
    "s": _seconds,
    "share": lambda value: f"{value * 100:.3g} %",
    "count": lambda value: f"{value:,.6g}",
}


def shown(value: float, unit: str) -> str:
    """A value with its unit."""
    return _SHOWN[unit](value)


# Round steps within a decade, by how many times the greatest value of an axis is its least.
_STEPS = ((30.0, (1.0, 2.0, 3.0, 5.0)), (300.0, (1.0, 2.0, 5.0)), (math.inf, (1.0,)))


def unit_axis(axis: Any, unit: str, ticks: int = 5) -> None:
    """Few ticks at round values, each with its unit; set limits and scale before."""
    low, high = sorted(axis.get_view_interval())
    is_wide = axis.get_scale() == "log" and low > 0 and high / low > 4
    if is_wide:
        steps = next(steps for limit, steps in _STEPS if high / low < limit)
        axis.set_major_locator(LogLocator(subs=steps, numticks=12))
    else:
        axis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, unit)))
