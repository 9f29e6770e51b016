# SPDX-License-Identifier: Apache-2.0
"""Two moments of a host as the figures that the check judges.

Pure: no file is read here.  Counters are the kernel's own, figures are of the interval between two
observations.  What is absent is None; a counter that fell is named and never clamped.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pagetier.analysis.reclaim import SOURCES, Reclaim, reclaim_between

__all__ = ["CgroupSight", "Computed", "Figures", "Observation", "figures_between"]

LEAST_MISS_BYTES = 16 << 20
"""Computed misses below this are a few experts: their ratio to device bytes is chance."""

Counters = Mapping[str, int]
Pressures = Mapping[str, Mapping[str, int | None] | None]


@dataclass(frozen=True, slots=True)
class CgroupSight:
    """The reader's cgroup: counters of memory.stat by their v2 names, limit, pressure totals."""

    name: str
    stat: Counters
    limit_bytes: int | None
    pressure: Mapping[str, int | None] | None


@dataclass(frozen=True, slots=True)
class Computed:
    """An online LRU since it began: misses, how many of them were first touches, its capacity."""

    miss_bytes: int
    first_touch_bytes: int
    reads: int
    capacity_bytes: int


@dataclass(frozen=True, slots=True)
class Observation:
    """One moment.  Counters are as the kernel gives them; `memory` is /proc/meminfo in bytes."""

    at_ns: int
    page_bytes: int
    memory: Counters | None
    vmstat: Counters | None
    pressures: Pressures
    mglru_enabled: bool | None
    device_bytes: int | None = None
    reader_bytes: int | None = None
    cgroup: CgroupSight | None = None
    computed: Computed | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """What one interval shows; None where it could not be seen."""

    seconds: float
    backwards: tuple[str, ...]
    mglru_enabled: bool | None
    unevictable_share: float | None
    available_bytes: int | None
    swap_used_bytes: int | None
    swap_in_bytes: int | None
    by_source: dict[str, Reclaim | None]
    """Of the host, by who reclaimed."""
    host: Reclaim | None
    """Of the host, by all that act on its shortage of memory."""
    limited: Reclaim | None
    """Of the reader's cgroup."""
    limited_by_source: dict[str, Reclaim | None]
    refault_bytes: int | None
    device_bytes: int | None
    reader_bytes: int | None
    miss_bytes: int | None
    first_touch_bytes: int | None
    capacity_bytes: int | None
    stalled: dict[str, float | None]
    """Share of the interval by `memory.some`, `memory.full`, `io.some`, `io.full`."""
    cgroup_limit_bytes: int | None
    cgroup_name: str | None

    @property
    def kswapd(self) -> Reclaim | None:
        """The pair that the paper's ratio is made of."""
        return self.by_source.get("kswapd")

    @property
    def direct(self) -> Reclaim | None:
        """Of tasks that had to wait for memory."""
        return self.by_source.get("direct")

    @property
    def read_bytes(self) -> int | None:
        """The reader's own device bytes where they are known, else the whole device's."""
        return self.device_bytes if self.reader_bytes is None else self.reader_bytes

    @property
    def amplification(self) -> float | None:
        """Device bytes per computed miss byte; None without enough computed misses."""
        if self.read_bytes is None or self.miss_bytes is None:
            return None
        return self.read_bytes / self.miss_bytes if self.miss_bytes >= LEAST_MISS_BYTES else None

    def per_second(self, count: int | None) -> float | None:
        """A count of the interval as a rate."""
        return None if count is None else count / self.seconds


def figures_between(
    before: Observation, after: Observation, includes_limits: bool | None = None
) -> Figures:
    """The interval's figures; `includes_limits` is what the self-test of this kernel found."""
    memory, cgroup = after.memory or {}, after.cgroup
    swap_ins = _grown(before.vmstat or {}, after.vmstat or {}, "pswpin")
    by_source = {source: _by_host(before, after, includes_limits, source) for source in SOURCES}
    return Figures(
        seconds=(after.at_ns - before.at_ns) / 1e9,
        backwards=tuple(_backwards(before, after)),
        mglru_enabled=after.mglru_enabled,
        unevictable_share=_share(memory.get("Unevictable"), memory.get("MemTotal")),
        available_bytes=memory.get("MemAvailable"),
        swap_used_bytes=_difference(memory.get("SwapTotal"), memory.get("SwapFree")),
        swap_in_bytes=_times(swap_ins, after.page_bytes),
        by_source=by_source,
        host=_by_host(before, after, includes_limits, "kswapd", "direct", "khugepaged"),
        limited=_by_cgroup(before, after, "all"),
        limited_by_source={source: _by_cgroup(before, after, source) for source in SOURCES},
        refault_bytes=_times(_refaults(before, after), after.page_bytes),
        device_bytes=_difference(after.device_bytes, before.device_bytes),
        reader_bytes=_difference(after.reader_bytes, before.reader_bytes),
        miss_bytes=_computed(before, after, "miss_bytes"),
        first_touch_bytes=_computed(before, after, "first_touch_bytes"),
        capacity_bytes=None if after.computed is None else after.computed.capacity_bytes,
        stalled=_stalled(before, after),
        cgroup_limit_bytes=None if cgroup is None else cgroup.limit_bytes,
        cgroup_name=None if cgroup is None else cgroup.name,
    )


