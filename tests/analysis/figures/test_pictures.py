# SPDX-License-Identifier: Apache-2.0
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import get_args
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure as Sheet
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from pagetier.analysis.figures import style
from pagetier.analysis.figures.pictures import FORMS, draw
from pagetier.analysis.report.section import Figure, Form, Series

HOSTILE = "a$b_{ <script>alert(1)</script> ]]> & \x1b[31m \u202e\x00 -- 漢字 $\\frac"


@pytest.fixture
def sheet(figure: Figure) -> Iterator[Sheet]:
    """The figure as matplotlib's, laid out."""
    with style.styled():
        made = FORMS[figure.form](figure)
        made.canvas.draw()
        yield made


def shown_texts(sheet: Sheet) -> list[Text]:
    found = (text for text in sheet.findobj(Text) if isinstance(text, Text))
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def boxes(texts: list[Text]) -> list[Bbox]:
    return [text.get_window_extent() for text in texts]


def test_every_form_has_its_picture(figure: Figure) -> None:
    assert set(FORMS) == set(get_args(Form))
    picture = draw(figure)
    root = ElementTree.fromstring(picture.svg)
    assert root.tag.endswith("svg")
    width, height = struct.unpack(">II", picture.png[16:24])
    assert picture.png.startswith(b"\x89PNG") and width > 900 and height > 300


def test_equal_figures_are_equal_bytes_whatever_the_users_settings(figure: Figure) -> None:
    first = draw(figure)
    with mpl.rc_context({"font.size": 20, "svg.hashsalt": None, "axes.linewidth": 4}):
        second = draw(figure)
        assert mpl.rcParams["font.size"] == 20
    assert first == second
    assert b"<dc:date>" not in first.svg and b"tEXt" not in first.png


def test_names_are_names_and_no_markup(figure: Figure) -> None:
    series = tuple(replace(one, panel="") for one in figure.series)
    if figure.form != "ledger":  # whose series are the terms of the ledger
        series = tuple(replace(one, name=HOSTILE) for one in series)
    hostile = replace(figure, title=HOSTILE, x=HOSTILE, y=HOSTILE, series=series, panels=())
    svg = draw(hostile).svg
    ElementTree.fromstring(svg)
    assert b"<script" not in svg


def test_no_text_leaves_the_sheet(sheet: Sheet) -> None:
    page = sheet.bbox
    for text in shown_texts(sheet):
        box = text.get_window_extent()
        inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1
        # Ticks beyond the limits of an axis have a label that is never drawn.
        assert inside or not _is_drawn(sheet, text), text.get_text()


def _is_drawn(sheet: Sheet, text: Text) -> bool:
    return all(
        low <= tick <= high
        for ax in sheet.axes
        for axis, place in ((ax.xaxis, 0), (ax.yaxis, 1))
        if text in axis.get_ticklabels()
        for tick in [text.get_position()[place]]
        for low, high in [sorted(axis.get_view_interval())]
    )


def test_no_text_lies_on_another(sheet: Sheet) -> None:
    drawn = [text for text in shown_texts(sheet) if _is_drawn(sheet, text)]
    for one, other in combinations(drawn, 2):
        overlap = Bbox.intersection(one.get_window_extent(), other.get_window_extent())
        touching = overlap is not None and overlap.width > 1 and overlap.height > 1
        assert not touching, (one.get_text(), other.get_text())


def test_axes_carry_units(sheet: Sheet) -> None:
    for ax in (ax for ax in sheet.axes if ax.get_visible()):
        labels = [ax.get_xlabel(), ax.get_ylabel(), *(text.get_text() for text in _ticks(ax))]
        assert any(
            " B" in text or "MB" in text or "%" in text or "pages" in text for text in labels
        )


def _ticks(ax: Axes) -> list[Text]:
    return [*ax.get_xticklabels(), *ax.get_yticklabels()]


def test_what_differs_in_colour_differs_without_it_too() -> None:
    assert len(set(style.HATCHES)) == len(set(style.MARKERS)) == len(set(style.COLOURS)) == 8
    looks = {(kind.dash, kind.is_filled, kind.marker) for kind in style.KINDS.values()}
    assert len(looks) == len(style.KINDS)


