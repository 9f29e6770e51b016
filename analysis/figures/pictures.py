# SPDX-License-Identifier: Apache-2.0
"""A picture for each figure of a report, by its form."""

from dataclasses import replace

from pagetier.analysis.figures import (
    bars,
    capacity,
    generations,
    hit_rate,
    latency,
    ledger,
    residency,
    timeline,
)
from pagetier.analysis.figures.style import Picture, clean, picture, styled
from pagetier.analysis.report.section import Figure, Panel, Series

__all__ = ["FORMS", "draw"]

FORMS = {
    "bars": bars.draw,
    "capacity": capacity.draw,
    "generations": generations.draw,
    "hit-rate": hit_rate.draw,
    "latency": latency.draw,
    "ledger": ledger.draw,
    "residency": residency.draw,
    "timeline": timeline.draw,
}


def draw(figure: Figure) -> Picture:
    """The files of `figure`; the same for the same figure."""
    with styled():
        return picture(FORMS[figure.form](_cleaned(figure)))


def _cleaned(figure: Figure) -> Figure:
    """With texts that a file of XML may hold: names come from files, devices and databases."""
    return replace(
        figure,
        title=clean(figure.title),
        x=clean(figure.x),
        y=clean(figure.y),
        series=tuple(map(_cleaned_series, figure.series)),
        panels=tuple(Panel(clean(one.name), clean(one.y), one.unit) for one in figure.panels),
    )


def _cleaned_series(series: Series) -> Series:
    points = (
        replace(point, x=clean(point.x)) if isinstance(point.x, str) else point
        for point in series.points
    )
    return Series(clean(series.name), series.kind, tuple(points), clean(series.panel))
