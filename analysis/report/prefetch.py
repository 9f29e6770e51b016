# SPDX-License-Identifier: Apache-2.0
"""What a hint is worth: each prefetch condition beside none, with what the worker counted.

Time ratios are of equal repetitions.  A hint that brings less than it names was cut at the device's
readahead window; its share stands beside it, for such a hint says nothing of prediction.
"""

from collections.abc import Iterator
from typing import Any

from pagetier.analysis.hint_counts import Hints
from pagetier.analysis.naming import prefetch_name
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

__all__ = ["prefetch_groups", "prefetch_section", "unhinted"]

_COLUMNS = (
    Column("arm", "arm"),
    Column("capacity_bytes", "C", formats.capacity),
    Column("condition", "prefetch"),
    Column("n", "n"),
    Column("iteration_s", "s/it median [min-max]", formats.spread_of(formats.three_digits)),
    Column("time_ratio", "time / none [min-max]", formats.ratio),
    Column("device_bytes_per_iteration", "device/it", formats.spread_of(formats.size)),
    Column("submitted", "hints submitted"),
    Column("overwritten", "overwritten"),
    Column("completed", "completed"),
    Column("failed", "failed"),
    Column("resident_share", "resident / hinted", formats.percent),
    Column("used_bytes", "brought, then used", formats.size),
    Column("evicted_bytes", "evicted first", formats.size),
    Column("unused_bytes", "never read", formats.size),
)


def prefetch_groups(study: Study) -> list[list[Arm]]:
    """Arms that differ in the advisor alone, where at least one has one."""
    groups = together(arms_of(study), "prefetch")
    return [group for group in groups if any(arm.spec.get("prefetch") for arm in group)]


def unhinted(group: list[Arm]) -> Arm | None:
    """The arm without an advisor."""
    return next((arm for arm in group if not arm.spec.get("prefetch")), None)


def prefetch_section(study: Study) -> Section | None:
    """None where no cell had an advisor."""
    groups = prefetch_groups(study)
    if not groups:
        return None
    name = arm_names((arm for group in groups for arm in group), "capacity_bytes", "prefetch")
    rows = tuple(
        _row(study, arm, unhinted(group), name(arm))
        for group in groups
        for arm in sorted(group, key=_none_first)
    )
    prose = (
        "One worker with one overwritable slot. Time ratios are medians of the ratios of equal"
        " repetitions to the arm without hints. Counts are medians over the repetitions; brought"
        " bytes were absent before their hint and there after it.",
    )
    return Section(
        key="prefetch",
        title="Prefetch",
        prose=prose if study.times_count else (EMULATED, *prose),
        tables=(Table("Prefetch conditions", _COLUMNS, rows),),
        figures=_figures(study, groups, name),
    )


def _row(study: Study, arm: Arm, base: Arm | None, name: str) -> tuple[Any, ...]:
    beside = None if base is None or base is arm else base
    return (
        name,
        arm.capacity_bytes,
        prefetch_name(arm.spec) or "none",
        arm.n,
        arm.spread(shown_seconds(study)),
        None if beside is None else ratio_of(arm, beside, shown_seconds(study)),
        arm.spread(device_bytes),
        *(
            _count(arm, field)
            for field in ("submitted", "overwritten", "completed", "failed", "resident_share")
        ),
        *(_count(arm, field) for field in ("used_bytes", "evicted_bytes", "unused_bytes")),
    )


def _count(arm: Arm, field: str) -> float | None:
    def figure(hints: Hints | None) -> float | None:
        value = None if hints is None else getattr(hints, field)
        return value if isinstance(value, int | float) else None

    value = arm.median(lambda facts: figure(facts.hints))
    return (
        int(value)
        if value is not None and value == int(value) and field != "resident_share"
        else value
    )


def _figures(study: Study, groups: list[list[Arm]], name: NameOf) -> tuple[Figure, ...]:
    def lines(figure: FigureOf) -> Iterator[Series]:
        for group in groups:
            panel = f"{name(group[0])}, {formats.capacity(group[0].capacity_bytes)}"
            arms = sorted(group, key=_none_first)
            yield from panel_series(arms, _condition, figure, panel)

    return Bars("prefetch", "Prefetch", "condition").figures(study, lines)


def _none_first(arm: Arm) -> tuple[bool, str]:
    return bool(arm.spec.get("prefetch")), _condition(arm)


def _condition(arm: Arm) -> str:
    return prefetch_name(arm.spec) or "none"
