# SPDX-License-Identifier: Apache-2.0
"""Two or more results side by side: what differs, what may be compared, what may be pooled.

Arms of the same specification on pools and plans of the same digest are compared, as ratios of
medians, for they were not measured side by side.  Repetitions are pooled only where every fact that
a figure depends on is the same; else the differing facts are named and nothing is pooled.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from pagetier.analysis.counters import number
from pagetier.analysis.derive import Spread
from pagetier.analysis.errors import InputError
from pagetier.analysis.report import formats
from pagetier.analysis.report.arms import Arm, FigureOf, arm_names, arms_of, device_bytes
from pagetier.analysis.report.capacity import shown_seconds
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import Column, Section, Table
from pagetier.analysis.stats import Ratio, median_interval, unpaired_ratio

__all__ = ["Difference", "compare_section", "differences"]

_DIFFERING = (
    Column("fact", "fact"),
    Column("values", "values, in the order of the results"),
    Column("forbids", "so"),
)
_RATIOS = (
    Column("arm", "arm"),
    Column("capacity_bytes", "C", formats.capacity),
    Column("results", "results"),
    Column("n", "n"),
    Column("iteration_s_ratio", "s/it ratio [widest]", formats.ratio),
    Column("device_ratio", "device bytes ratio [widest]", formats.ratio),
)
_POOLED = (
    Column("arm", "arm"),
    Column("capacity_bytes", "C", formats.capacity),
    Column("n", "n"),
    Column("iteration_s", "s/it median [min-max]", formats.spread_of(formats.three_digits)),
    Column("iteration_s_interval", "95% interval"),
    Column("device", "device/it median [min-max]", formats.spread_of(formats.size)),
    Column("device_interval", "95% interval"),
)

# Paths into the host's facts that a time or a byte count depends on.
_HOST_FACTS = (
    ("kernel",),
    ("kernel_version",),
    ("kernel_cmdline",),
    ("machine",),
    ("cpu_model",),
    ("cpus",),
    ("hypervisor",),
    ("clock",),
    ("mem_total_bytes",),
    ("page_bytes",),
    ("swap_total_bytes",),
    ("thp",),
    ("cgroup_memory",),
    ("vm",),
    ("mglru", "available"),
    ("mglru", "enabled"),
    ("mglru", "min_ttl_ms"),
    ("proactive_reclaim",),
    ("device", "name"),
    ("device", "model"),
    ("device", "file_system"),
    ("device", "rotational"),
    ("device", "scheduler"),
    ("device", "read_ahead_kb"),
    ("device", "max_sectors_kb"),
)
_META_FACTS = ("pagetier_version", "plan_sha256")
_NO_PLAN = "nothing is compared: they replay different reads"
_NO_POOL = "not pooled"


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact that is not the same in all results; None where one does not hold it."""

    fact: str
    values: tuple[Any, ...]

    @property
    def forbids(self) -> str:
        return _NO_PLAN if self.fact == "plan_sha256" else _NO_POOL


def differences(studies: Sequence[Study]) -> list[Difference]:
    """Every fact in which the results differ, in a fixed order."""
    found = [
        Difference(fact, tuple(study.results.meta.get(fact) for study in studies))
        for fact in _META_FACTS
    ]
    found += [
        Difference(" ".join(path), tuple(_at(study.results.host, path) for study in studies))
        for path in _HOST_FACTS
    ]
    return [difference for difference in found if len({*map(_text, difference.values)}) > 1]


