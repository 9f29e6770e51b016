# SPDX-License-Identifier: Apache-2.0
"""Who should own the bytes, at equal memory: each tier beside the page cache of the same budget.

The baseline is the page cache without hints and with the kernel's default advice.  Time ratios are
of equal repetitions; device bytes say whether a difference comes from which bytes are kept.  What
an arena reads before the measured pass is in no figure but its own column.
"""

from collections.abc import Iterator
from typing import Any

from pagetier.analysis.counters import number
from pagetier.analysis.derive import CellFacts
from pagetier.analysis.report import formats
from pagetier.analysis.report.arms import (
    Arm,
    FigureOf,
    arm_names,
    arms_of,
    device_bytes,
    ratio_of,
    together,
)
from pagetier.analysis.report.barred import Bars, NameOf, panel_series
from pagetier.analysis.report.capacity import EMULATED, shown_seconds
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import Column, Figure, Section, Series, Table

__all__ = ["baseline", "equal_memory_groups", "equal_memory_section"]

_COLUMNS = (
    Column("arm", "arm"),
    Column("capacity_bytes", "C", formats.capacity),
    Column("n", "n"),
    Column("iteration_s", "s/it median [min-max]", formats.spread_of(formats.three_digits)),
    Column("time_ratio", "time / page cache [min-max]", formats.ratio),
    Column("device_bytes_per_iteration", "device/it", formats.spread_of(formats.size)),
    Column("device_ratio", "device / page cache [min-max]", formats.ratio),
    Column("served_arena", "served by arena", formats.percent),
    Column("served_page_cache", "by page cache", formats.percent),
    Column("missed", "missed", formats.percent),
    Column("locked_bytes", "locked (VmLck)", formats.size),
    Column("preload_bytes", "preload, not in s/it", formats.size),
)


def equal_memory_groups(study: Study) -> list[list[Arm]]:
    """Arms without hints that share budget and mechanism and hold more than one tier or advice."""
    plain = [arm for arm in arms_of(study) if arm.spec.get("prefetch") is None]
    groups = together(plain, "tier", "arena", "advice")
    return [group for group in groups if len(group) > 1 and group[0].capacity_bytes is not None]


def baseline(group: list[Arm]) -> Arm | None:
    """The page cache with default advice, else with what advice there is."""
    cached = [arm for arm in group if arm.spec.get("tier") == "page-cache"]
    return min(cached, key=lambda arm: arm.spec.get("advice") != "default", default=None)


def equal_memory_section(study: Study) -> Section | None:
    """None where no budget was given to more than one way of holding it."""
    groups = equal_memory_groups(study)
    if not groups:
        return None
    name = arm_names((arm for group in groups for arm in group), "capacity_bytes")
    rows = tuple(_row(study, arm, baseline(group), name(arm)) for group in groups for arm in group)
    prose = (
        "Every arm of a C holds its bytes within the same enforced budget. Time ratios are medians"
        " of the ratios of equal repetitions to the page cache (default advice) of that C.",
    )
    return Section(
        key="equal-memory",
        title="Equal memory",
        prose=prose if study.times_count else (EMULATED, *prose),
        tables=(Table("Tiers at equal memory", _COLUMNS, rows),),
        figures=_figures(study, groups, name),
    )


def _row(study: Study, arm: Arm, base: Arm | None, name: str) -> tuple[Any, ...]:
    beside = None if base is None or base is arm else base
    return (
        name,
        arm.capacity_bytes,
        arm.n,
        arm.spread(shown_seconds(study)),
        None if beside is None else ratio_of(arm, beside, shown_seconds(study)),
        arm.spread(device_bytes),
        None if beside is None else ratio_of(arm, beside, device_bytes),
        arm.median(lambda facts: facts.served_arena),
        arm.median(lambda facts: facts.served_page_cache),
        arm.median(_missed),
        _fact(arm, "budget", "locked_read_bytes"),
        _fact(arm, "preload", "bytes"),
    )


def _missed(facts: CellFacts) -> float | None:
    return None if facts.served_fraction is None else 1 - facts.served_fraction


def _fact(arm: Arm, *keys: str) -> int | None:
    """The greatest over the repetitions."""
    values = [number(point.cell.facts, *keys) for point in arm.points]
    return max((value for value in values if value is not None), default=None)


def _figures(study: Study, groups: list[list[Arm]], name: NameOf) -> tuple[Figure, ...]:
    note = "What a tier loads before the measured pass is not in them."

    def lines(figure: FigureOf) -> Iterator[Series]:
        for group in groups:
            limit = formats.capacity(group[0].capacity_bytes)
            yield from panel_series(group, name, figure, f"C = {limit}")

    return Bars("equal-memory", "Equal memory", "tier", note).figures(study, lines)
