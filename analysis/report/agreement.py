# SPDX-License-Identifier: Apache-2.0
"""Do the mechanisms of capacity agree?  Pairs at equal C, and a boot against the others' curve.

Mechanisms are compared where the same implementation reclaimed pages; a pair that was measured only
under different ones is shown with that remark, for it says nothing of the mechanisms alone.
A boot leaves what its kernel does not use itself, never quite C: it is compared with the curve of
each other mechanism at the file pages that were really resident, inside the measured range only.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from pagetier.analysis.report import formats
from pagetier.analysis.report.arms import (
    Arm,
    FigureOf,
    arm_names,
    arms_of,
    device_bytes,
    effective_capacity,
    ratio_of,
    together,
)
from pagetier.analysis.report.capacity import EMULATED, shown_seconds
from pagetier.analysis.report.curves import value_at
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import Column, Section, Table

__all__ = ["agreement_section", "beside_curve"]

# What only one mechanism has, and so may differ between two.
_OWN_KEYS = ("mechanism", "headroom", "balloon_order", "balloon_huge_pages")

_PAIRS = (
    Column("capacity_bytes", "C", formats.capacity),
    Column("pair", "mechanisms"),
    Column("reclaim", "reclaim"),
    Column("iteration_s_ratio", "s/it ratio [min-max]", formats.ratio),
    Column("device_ratio", "device bytes ratio [min-max]", formats.ratio),
    Column("effective_above", "effective C of the first", formats.size),
    Column("effective_below", "of the second", formats.size),
    Column("remark", "remark"),
)
_CURVE = (
    Column("capacity_bytes", "C of the boot", formats.capacity),
    Column("effective_bytes", "effective C", formats.size),
    Column("reclaim", "reclaim"),
    Column("curve", "curve of"),
    Column("range", "its range of effective C"),
    Column("iteration_s_deviation", "s/it against it", formats.change),
    Column("device_deviation", "device bytes against it", formats.change),
)


def agreement_section(study: Study) -> Section | None:
    """None where there is one mechanism only."""
    arms = arms_of(study)
    found = list(_pairs(arms))
    name = arm_names((arm for pair in found for arm in pair), "capacity_bytes", "reclaim")
    pairs = tuple(
        _pair_row(study, above, below, f"{name(above)} / {name(below)}") for above, below in found
    )
    boots = tuple(_boot_rows(study, arms))
    if not pairs and not boots:
        return None
    prose = (
        "Ratios are the first mechanism over the second at equal C: medians of the ratios of equal"
        " repetitions, or, against a boot, the ratio of the medians: boots come after all else.",
        "effective C is the time-mean of the file pages that were resident in the measured pass."
        " Between two measured points the curve is a straight line; outside of them there is none.",
    )
    tables = (
        Table("Mechanisms at equal C", _PAIRS, pairs),
        Table("Boots beside the others' curves at their effective C", _CURVE, boots),
    )
    return Section(
        key="agreement",
        title="Agreement of the mechanisms",
        prose=prose if study.times_count else (EMULATED, *prose),
        tables=tuple(table for table in tables if table.rows),
    )


def _pairs(arms: list[Arm]) -> Iterator[tuple[Arm, Arm]]:
    """Of equal reclaim; where a pair of mechanisms has none such, those that differ in it too."""
    limited = [arm for arm in arms if arm.capacity_bytes is not None]
    for group in together(limited, "reclaim", *_OWN_KEYS):
        pairs = [(a, b) for a, b in combinations(group, 2) if a.mechanism != b.mechanism]
        alike = [(a, b) for a, b in pairs if a.reclaim == b.reclaim]
        known = {(a.mechanism, b.mechanism) for a, b in alike}
        yield from alike
        yield from ((a, b) for a, b in pairs if (a.mechanism, b.mechanism) not in known)


def _pair_row(study: Study, above: Arm, below: Arm, name: str) -> tuple[Any, ...]:
    differs = above.reclaim != below.reclaim
    return (
        above.capacity_bytes,
        name,
        f"{above.reclaim} / {below.reclaim}" if differs else above.reclaim,
        ratio_of(above, below, shown_seconds(study)),
        ratio_of(above, below, device_bytes),
        above.median(effective_capacity),
        below.median(effective_capacity),
        "reclaim differs: no agreement of mechanisms" if differs else "",
    )


def _boot_rows(study: Study, arms: list[Arm]) -> Iterator[tuple[Any, ...]]:
    for group in together(arms, "capacity_bytes", *_OWN_KEYS):
        others = dict.fromkeys(arm.mechanism for arm in group if _has_curve(arm))
        for boot in (arm for arm in group if arm.mechanism == "boot"):
            for mechanism in others:
                curve = [arm for arm in group if arm.mechanism == mechanism]
                yield (
                    boot.capacity_bytes,
                    boot.median(effective_capacity),
                    boot.reclaim,
                    mechanism,
                    _range(curve),
                    beside_curve(boot, curve, shown_seconds(study)),
                    beside_curve(boot, curve, device_bytes),
                )


def _has_curve(arm: Arm) -> bool:
    return arm.mechanism != "boot" and arm.capacity_bytes is not None


def _range(curve: list[Arm]) -> str:
    known = [value for arm in curve if (value := arm.median(effective_capacity)) is not None]
    if not known:
        return "unknown"
    return f"{formats.size(min(known))} to {formats.size(max(known))}"


def beside_curve(arm: Arm, curve: list[Arm], figure: FigureOf) -> float | None:
    """The arm's figure over the curve's at its effective capacity, less 1; None outside of it."""
    at, here = arm.median(effective_capacity), arm.median(figure)
    points = [(other.median(effective_capacity), other.median(figure)) for other in curve]
    known = [(x, y) for x, y in points if x is not None and y is not None]
    expected = None if at is None else value_at(known, at)
    return None if here is None or not expected else here / expected - 1
