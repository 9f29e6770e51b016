# SPDX-License-Identifier: Apache-2.0
"""A measured pass over its iterations: bytes, time, memory and stalls.

x counts iterations, so that a pass reads the same whatever its clock.  Long passes are drawn as
means of equal numbers of iterations.  The device's bytes come from the timeline's samples, straight
between two of them.  Of an emulated clock neither times nor stalls are shown.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagetier.analysis.counters import SECTOR_BYTES, number, series
from pagetier.analysis.report.reading import Point, Study
from pagetier.analysis.report.section import Figure, FigurePoint, Kind, Panel, Series
from pagetier.analysis.results import Iteration, Pass

__all__ = ["Clock", "timeline_figure"]

Float64 = npt.NDArray[np.float64]

MAX_BINS = 100

_BYTES, _TIME, _MEMORY, _STALLS = "bytes", "time", "memory", "stalls"
_PANELS = (
    Panel(_BYTES, "bytes per iteration", "bytes"),
    Panel(_TIME, "time per iteration", "s"),
    Panel(_MEMORY, "memory", "bytes"),
    Panel(_STALLS, "share of time stalled (PSI)", "share"),
)
_LEVELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("memory.current of the scope", ("scope", "current_bytes")),
    ("file pages of the scope", ("scope", "file_bytes")),
    ("MemAvailable of the host", ("meminfo", "MemAvailable")),
)
_PRESSURES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("memory, some (scope)", ("scope", "pressure", "some_total_us")),
    ("memory, full (scope)", ("scope", "pressure", "full_total_us")),
    ("memory, some (host)", ("psi", "memory", "some_total_us")),
    ("io, some (host)", ("psi", "io", "some_total_us")),
)


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """Iterations of a pass in bins of equal numbers: the edges, as iteration and as time."""

    edges: Float64
    edges_ns: Float64
    ends_ns: Float64

    @classmethod
    def of(cls, replay: Pass) -> "Clock | None":
        """None of a pass without iterations."""
        if not replay.iterations:
            return None
        first = replay.iterations[0]
        start_ns = number(replay.result, "start_ns")
        start_ns = first.end_ns - first.wall_ns if start_ns is None else start_ns
        ends_ns = np.array([start_ns, *(row.end_ns for row in replay.iterations)], np.float64)
        count = len(replay.iterations)
        edges = np.unique(np.linspace(0, count, min(count, MAX_BINS) + 1).round())
        return cls(edges, ends_ns[edges.astype(np.int64)], ends_ns)

    @property
    def middles(self) -> Float64:
        """Where a bin is drawn; the first iteration is 1."""
        middles: Float64 = (self.edges[:-1] + self.edges[1:] + 1) / 2
        return middles

    def iteration_at(self, at_ns: Float64) -> Float64:
        """How far the pass was, in iterations, at some times inside of it."""
        at: Float64 = np.interp(at_ns, self.ends_ns, np.arange(len(self.ends_ns))) + 0.5
        return at

    def mean(self, values: Float64) -> Float64:
        """Of values per iteration: the means of the bins."""
        sums = np.concatenate(([0.0], np.cumsum(values)))[self.edges.astype(np.int64)]
        means: Float64 = np.diff(sums) / np.diff(self.edges)
        return means


def timeline_figure(study: Study, point: Point) -> Figure | None:
    """None of a pass without iterations."""
    replay = point.cell.passes["measured"]
    clock = Clock.of(replay)
    if clock is None:
        return None
    lines = [*_bytes(point, replay, clock), *_memory(point, replay, clock)]
    if study.times_count:
        lines += [*_times(replay, clock), *_stalls(replay, clock)]
    binned = len(clock.edges) <= len(replay.iterations)
    return Figure(
        key="timeline",
        title="Timeline",
        x="iteration of the measured pass",
        y="",
        scale="linear",
        series=tuple(line for line in lines if line.points),
        form="timeline",
        note="One cell (n=1)."
        + (f" Each point is the mean of about {_width(clock):.0f} iterations." if binned else ""),
        panels=_PANELS,
    )


def _width(clock: Clock) -> float:
    return float(clock.edges[-1]) / (len(clock.edges) - 1)


def _line(name: str, panel: str, x: Float64, y: Float64, kind: Kind = "measured") -> Series:
    pairs = zip(x.tolist(), y.tolist(), strict=True)
    points = tuple(FigurePoint(at, v, v, v, 1) for at, v in pairs if np.isfinite(v))
    return Series(name, kind, points, panel)


def _column(replay: Pass, value: Callable[[Iteration], float | None]) -> Float64 | None:
    """One value per iteration; None when one of them is missing."""
    values = [value(row) for row in replay.iterations]
    known = [found for found in values if found is not None]
    return np.array(known, np.float64) if len(known) == len(values) else None


def _bytes(point: Point, replay: Pass, clock: Clock) -> Iterator[Series]:
    at_ns, sectors = _samples(replay, ("device", "sectors_read"))
    if len(at_ns) > 1:
        at_edges = np.interp(clock.edges_ns, at_ns, sectors * SECTOR_BYTES)
        per_iteration = np.diff(at_edges) / np.diff(clock.edges)
        yield _line("device", _BYTES, clock.middles, per_iteration)
    inside = _column(replay, _in_extent)
    if inside is not None:
        yield _line("in-extent", _BYTES, clock.middles, clock.mean(inside))
    expert_bytes = number(point.cell.facts, "expert_bytes")
    if expert_bytes is not None and point.nominal_misses is not None and len(point.nominal_misses):
        missed = clock.mean(point.nominal_misses * expert_bytes)
        yield _line("misses of LRU (simulated)", _BYTES, clock.middles, missed, "simulated")


def _in_extent(row: Iteration) -> float | None:
    if row.first_bytes is None or row.repeat_bytes is None:
        return None
    return row.first_bytes + row.repeat_bytes


def _times(replay: Pass, clock: Clock) -> Iterator[Series]:
    walls = _column(replay, lambda row: row.wall_ns / 1e9)
    if walls is not None:
        yield _line("iteration", _TIME, clock.middles, clock.mean(walls))


def _memory(point: Point, replay: Pass, clock: Clock) -> Iterator[Series]:
    levels = _LEVELS[:2] if replay.before.get("scope") else _LEVELS[2:]
    for name, keys in levels:
        at_ns, values = _samples(replay, keys)
        if len(at_ns):
            x, y = _thinned(clock.iteration_at(at_ns), values)
            yield _line(name, _MEMORY, x, y)
    capacity = number(point.cell.spec, "capacity_bytes")
    if capacity is not None:
        ends = np.array([0.5, len(replay.iterations) + 0.5])
        yield _line("C", _MEMORY, ends, np.full(2, float(capacity)), "reference")


def _stalls(replay: Pass, clock: Clock) -> Iterator[Series]:
    for name, keys in _PRESSURES:
        at_ns, total_us = _samples(replay, keys)
        if len(at_ns) < 2:
            continue
        at_ns, total_us = _thinned(at_ns, total_us)
        share = np.diff(total_us) * 1e3 / np.diff(at_ns)
        yield _line(name, _STALLS, clock.iteration_at((at_ns[:-1] + at_ns[1:]) / 2), share)


def _samples(replay: Pass, keys: tuple[str, ...]) -> tuple[Float64, Float64]:
    """Times and values of all snapshots that have the value, one a time."""
    found: dict[int, int] = {}
    for snapshot in series(replay):
        at_ns, value = number(snapshot, "at_ns"), number(snapshot, *keys)
        if at_ns is not None and value is not None:
            found[at_ns] = value
    times = sorted(found)
    return np.array(times, np.float64), np.array([found[at] for at in times], np.float64)


def _thinned(x: Float64, y: Float64) -> tuple[Float64, Float64]:
    """Every so many samples, the first and the last kept."""
    chosen = np.unique(np.linspace(0, len(x) - 1, min(len(x), MAX_BINS + 1)).round().astype(int))
    return x[chosen], y[chosen]