def test_bars_end_at_their_medians_and_whiskers_at_their_range(figure: Figure) -> None:
    if figure.form != "bars":
        return
    with style.styled():
        sheet = FORMS["bars"](figure)
    first = sheet.axes[0]
    widths = [
        float(patch.get_width())
        for container in first.containers
        if isinstance(container, BarContainer)
        for patch in container.patches
    ]
    bars = [p.y for s in figure.series[:2] for p in s.points]
    assert sorted(widths) == pytest.approx(sorted(bars))
    told = sorted(text.get_text() for text in first.texts)
    assert told == sorted(f"n={p.n}" for s in figure.series[:2] for p in s.points)
    crosses = [line for line in first.lines if line.get_marker() == "X"]
    places = [np.asarray(line.get_xdata(), dtype=float).tolist() for line in crosses]
    assert places == [[figure.series[3].points[0].y]]


def test_a_term_below_zero_stands_on_the_left_of_it(figure: Figure) -> None:
    if figure.form != "ledger":
        return
    with style.styled():
        sheet = FORMS["ledger"](figure)
    lefts = [
        (float(patch.get_x()), float(patch.get_width()))
        for container in sheet.axes[0].containers
        if isinstance(container, BarContainer)
        for patch in container.patches
    ]
    below = [(x, width) for x, width in lefts if width < 0]
    assert below == [(0.0, -1e6)] * 5
    # Six terms of 4 MB one behind the other.
    assert sorted({x for x, width in lefts if width > 0}) == [4e6 * at for at in range(6)]


def test_a_rejected_cell_has_a_mark_of_its_own(figure: Figure) -> None:
    rejected = [one for one in figure.series if one.kind == "rejected"]
    if not rejected:
        return
    without = replace(figure, series=tuple(one for one in figure.series if one.kind != "rejected"))
    assert draw(without).svg != draw(figure).svg
    with style.styled():
        sheet = FORMS[figure.form](figure)
    (legend,) = sheet.legends
    assert "rejected cells" in [text.get_text() for text in legend.get_texts()]


def test_no_command_loads_matplotlib_for_text_alone() -> None:
    code = "import sys; import pagetier.bench.cli; sys.exit('matplotlib' in sys.modules)"
    paths = ":".join(path for path in sys.path if path)
    found = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": paths}, check=False)
    assert found.returncode == 0


def test_seconds_and_bytes_are_shown_with_their_units() -> None:
    assert style.shown(0.0, "s") == "0 s"
    assert style.shown(1.28, "s") == "1.28 s"
    assert style.shown(0.25, "s") == "250 ms"
    assert style.shown(3e-6, "s") == "3 us"
    assert style.shown(5e-9, "s") == "5 ns"
    assert style.shown(20e6, "bytes") == "20 MB"
    assert style.shown(0.25, "share") == "25 %"
    assert style.shown(12000, "count") == "12,000"


def test_a_single_point_is_a_picture(figure: Figure) -> None:
    """A campaign that has just begun: one cell, n = 1, no spread."""
    if figure.form in ("generations", "ledger"):
        return
    first = figure.series[0]
    alone = Series(first.name, first.kind, first.points[:1], first.panel)
    ElementTree.fromstring(draw(replace(figure, series=(alone,))).svg)


@pytest.mark.parametrize("value", [0.0, -5.0, 1e15])
def test_a_number_at_or_below_zero_is_no_warning_and_not_hidden(
    figure: Figure, value: float
) -> None:
    flat = replace(
        figure,
        series=tuple(
            replace(
                one, points=tuple(replace(p, y=value, min=value, max=value) for p in one.points)
            )
            for one in figure.series
        ),
    )
    ElementTree.fromstring(draw(flat).svg)
    if figure.form == "capacity":
        with style.styled():
            sheet = FORMS[figure.form](flat)
        assert sheet.axes[0].get_yscale() == ("log" if value > 0 else "linear")