def _at(host: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = host
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def compare_section(studies: Sequence[Study]) -> Section:
    """What differs; ratios of every later result to every earlier; the pool, if there is one.

    InputError for copies of the same results: pooled, they would be repetitions that were not made.
    """
    _require_distinct(studies)
    found = differences(studies)
    names = [str(study.results.path) for study in studies]
    differing = Table(
        "Facts that differ",
        _DIFFERING,
        tuple((d.fact, "; ".join(map(_shown, d.values)), d.forbids) for d in found),
    )
    prose = (_verdict(found, names),)
    if any(difference.fact == "plan_sha256" for difference in found):
        return _section(prose, [differing])
    shared = _shared(studies)
    if not shared:
        return _section((*prose, "No arm was measured in more than one of them."), [differing])
    tables = [differing, _ratios(studies, names, shared)]
    if not found:
        tables.append(_pooled(studies[0], shared))
    return _section((*prose, _LEGEND), tables)


def _require_distinct(studies: Sequence[Study]) -> None:
    for earlier, later in combinations(studies, 2):
        cells = {(cell.id, cell.started, cell.finished) for cell in earlier.results.cells}
        if any((cell.id, cell.started, cell.finished) in cells for cell in later.results.cells):
            raise InputError(
                f"{later.results.path}: holds cells of {earlier.results.path}: give one of the two"
            )


_LEGEND = (
    "Ratios are later results over earlier ones: of medians, in brackets the widest that least and"
    " greatest values allow; where the two overlap, or n = 1, the comparison is undecided."
)


def _section(prose: tuple[str, ...], tables: list[Table]) -> Section:
    kept = tuple(table for table in tables if table.rows)
    return Section("comparison", "Comparison", prose, kept)


def _verdict(found: list[Difference], names: list[str]) -> str:
    which = " and ".join(names) if len(names) == 2 else ", ".join(names)
    if not found:
        return f"{which}: no fact that a figure depends on differs, so repetitions are pooled."
    facts = ", ".join(difference.fact for difference in found)
    return f"{which} are not pooled, for they differ in: {facts}."


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return _text(value)
    return formats.plain(value)


# ---- arms of several results --------------------------------------------------------------------

_Shared = list[dict[int, Arm]]  # per specification: its arm in each result, by number


def _shared(studies: Sequence[Study]) -> _Shared:
    """Arms that were measured in two results or more, on a pool of the same digest."""
    groups: dict[str, dict[int, Arm]] = {}
    for index, study in enumerate(studies):
        for arm in arms_of(study):
            if arm.n:
                groups.setdefault(_identity(arm), {}).setdefault(index, arm)
    return [group for group in groups.values() if len(group) > 1]


def _identity(arm: Arm) -> str:
    """The specification with the pool's digest for its path; what reclaimed is compared, too."""
    spec = {key: value for key, value in arm.spec.items() if key not in ("repetition", "pool")}
    digests = sorted({str(point.cell.facts.get("pool_sha256")) for point in arm.points})
    return _text([spec, digests, arm.reclaim, number(arm.points[0].cell.facts, "expert_bytes")])


def _ratios(studies: Sequence[Study], names: list[str], shared: _Shared) -> Table:
    name = arm_names((arm for group in shared for arm in group.values()), "capacity_bytes")
    rows = tuple(_ratio_rows(studies, names, shared, name))
    return Table("The same arms in several results", _RATIOS, rows)


def _ratio_rows(
    studies: Sequence[Study], names: list[str], shared: _Shared, name: Any
) -> Iterator[tuple[Any, ...]]:
    for group in shared:
        for earlier, later in combinations(sorted(group), 2):
            above, below = group[later], group[earlier]
            timed = studies[earlier].times_count and studies[later].times_count
            yield (
                name(below),
                below.capacity_bytes,
                f"{names[later]} / {names[earlier]}",
                f"{above.n} / {below.n}",
                _ratio(above, below, shown_seconds(studies[earlier])) if timed else None,
                _ratio(above, below, device_bytes),
            )


def _ratio(above: Arm, below: Arm, figure: FigureOf) -> Ratio | None:
    return unpaired_ratio(above.values(figure), below.values(figure))


def _pooled(study: Study, shared: _Shared) -> Table:
    arms = [
        replace(
            next(iter(group.values())),
            points=tuple(point for index in sorted(group) for point in group[index].points),
        )
        for group in shared
    ]
    name = arm_names(arms, "capacity_bytes")
    rows = tuple(_pooled_row(arm, name(arm), shown_seconds(study)) for arm in arms)
    return Table("Repetitions pooled", _POOLED, rows)


def _pooled_row(arm: Arm, name: str, seconds: FigureOf) -> tuple[Any, ...]:
    times, read = arm.values(seconds), arm.values(device_bytes)
    return (
        name,
        arm.capacity_bytes,
        arm.n,
        Spread.of(times),
        _interval(times, formats.three_digits),
        Spread.of(read),
        _interval(read, formats.size),
    )


def _interval(values: list[float], show: Any) -> str | None:
    """None of too few repetitions."""
    found = median_interval(values)
    return None if found is None else f"{show(found.low)}-{show(found.high)}"
