# SPDX-License-Identifier: Apache-2.0
"""A figure of every form, with the names and numbers that a picture stumbles on."""

from collections.abc import Iterator
from typing import Literal

import pytest

from pagetier.analysis.report.ledger import TERMS
from pagetier.analysis.report.section import Figure, FigurePoint, Form, Panel, Series

LONG = "balloon, classic LRU (MGLRU off), advice random, pread, touch-lock, huge pages off"
MB = 10**6


def at(x: float | str, y: float, spread: float = 0.1, n: int = 3) -> FigurePoint:
    return FigurePoint(x, y, y * (1 - spread), y * (1 + spread), n)


def _capacity() -> Figure:
    series = []
    for panel in ("wall, MGLRU", LONG, "boot"):
        xs = [64 * MB, 65 * MB, 448 * MB]
        series += [
            Series("measured", "measured", tuple(at(x, 10**15 / x) for x in xs), panel),
            Series("nominal", "simulated", tuple(at(x, 9e14 / x, 0.0) for x in xs), panel),
            Series("a/C", "reference", tuple(at(x, 8e14 / x, 0.0) for x in xs), panel),
            Series("rejected cells", "rejected", (at(65 * MB, 3e7, 0.0, 1),), panel),
        ]
    return _figure("capacity", tuple(series), scale="log", x="capacity C")


def _bars() -> Figure:
    names = [LONG, "short", "x" * 50]
    series = [
        Series("MGLRU", "measured", tuple(at(name, 30 * MB) for name in names), "C = 1 GB"),
        Series(LONG, "measured", tuple(at(name, 10 * MB, n=1) for name in names), "C = 1 GB"),
        Series("nominal", "simulated", (at(LONG, 20 * MB, 0.0),), "C = 1 GB"),
        Series("rejected cells", "rejected", (at("short", 50 * MB, 0.0),), "C = 1 GB"),
        Series("MGLRU", "measured", (at("short", 3 * MB, 0.0),), "C = 500 MB"),
    ]
    return _figure("bars", tuple(series), scale="category")


def _ledger() -> Figure:
    names = [f"{LONG} #1", f"{LONG} #2, rejected", "wall #1", "wall #2", "wall #3"]
    terms = [
        Series(name, "measured", tuple(at(x, -MB if place == 5 else 4 * MB, 0.0) for x in names))
        for place, name in enumerate(TERMS)
    ]
    nominal = Series("nominal", "simulated", tuple(at(x, 9 * MB, 0.0) for x in names))
    return _figure("ledger", (*terms, nominal), scale="category")


def _lines(form: Form, panels: tuple[Panel, ...], scale: float) -> Figure:
    series = tuple(
        Series(name, "measured", tuple(at(x, scale * x) for x in range(1, 60)), panel.name)
        for panel in panels
        for name in (LONG, "short")
    )
    return _figure(form, series, panels=panels, x="iteration")


def _figure(
    form: Form,
    series: tuple[Series, ...],
    scale: Literal["log", "linear", "category"] = "linear",
    x: str = "x",
    panels: tuple[Panel, ...] = (),
) -> Figure:
    y = "bytes per iteration"
    return Figure(form, LONG, x, y, scale, series, form, note="A note.", panels=panels)


def figures() -> Iterator[Figure]:
    share = (Panel("share", "a share", "share"),)
    yield _capacity()
    yield _bars()
    yield _ledger()
    yield _lines("timeline", (Panel("bytes", "bytes per iteration", "bytes"), *share), 1.0)
    yield _lines("latency", (Panel("C = 1 GB", "share of reads", "share"),), 1 / 60)
    yield _lines("hit-rate", (Panel(LONG, "hit rate", "share"),), 1 / 60)
    yield _lines("residency", share, 1 / 60)
    yield _lines("generations", (Panel("pages", "file pages", "count"),), 100.0)


@pytest.fixture(params=list(figures()), ids=lambda figure: figure.form)
def figure(request: pytest.FixtureRequest) -> Figure:
    """Each form in turn."""
    made: Figure = request.param
    return made
