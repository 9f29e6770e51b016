# SPDX-License-Identifier: Apache-2.0
"""Did anything move that should not have?  Between repetitions, and within the measured passes.

Repetitions: each against the first, over all arms; a host that warms up or fills its disk moves all
of them the same way.  Within a pass: whether iterations still get slower or faster, so that one
warm-up pass was too little; a plan that itself asks for more towards its end is told apart by its
simulated misses.
"""

from collections.abc import Callable
from typing import Any

from pagetier.analysis.report import formats
from pagetier.analysis.report.arms import Arm, FigureOf, arm_names, arms_of, device_bytes
from pagetier.analysis.report.capacity import EMULATED, shown_seconds
from pagetier.analysis.report.reading import Point, Study
from pagetier.analysis.report.section import Column, Section, Table
from pagetier.analysis.stats import Drift, drift, paired_ratio, relative_spread

__all__ = ["drift_section"]

_REPETITIONS = (
    Column("repetition", "repetition"),
    Column("arms", "arms"),
    Column("iteration_s_ratio", "s/it to the first [min-max]", formats.ratio),
    Column("device_ratio", "device bytes to the first [min-max]", formats.ratio),
)
_ARMS = (
    Column("arm", "arm"),
    Column("n", "n"),
    Column("iteration_s", "s/it in the order of repetition"),
    Column("iteration_s_spread", "spread", formats.percent),
    Column("device", "device/it in the order of repetition"),
    Column("device_spread", "spread", formats.percent),
)
_WITHIN = (
    Column("arm", "arm"),
    Column("repetition", "repetition"),
    Column("change", "s/it, last third / first", formats.change),
    Column("chance", "by chance", formats.three_digits),
    Column("nominal_change", "misses the same (simulated)", formats.change),
    Column("reading", "reading"),
)


def drift_section(study: Study) -> Section | None:
    """None without a kept cell."""
    arms = [arm for arm in arms_of(study) if arm.n]
    if not arms:
        return None
    name = arm_names(arms)
    drifting, settled, undecided = _within(study, arms, name)
    tables = (
        Table(
            "Repetitions against the first, over all arms", _REPETITIONS, _repetitions(study, arms)
        ),
        Table(
            "Repetitions of each arm",
            _ARMS,
            tuple(_arm_row(study, a, name) for a in arms if a.n > 1),
        ),
        Table("Measured passes that still move", _WITHIN, drifting),
    )
    return Section(
        key="drift",
        title="Drift",
        prose=_prose(study, len(drifting), settled, undecided),
        tables=tuple(table for table in tables if table.rows),
    )


def _prose(study: Study, drifting: int, settled: int, undecided: int) -> tuple[str, ...]:
    if not study.times_count:
        return (EMULATED,)
    counted = (
        f"Cells that are settled within the measured pass: {settled}; that still move: {drifting}"
    )
    rest = f"; with too few iterations to tell: {undecided}" if undecided else ""
    rule = (
        "A pass moves when its last third differs from its first by more than 5 % and chance would"
        " do it in less than 1 of 100 passes (rank correlation with time, neighbours allowed for)."
    )
    return f"{counted}{rest}.", rule


def _repetitions(study: Study, arms: list[Arm]) -> tuple[tuple[Any, ...], ...]:
    numbers = sorted({n for arm in arms for n in _numbers(arm) if isinstance(n, int)})
    rows = ((later, *_against(study, arms, numbers[0], later)) for later in numbers[1:])
    return tuple(row for row in rows if row[1])


def _numbers(arm: Arm) -> list[Any]:
    return [point.cell.spec.get("repetition") for point in arm.points]


def _against(study: Study, arms: list[Arm], first: int, later: int) -> tuple[Any, ...]:
    def ratio(figure: FigureOf) -> Any:
        series = [arm.by_repetition(figure) for arm in arms]
        both = [values for values in series if first in values and later in values]
        return paired_ratio([v[later] for v in both], [v[first] for v in both])

    times, read = ratio(shown_seconds(study)), ratio(device_bytes)
    counts = [found.count for found in (times, read) if found is not None]
    return max(counts, default=0), times, read


def _arm_row(study: Study, arm: Arm, name: Callable[[Arm], str]) -> tuple[Any, ...]:
    times, read = arm.values(shown_seconds(study)), arm.values(device_bytes)
    return (
        name(arm),
        arm.n,
        ", ".join(map(formats.three_digits, times)) or None,
        relative_spread(times),
        ", ".join(map(formats.size, read)) or None,
        relative_spread(read),
    )


def _within(
    study: Study, arms: list[Arm], name: Callable[[Arm], str]
) -> tuple[tuple[tuple[Any, ...], ...], int, int]:
    """Rows of the passes that move, and how many are settled and undecided."""
    rows: list[tuple[Any, ...]] = []
    counts = {"settled": 0, "undecided": 0}
    if not study.times_count:
        return (), 0, 0
    for arm in arms:
        for point in arm.points:
            found = drift(point.wall_s)
            if found.state == "drifts":
                rows.append((name(arm), point.cell.spec.get("repetition"), *_reading(found, point)))
            else:
                counts[found.state] += 1
    return tuple(rows), counts["settled"], counts["undecided"]


def _reading(found: Drift, point: Point) -> tuple[Any, ...]:
    plan = None if point.nominal_misses is None else drift(point.nominal_misses)
    alike = (
        plan is not None and plan.state == "drifts" and (plan.change or 0) * (found.change or 0) > 0
    )
    reading = "the plan itself moves so" if alike else "not settled: the warm-up was too short"
    return found.change, found.chance, None if plan is None else plan.change, reading
