# SPDX-License-Identifier: Apache-2.0
"""What the raw numbers of a cell mean: pure arithmetic on a stored cell.

Bytes are of the measured pass.  A figure whose parts were not obtained is None; a ratio with a zero
below is None, never 0 or infinity; differences may be negative and are kept so.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pagetier.analysis.counters import (
    Snapshot,
    delta,
    device_read_bytes,
    number,
    process_read_bytes,
    scope_read_bytes,
    series,
)
from pagetier.analysis.foreign import foreign_of
from pagetier.analysis.hint_counts import Hints
from pagetier.analysis.reclaim import LEAST_STOLEN_PAGES
from pagetier.analysis.results import Cell, Pass

__all__ = [
    "CellFacts",
    "EffectiveCapacity",
    "Ledger",
    "Reclaim",
    "Spread",
    "arena_bytes",
    "derive_cell",
    "effective_capacity",
    "in_extent_bytes",
    "includes_limits",
]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest of `count` values."""

    median: float
    min: float
    max: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        """None of no values."""
        if not values:
            return None
        return cls(statistics.median(values), min(values), max(values), len(values))


@dataclass(frozen=True, slots=True)
class EffectiveCapacity:
    """Time-mean of the file pages that were resident over the measured pass, and by which count."""

    bytes: int | None
    source: str | None


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Pages scanned and reclaimed, and the counters that say so.

    Classic LRU counts pages it looked at, MGLRU those it isolated: ratios of the two are not
    comparable.  `scan_to_steal` is None when less than LEAST_STOLEN_PAGES were reclaimed.
    """

    scan_pages: int | None
    steal_pages: int | None
    source: str

    @property
    def scan_to_steal(self) -> float | None:
        if self.steal_pages is None or self.steal_pages < LEAST_STOLEN_PAGES:
            return None
        return ratio(self.scan_pages, self.steal_pages)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where the device's bytes went: their sum is the device's count.

    first and repeat: absent just before the read that wanted them.  prefetch: absent before a hint
    and there after it.  over_read: the rest of what the replaying process read.  foreign: counted
    of all other processes, else what the device read beyond the scope.  residual: what is left.
    Without a count of others or of the scope, foreign holds the residual, which is then None.
    """

    first: int | None
    repeat: int | None
    over_read: int | None
    prefetch: int | None
    foreign: int | None
    residual: int | None


@dataclass(frozen=True, slots=True)
class CellFacts:
    """Everything a table shows of one cell; see the module for units."""

    iterations: int
    iteration_s: Spread | None
    demand_bytes: int | None
    device_bytes: int | None
    process_bytes: int | None
    scope_bytes: int | None
    first_bytes: int | None
    repeat_bytes: int | None
    in_extent_bytes: int | None
    nominal_miss_bytes: int | None
    effective_miss_bytes: int | None
    effective_capacity: EffectiveCapacity
    amplification: float | None
    in_extent_amplification: float | None
    over_read_bytes: int | None
    over_read_share: float | None
    foreign_bytes: int | None
    foreign_share: float | None
    served_fraction: float | None
    served_arena: float | None
    served_page_cache: float | None
    served_fraction_device: float | None
    accepted_tokens: int | None
    s_per_accepted_token: float | None
    locked_share: float | None
    reclaim: Reclaim | None
    reclaim_counters: tuple[Reclaim, ...]
    hints: Hints | None
    ledger: Ledger

    def per_iteration(self, value: int | None) -> float | None:
        """Mean per iteration of a figure of the whole pass."""
        return ratio(value, self.iterations)


def ratio(part: float | None, whole: float | None) -> float | None:
    """part / whole, None when either is missing or the whole is 0."""
    return None if part is None or not whole else part / whole


def minus(left: int | None, right: int | None) -> int | None:
    """left - right, None when either is missing."""
    return None if left is None or right is None else left - right


