# SPDX-License-Identifier: Apache-2.0
"""Scan and steal of reclaim between two moments, by who did it, and when their ratio says anything.

Counts are base pages.  Who did it: kswapd, direct (an allocation that had to wait), khugepaged and
proactive (memory.reclaim, since 6.15) in /proc/vmstat; the same, or their sum alone, in a cgroup's
memory.stat.  Up to and including the kernels of 2025 the global four skip reclaim that a cgroup's
limit forced; pgscan_file and pgscan_anon include it.  A change of 2026 makes all include it, so
that a self-test says which kernel this is, and without one it is unknown.

Classic reclaim counts pages it looked at, MGLRU those it isolated: a ratio means nothing beside one
of the other implementation, so each carries its label.  Absent is None; nothing is clamped.
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "LEAST_STOLEN_PAGES",
    "LIMIT_RECLAIM_COUNTERS",
    "SOURCES",
    "Reclaim",
    "implementation_of",
    "limit_counters",
    "reclaim_between",
]

SOURCES = ("kswapd", "direct", "khugepaged", "proactive")

LEAST_STOLEN_PAGES = 1024
"""Pages that must be stolen before their ratio is shown.

Reclaim works in batches of 32 (SWAP_CLUSTER_MAX) and kswapd scans a list of 2^12 pages at the
lowest priority (DEF_PRIORITY): below some dozens of batches the ratio is that of a few rounds.
"""

LIMIT_RECLAIM_COUNTERS = ("kswapd", "direct", "file")
"""Pairs of global counters that a self-test looks at: do they move by a cgroup's limit?"""

Counters = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Pages scanned and stolen by some of the sources, and which these are."""

    where: str
    """`host` or the cgroup's name."""
    sources: tuple[str, ...]
    scanned_pages: int
    stolen_pages: int
    implementation: str
    """`mglru`, `classic` or `unknown`."""
    includes_limits: bool | None
    """Whether reclaim forced by a cgroup's limit is in it; None when nobody tested this kernel."""

    @property
    def ratio(self) -> float | None:
        """Scanned per stolen page; None where too little was stolen to say."""
        if self.stolen_pages < LEAST_STOLEN_PAGES:
            return None
        return self.scanned_pages / self.stolen_pages

    @property
    def label(self) -> str:
        """Counters and implementation, as a ratio must name them."""
        counters = " + ".join(self.sources)
        limits = {True: "with", False: "without", None: "perhaps with"}[self.includes_limits]
        return f"{self.where}: {counters}, {self.implementation}, {limits} limit reclaim"


def implementation_of(mglru_enabled: bool | None) -> str:
    """The name of what reclaims; `mglru_enabled` is False too where the kernel has none."""
    return {True: "mglru", False: "classic", None: "unknown"}[mglru_enabled]


def reclaim_between(
    before: Counters,
    after: Counters,
    *,
    where: str,
    mglru_enabled: bool | None,
    includes_limits: bool | None,
    sources: tuple[str, ...] = ("kswapd", "direct"),
) -> Reclaim | None:
    """What `sources` scanned and stole; None when any is absent or a counter went backwards.

    A source that this kernel does not have apart (khugepaged before 6.3) is left out, unless it
    is kswapd or direct; a memory.stat before 6.0 has the sum alone, under the source `all`.
    """
    present = tuple(name for name in sources if _has(before, name) and _has(after, name))
    if not {"kswapd", "direct"}.intersection(sources) <= set(present):
        return None
    if not present:
        return None
    scanned = _grown(before, after, [_scan(name) for name in present])
    stolen = _grown(before, after, [_steal(name) for name in present])
    if scanned is None or stolen is None:
        return None
    implementation = implementation_of(mglru_enabled)
    return Reclaim(where, present, scanned, stolen, implementation, includes_limits)


def _scan(source: str) -> str:
    return "pgscan" if source == "all" else f"pgscan_{source}"


def _steal(source: str) -> str:
    return "pgsteal" if source == "all" else f"pgsteal_{source}"


def _has(counters: Counters, source: str) -> bool:
    return _scan(source) in counters and _steal(source) in counters


def _grown(before: Counters, after: Counters, names: list[str]) -> int | None:
    """Sum of the growth; None when one fell, for then the interval has no meaning."""
    growth = [after[name] - before[name] for name in names]
    return None if min(growth) < 0 else sum(growth)


def limit_counters(
    quiet: tuple[Counters, Counters], walled: tuple[Counters, Counters], stolen_pages: int
) -> dict[str, bool | None]:
    """Which global counters include limit reclaim, by a read that a wall made steal pages.

    `quiet` is an interval of the same length just before, `stolen_pages` what the wall must have
    stolen.  A counter includes it when it grew by at least half of that above the quiet interval,
    and does not when it grew by less than a tenth; between them, or when the host itself stole as
    much while quiet, None: the host was too busy to tell.
    """
    return {
        source: _includes(quiet, walled, _steal(source), stolen_pages)
        for source in LIMIT_RECLAIM_COUNTERS
    }


def _includes(
    quiet: tuple[Counters, Counters], walled: tuple[Counters, Counters], name: str, stolen: int
) -> bool | None:
    if not all(name in counters for counters in (*quiet, *walled)) or stolen < 1:
        return None
    background = quiet[1][name] - quiet[0][name]
    grown = walled[1][name] - walled[0][name]
    if background < 0 or grown < 0 or background > stolen / 10:
        return None
    share = (grown - background) / stolen
    return True if share >= 0.5 else False if share < 0.1 else None
