# SPDX-License-Identifier: Apache-2.0
"""The capacity sweep: time and device bytes against C, beside two references.

a/C: the device bytes of the largest C, scaled by 1/C; nothing is fitted.  Nominal misses: simulated
by an exact LRU of C bytes.  No amplification stands without its in-extent part and its over-read.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pagetier.analysis.report import formats
from pagetier.analysis.report.arms import (
    Arm,
    FigureOf,
    amplification,
    arm_names,
    arms_of,
    device_bytes,
    in_extent_amplification,
    nominal_bytes,
    over_read_share,
    seconds,
    together,
)
from pagetier.analysis.report.barred import MISSES
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import (
    Column,
    Figure,
    FigurePoint,
    Kind,
    Section,
    Series,
    Table,
    Unit,
)
from pagetier.analysis.stats import relative_spread

__all__ = ["capacity_section", "inverse_deviation", "shown_seconds", "sweeps"]

_COLUMNS = (
    Column("arm", "arm"),
    Column("capacity_bytes", "C", formats.capacity),
    Column("n", "n"),
    Column("iteration_s", "s/it median [min-max]", formats.spread_of(formats.three_digits)),
    Column("iteration_s_spread", "spread", formats.percent),
    Column("device_bytes_per_iteration", "device/it", formats.spread_of(formats.size)),
    Column("inverse_deviation", "a/C dev", formats.change),
    Column("nominal_miss_bytes_per_iteration", "misses/it (simulated)", formats.size),
    Column("amplification", "amplification", formats.factor),
    Column("in_extent_amplification", "in-extent", formats.factor),
    Column("over_read_share", "over-read", formats.percent),
    Column("remarks", "remarks"),
)

EMULATED = (
    "The clock of this host is emulated: its seconds are no times and are not shown; its bytes and"
    " counters count."
)


def capacity_section(study: Study) -> Section:
    """Table 2 of the paper for this host, one group of rows per sweep."""
    arms = arms_of(study)
    groups = sweeps(arms)
    name = arm_names((arm for group in groups for arm in group), "capacity_bytes")
    rows = tuple(_row(study, arm, group, name) for group in groups for arm in group)
    if not rows:
        return Section("capacity", "Capacity", ("No kept cell has a figure to show.",))
    return Section(
        key="capacity",
        title="Capacity",
        prose=_prose(study),
        tables=(Table("Iteration time and device bytes against C", _COLUMNS, rows),),
        figures=tuple(_figures(study, groups)),
    )


def sweeps(arms: list[Arm]) -> list[list[Arm]]:
    """Arms that differ in C alone, each group from the largest C down."""
    return [
        sorted(group, key=lambda arm: -(arm.capacity_bytes or 0))
        for group in together(arms, "capacity_bytes")
    ]


def inverse_deviation(group: list[Arm], arm: Arm) -> float | None:
    """Device bytes over those of the largest C of the group scaled by 1/C, less 1."""
    anchor = max(group, key=lambda other: other.capacity_bytes or 0)
    at_anchor, here = anchor.median(device_bytes), arm.median(device_bytes)
    if not at_anchor or here is None or not anchor.capacity_bytes or not arm.capacity_bytes:
        return None
    return here * arm.capacity_bytes / (at_anchor * anchor.capacity_bytes) - 1


def shown_seconds(study: Study) -> FigureOf:
    """Seconds of a real clock; of an emulated one none."""
    return seconds if study.times_count else lambda facts: None


def _prose(study: Study) -> tuple[str, ...]:
    told = (
        "Spread is (max - min) / median of the repetitions' medians. a/C dev: device bytes against"
        " those of the largest C of the same arm scaled by 1/C; nothing is fitted. Misses are"
        " simulated (exact LRU of C), all else is measured; amplification is device / misses,"
        " in-extent counts only what lies inside the experts asked for, over-read is the rest.",
    )
    return told if study.times_count else (EMULATED, *told)


def _row(study: Study, arm: Arm, group: list[Arm], name: Callable[[Arm], str]) -> tuple[Any, ...]:
    times = arm.values(shown_seconds(study))
    return (
        name(arm),
        arm.capacity_bytes,
        arm.n,
        arm.spread(shown_seconds(study)),
        relative_spread(times),
        arm.spread(device_bytes),
        inverse_deviation(group, arm),
        arm.median(nominal_bytes),
        arm.median(amplification),
        arm.median(in_extent_amplification),
        arm.median(over_read_share),
        _remarks(arm),
    )


def _remarks(arm: Arm) -> str:
    rejected = len(arm.cells) - arm.n
    conditioned = ["balloon-conditioned"] if arm.mechanism == "balloon" else []
    return "; ".join([*conditioned, *arm.labels, *([f"{rejected} rejected"] if rejected else [])])


# ---- figures ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Line:
    name: str
    kind: Kind
    figure: FigureOf


_MISSED = _Line(MISSES, "simulated", nominal_bytes)


def _figures(study: Study, groups: list[list[Arm]]) -> list[Figure]:
    swept = [group for group in groups if len([a for a in group if a.capacity_bytes]) > 1]
    if not swept:
        return []
    read = _Line("device bytes, measured", "measured", device_bytes)
    figures = [_figure("capacity-device", "device bytes per iteration", "bytes", swept, read)]
    if study.times_count:
        timed = _Line("time, measured", "measured", shown_seconds(study))
        figures.insert(0, _figure("capacity-time", "time per iteration", "s", swept, timed))
    return figures


def _figure(key: str, y: str, unit: Unit, groups: list[list[Arm]], measured: _Line) -> Figure:
    name = arm_names((arm for group in groups for arm in group), "capacity_bytes")
    return Figure(
        key=key,
        title=f"Capacity response: {y}",
        x="capacity C",
        y=y,
        scale="log",
        series=tuple(
            line
            for group in groups
            for line in _lines(group, name(group[0]), measured, with_bytes=unit == "bytes")
            if line.points
        ),
        form="capacity",
        unit=unit,
        note="Points are medians of n kept repetitions, whiskers their least and greatest.",
    )


def _lines(group: list[Arm], panel: str, measured: _Line, with_bytes: bool) -> Iterator[Series]:
    yield Series(measured.name, "measured", _points(group, measured.figure), panel)
    if with_bytes:
        yield Series(_MISSED.name, _MISSED.kind, _points(group, _MISSED.figure), panel)
        inverse = "a/C, anchored at the largest C"
        yield Series(inverse, "reference", _inverse(group), panel)
    yield Series("rejected cells", "rejected", _rejected(group, measured.figure), panel)


def _points(group: list[Arm], figure: FigureOf) -> tuple[FigurePoint, ...]:
    return tuple(
        FigurePoint(arm.capacity_bytes, spread.median, spread.min, spread.max, spread.count)
        for arm in group
        if arm.capacity_bytes is not None and (spread := arm.spread(figure)) is not None
    )


def _rejected(group: list[Arm], figure: FigureOf) -> tuple[FigurePoint, ...]:
    return tuple(
        FigurePoint(arm.capacity_bytes, value, value, value, 1)
        for arm in group
        for facts in arm.rejected
        if arm.capacity_bytes is not None and (value := figure(facts)) is not None
    )


def _inverse(group: list[Arm]) -> tuple[FigurePoint, ...]:
    measured = _points(group, device_bytes)
    if not measured or not isinstance(measured[0].x, int):
        return ()
    a = measured[0].y * measured[0].x
    return tuple(
        FigurePoint(point.x, y, y, y, point.n)
        for point in measured
        if isinstance(point.x, int)
        for y in [a / point.x]
    )