def _by_host(
    before: Observation, after: Observation, includes_limits: bool | None, *sources: str
) -> Reclaim | None:
    """Reclaim by these sources of the host, without what the reader's own limit forced.

    A limit is enforced by the task that hits it, never by kswapd: only direct reclaim can hold it.
    """
    direct = "direct" in sources
    found = reclaim_between(
        before.vmstat or {},
        after.vmstat or {},
        where="host",
        mglru_enabled=after.mglru_enabled,
        includes_limits=includes_limits if direct else False,
        sources=sources,
    )
    return _without(found, _by_cgroup(before, after, "direct")) if direct else found


def _by_cgroup(before: Observation, after: Observation, source: str) -> Reclaim | None:
    """Reclaim of the reader's cgroup, for its limit or the host's need; v1 does not count it."""
    if before.cgroup is None or after.cgroup is None:
        return None
    return reclaim_between(
        before.cgroup.stat,
        after.cgroup.stat,
        where=after.cgroup.name,
        mglru_enabled=after.mglru_enabled,
        includes_limits=True,
        sources=(source,),
    )


def _without(host: Reclaim | None, limited: Reclaim | None) -> Reclaim | None:
    """On a kernel whose global counters include limit reclaim: what is surely none of it."""
    if host is None or limited is None or host.includes_limits is not True:
        return host
    return replace(
        host,
        where=f"host but for {limited.where}",
        scanned_pages=host.scanned_pages - limited.scanned_pages,
        stolen_pages=host.stolen_pages - limited.stolen_pages,
        includes_limits=False,
    )


def _backwards(before: Observation, after: Observation) -> Iterator[str]:
    if after.at_ns <= before.at_ns:
        yield "the clock"
    for name in ("device_bytes", "reader_bytes"):
        grown = _difference(getattr(after, name), getattr(before, name))
        if grown is not None and grown < 0:
            yield name
    start, end = before.vmstat or {}, after.vmstat or {}
    for name in start:
        if name.startswith(("pgscan", "pgsteal", "workingset_refault", "pswp")):
            grown = _grown(start, end, name)
            if grown is not None and grown < 0:
                yield name


def _refaults(before: Observation, after: Observation) -> int | None:
    """Of the reader's cgroup where there is one, else of the host."""
    name = "workingset_refault_file"
    if before.cgroup is not None and after.cgroup is not None and name in after.cgroup.stat:
        return _grown(before.cgroup.stat, after.cgroup.stat, name)
    return _grown(before.vmstat or {}, after.vmstat or {}, name)


def _computed(before: Observation, after: Observation, field: str) -> int | None:
    if before.computed is None or after.computed is None:
        return None
    grown: int = getattr(after.computed, field) - getattr(before.computed, field)
    return grown


def _stalled(before: Observation, after: Observation) -> dict[str, float | None]:
    shares: dict[str, float | None] = {}
    span_us = (after.at_ns - before.at_ns) / 1e3
    for resource in ("memory", "io"):
        start, end = before.pressures.get(resource), after.pressures.get(resource)
        for kind in ("some", "full"):
            key = f"{kind}_total_us"
            grown = _difference((end or {}).get(key), (start or {}).get(key))
            known = grown is not None and grown >= 0 and span_us > 0
            shares[f"{resource}.{kind}"] = grown / span_us if known and grown is not None else None
    return shares


def _grown(start: Counters, end: Counters, name: str) -> int | None:
    return _difference(end.get(name), start.get(name))


def _difference(larger: int | None, smaller: int | None) -> int | None:
    return None if larger is None or smaller is None else larger - smaller


def _times(count: int | None, factor: int) -> int | None:
    return None if count is None else count * factor


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole
