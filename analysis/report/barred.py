# SPDX-License-Identifier: Apache-2.0
"""Series of figures with a bar per arm: the medians of the kept cells, and what was rejected."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pagetier.analysis.report.arms import Arm, FigureOf, device_bytes, nominal_bytes, seconds
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import Figure, FigurePoint, Series, Unit

__all__ = [
    "MISSES",
    "SPREAD",
    "Bars",
    "NameOf",
    "bar_series",
    "mark_series",
    "panel_series",
    "rejected_series",
]

NameOf = Callable[[Arm], str]

SPREAD = "Bars are medians of n kept repetitions, whiskers their least and greatest."
"""What a reader must know of every figure with bars."""

MISSES = "nominal misses (simulated)"
"""Of a simulated exact LRU of C, or of a simulated tier in the place of that tier."""


def bar_series(
    name: str, arms: Iterable[Arm], category: NameOf, figure: FigureOf, panel: str = ""
) -> Series:
    """A bar for each arm that has the figure."""
    points = tuple(
        FigurePoint(category(arm), spread.median, spread.min, spread.max, spread.count)
        for arm in arms
        if (spread := arm.spread(figure)) is not None
    )
    return Series(name, "measured", points, panel)


def mark_series(
    name: str, arms: Iterable[Arm], category: NameOf, figure: FigureOf, panel: str = ""
) -> Series:
    """A mark for each arm's simulated figure."""
    points = tuple(
        FigurePoint(category(arm), value, value, value, arm.n)
        for arm in arms
        if (value := arm.median(figure)) is not None
    )
    return Series(name, "simulated", points, panel)


def rejected_series(
    arms: Iterable[Arm], category: NameOf, figure: FigureOf, panel: str = ""
) -> Iterator[Series]:
    """A cross for each rejected cell that has the figure; nothing where there is none."""
    points = tuple(
        FigurePoint(category(arm), value, value, value, 1)
        for arm in arms
        for facts in arm.rejected
        if (value := figure(facts)) is not None
    )
    if points:
        yield Series("rejected cells", "rejected", points, panel)


@dataclass(frozen=True, slots=True)
class Bars:
    """Two figures of the same arms: time and device bytes."""

    key: str
    title: str
    x: str
    note: str = ""

    def figures(
        self, study: Study, lines: Callable[[FigureOf], Iterable[Series]]
    ) -> tuple[Figure, ...]:
        """`lines` are the series of one figure of a cell; of an emulated clock there is no time."""
        read = self._figure("device", "device bytes", "bytes", lines(device_bytes))
        if not study.times_count:
            return (read,)
        return (self._figure("time", "time", "s", lines(seconds)), read)

    def _figure(self, key: str, what: str, unit: Unit, series: Iterable[Series]) -> Figure:
        return Figure(
            key=f"{self.key}-{key}",
            title=f"{self.title}: {what}",
            x=self.x,
            y=f"{what} per iteration",
            scale="category",
            series=tuple(series),
            form="bars",
            unit=unit,
            note=f"{SPREAD} {self.note}".strip(),
        )


def panel_series(
    arms: list[Arm], category: NameOf, figure: FigureOf, panel: str
) -> Iterator[Series]:
    """All that a panel shows of its arms; nominal misses stand beside bytes alone."""
    yield bar_series("measured", arms, category, figure, panel)
    if figure is device_bytes:
        yield mark_series(MISSES, arms, category, nominal_bytes, panel)
    yield from rejected_series(arms, category, figure, panel)
