# SPDX-License-Identifier: Apache-2.0
"""MGLRU beside classic LRU under each mechanism: device bytes, locked share, scan to steal.

Scan to steal is an indicator that means another thing under each implementation; it names its
counters and is compared with nothing.
"""

from typing import Any

from pagetier.analysis.derive import CellFacts
from pagetier.analysis.report import formats
from pagetier.analysis.report.arms import (
    Arm,
    arm_names,
    arms_of,
    device_bytes,
    in_extent_amplification,
    nominal_bytes,
    over_read_share,
    ratio_of,
    together,
)
from pagetier.analysis.report.barred import (
    MISSES,
    SPREAD,
    NameOf,
    bar_series,
    mark_series,
    rejected_series,
)
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import Column, Figure, Section, Table

__all__ = ["locked_share", "reclaim_section"]

_COLUMNS = (
    Column("arm", "arm"),
    Column("capacity_bytes", "C", formats.capacity),
    Column("device_mglru", "device/it, MGLRU", formats.spread_of(formats.size)),
    Column("device_classic", "device/it, classic LRU", formats.spread_of(formats.size)),
    Column("ratio", "MGLRU / classic [min-max]", formats.ratio),
    Column("nominal", "misses/it (simulated)", formats.size),
    Column("in_extent", "in-extent amplification, MGLRU / classic"),
    Column("over_read", "over-read, MGLRU / classic"),
    Column("locked_share", "locked", formats.percent),
    Column("scan_to_steal", "scan/steal, MGLRU / classic"),
    Column("counters", "by"),
)


def locked_share(facts: CellFacts) -> float | None:
    """Share of the host's memory that was locked."""
    return facts.locked_share


def reclaim_section(study: Study) -> Section | None:
    """None where nothing was measured under both implementations."""
    pairs = [
        (on, off)
        for group in together(arms_of(study), "reclaim")
        for on in group
        for off in group
        if on.reclaim == "MGLRU" and (off.reclaim or "").startswith("classic")
    ]
    if not pairs:
        return None
    name = arm_names((on for on, _ in pairs), "capacity_bytes", "reclaim")
    return Section(
        key="reclaim",
        title="Reclaim",
        prose=(
            "The same cells under both implementations of reclaim. A ratio judges reclaim by its"
            " in-extent amplification; over-read is readahead. scan/steal is an indicator: MGLRU"
            " counts scans as classic LRU does not.",
        ),
        tables=(
            Table(
                "MGLRU and classic LRU",
                _COLUMNS,
                tuple(_row(on, off, name(on)) for on, off in pairs),
            ),
        ),
        figures=(_figure(pairs, name),),
    )


def _row(on: Arm, off: Arm, name: str) -> tuple[Any, ...]:
    return (
        name,
        on.capacity_bytes,
        on.spread(device_bytes),
        off.spread(device_bytes),
        ratio_of(on, off, device_bytes),
        on.median(nominal_bytes),
        _both(on, off, in_extent_amplification, formats.factor),
        _both(on, off, over_read_share, formats.percent),
        on.median(locked_share),
        f"{_scans(on)} / {_scans(off)}",
        _counters(on),
    )


def _both(on: Arm, off: Arm, figure: Any, show: Any) -> str:
    return f"{show(on.median(figure))} / {show(off.median(figure))}"


def _scans(arm: Arm) -> str:
    value = arm.median(lambda facts: None if facts.reclaim is None else facts.reclaim.scan_to_steal)
    return "n/a" if value is None else f"{value:.2f}"


def _counters(arm: Arm) -> str | None:
    sources = [point.facts.reclaim.source for point in arm.points if point.facts.reclaim]
    return sources[0].partition(" (")[0] if sources else None


def _figure(pairs: list[tuple[Arm, Arm]], name: NameOf) -> Figure:
    on, off = [on for on, _ in pairs], [off for _, off in pairs]
    names = {id(arm): f"{name(on)}, {_limit(on)}" for on, off in pairs for arm in (on, off)}

    def category(arm: Arm) -> str:
        return names[id(arm)]

    return Figure(
        key="reclaim",
        title="Device bytes under MGLRU and classic LRU",
        x="mechanism and C",
        y="device bytes per iteration",
        scale="category",
        series=(
            bar_series("MGLRU (measured)", on, category, device_bytes),
            bar_series("classic LRU (measured)", off, category, device_bytes),
            mark_series(MISSES, on, category, nominal_bytes),
            *rejected_series([*on, *off], category, device_bytes),
        ),
        form="bars",
        note=SPREAD,
    )


def _limit(arm: Arm) -> str:
    return formats.capacity(arm.capacity_bytes)