def derive_cell(cell: Cell) -> CellFacts:
    """The facts of `cell`; those of a cell without a measured pass are None."""
    measured = cell.passes.get("measured", _NO_PASS)
    demand = _total(measured, lambda row: row.bytes)
    device, process = device_read_bytes(measured), process_read_bytes(measured)
    scope = scope_read_bytes(measured)
    first = _total(measured, lambda row: row.first_bytes)
    repeat = _total(measured, lambda row: row.repeat_bytes)
    in_extent = in_extent_bytes(measured)
    nominal = _miss_bytes(cell, "nominal_miss_bytes", _nominal_misses(cell, measured))
    hints, arena = Hints.of(measured), arena_bytes(measured)
    prefetch = 0 if hints is None else hints.brought_bytes
    over_read, foreign = minus(minus(process, in_extent), prefetch), minus(device, process)
    tokens = number(cell.facts, "accepted_tokens")
    wall_ns = _total(measured, lambda row: row.wall_ns)
    reclaim_counters = _reclaim(measured)
    return CellFacts(
        iterations=len(measured.iterations),
        iteration_s=Spread.of([row.wall_ns / 1e9 for row in measured.iterations]),
        demand_bytes=demand,
        device_bytes=device,
        process_bytes=process,
        scope_bytes=scope,
        first_bytes=first,
        repeat_bytes=repeat,
        in_extent_bytes=in_extent,
        nominal_miss_bytes=nominal,
        effective_miss_bytes=_miss_bytes(
            cell, "effective_miss_bytes", number(cell.facts, "effective_misses")
        ),
        effective_capacity=effective_capacity(measured),
        amplification=ratio(device, nominal),
        in_extent_amplification=ratio(in_extent, nominal),
        over_read_bytes=over_read,
        over_read_share=ratio(over_read, process),
        foreign_bytes=foreign,
        foreign_share=ratio(foreign, device),
        served_fraction=ratio(minus(demand, in_extent), demand),
        served_arena=ratio(arena, demand),
        served_page_cache=ratio(minus(minus(demand, arena), in_extent), demand),
        served_fraction_device=ratio(minus(demand, device), demand),
        accepted_tokens=tokens,
        s_per_accepted_token=None if wall_ns is None else ratio(wall_ns / 1e9, tokens),
        locked_share=ratio(
            number(cell.enforced, "locked_bytes"), number(measured.before, "meminfo", "MemTotal")
        ),
        reclaim=_chosen(cell, reclaim_counters),
        reclaim_counters=reclaim_counters,
        hints=hints,
        ledger=_ledger(first, repeat, over_read, prefetch, measured),
    )


_NO_PASS = Pass(name="measured", before={}, after={}, result={}, iterations=(), samples=())


def _total(replay: Pass, column: Callable[..., int | None]) -> int | None:
    """Sum of a column, None when one of its values is missing or there are none."""
    values = [column(row) for row in replay.iterations]
    known = [value for value in values if value is not None]
    return sum(known) if values and len(known) == len(values) else None


def in_extent_bytes(replay: Pass) -> int | None:
    """Bytes inside the extents asked for that the device had to bring, first and repeat."""
    first = _total(replay, lambda row: row.first_bytes)
    repeat = _total(replay, lambda row: row.repeat_bytes)
    return None if first is None or repeat is None else first + repeat


def _ledger(
    first: int | None,
    repeat: int | None,
    over_read: int | None,
    prefetch: int | None,
    measured: Pass,
) -> Ledger:
    foreign = foreign_of(measured)
    return Ledger(first, repeat, over_read, prefetch, foreign.bytes, foreign.residual)


def arena_bytes(replay: Pass) -> int | None:
    """Bytes that the arena served; 0 of a pass without one."""
    counted = replay.result.get("arena_bytes") is not None
    return number(replay.result, "arena_bytes") if counted else 0


def _nominal_misses(cell: Cell, measured: Pass) -> int | None:
    rows = _total(measured, lambda row: row.nominal_misses)
    return number(cell.facts, "nominal_misses") if rows is None else rows


def _miss_bytes(cell: Cell, known: str, misses: int | None) -> int | None:
    """As it was simulated where the experts' sizes differ, else so many experts."""
    missed_bytes = number(cell.facts, known)
    if missed_bytes is not None:
        return missed_bytes
    expert_bytes = number(cell.facts, "expert_bytes")
    return None if misses is None or expert_bytes is None else misses * expert_bytes


# ---- memory -------------------------------------------------------------------------------------


def effective_capacity(measured: Pass) -> EffectiveCapacity:
    """File bytes of the scope, else of the whole host, averaged over the time of the pass."""
    for source, level in _LEVELS:
        points = [
            (at_ns, value)
            for snapshot in series(measured)
            if (at_ns := number(snapshot, "at_ns")) is not None
            and (value := level(snapshot)) is not None
        ]
        if points:
            return EffectiveCapacity(_time_mean(points), source)
    return EffectiveCapacity(None, None)


def _scope_file_bytes(snapshot: Snapshot) -> int | None:
    return number(snapshot, "scope", "file_bytes")


def _host_file_bytes(snapshot: Snapshot) -> int | None:
    active = number(snapshot, "meminfo", "Active(file)")
    inactive = number(snapshot, "meminfo", "Inactive(file)")
    return None if active is None or inactive is None else active + inactive


_LEVELS = (
    ("file bytes charged to the scope", _scope_file_bytes),
    ("meminfo Active(file) + Inactive(file) of the host", _host_file_bytes),
)


def _time_mean(points: list[tuple[int, int]]) -> int:
    """Mean of straight lines between the points: samples are not evenly spaced under load."""
    points = sorted(points)
    span_ns = points[-1][0] - points[0][0]
    if span_ns == 0:
        return round(statistics.fmean(value for _, value in points))
    area = sum(
        (later_ns - at_ns) * (value + next_value)
        for (at_ns, value), (later_ns, next_value) in pairwise(points)
    )
    return round(area / 2 / span_ns)


# ---- reclaim ------------------------------------------------------------------------------------

_SCOPE_RECLAIM = "memory.stat pgscan/pgsteal of the scope"
_ALL_RECLAIM = "vmstat pgscan_file/pgsteal_file (all reclaim of the host)"
_HOST_RECLAIM = "vmstat pgscan/pgsteal of kswapd + direct (limit reclaim excluded before 2026)"


def includes_limits(reclaim: Reclaim, tested: Mapping[str, bool | None]) -> bool | None:
    """Whether reclaim forced by a cgroup's limit is in it; `tested` is the host's self-test."""
    match reclaim.source:
        case source if source == _SCOPE_RECLAIM:
            return True
        case source if source == _ALL_RECLAIM:
            return tested.get("file")
        case _:
            return tested.get("direct")


def _reclaim(measured: Pass) -> tuple[Reclaim, ...]:
    def grown(*keys: str) -> int | None:
        return delta(measured.before, measured.after, *keys)

    def both(kind: str) -> int | None:
        kswapd, direct = grown("vmstat", f"{kind}_kswapd"), grown("vmstat", f"{kind}_direct")
        return None if kswapd is None or direct is None else kswapd + direct

    return (
        Reclaim(grown("scope", "pgscan_pages"), grown("scope", "pgsteal_pages"), _SCOPE_RECLAIM),
        Reclaim(grown("vmstat", "pgscan_file"), grown("vmstat", "pgsteal_file"), _ALL_RECLAIM),
        Reclaim(both("pgscan"), both("pgsteal"), _HOST_RECLAIM),
    )


def _chosen(cell: Cell, counters: tuple[Reclaim, ...]) -> Reclaim | None:
    """The counters that see the reclaim of this mechanism: a wall's is hidden from kswapd's."""
    wanted = (
        (_SCOPE_RECLAIM, _ALL_RECLAIM) if cell.spec.get("mechanism") == "wall" else (_HOST_RECLAIM,)
    )
    for reclaim in counters:
        if reclaim.source in wanted and reclaim.scan_pages is not None:
            return reclaim
    return None
