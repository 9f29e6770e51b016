# SPDX-License-Identifier: Apache-2.0
"""The byte ledger as shown: how each term was obtained, whether the sources agree, per iteration.

own = first + repeat + prefetch + over-read; device = own + foreign + residual.  Bytes; what was not
obtained is None; differences may be negative and are kept so.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pagetier.analysis.counters import (
    SECTOR_BYTES,
    Snapshot,
    delta,
    device_read_bytes,
    number,
    process_read_bytes,
    scope_read_bytes,
    series,
)
from pagetier.analysis.facts import in_extent_bytes, minus
from pagetier.analysis.foreign import foreign_of, host_read_bytes
from pagetier.analysis.hint_counts import Hints
from pagetier.analysis.results import Cell, Pass
from pagetier.analysis.verdict import Limits

__all__ = [
    "Agreement",
    "IterationLedger",
    "Traced",
    "agreements",
    "by_iteration",
    "obtained",
    "refault_bytes",
    "traced",
]

# A count at the end of an iteration lies between the samples around it; where that leaves a larger
# share of the iteration's own growth open, the figure is withheld.
_OPEN_SHARE = 0.05


def obtained(cell: Cell) -> dict[str, str]:
    """By term of the ledger, the way to its figure."""
    measured = cell.passes.get("measured")
    return {
        "first": "residency of each extent just before its read, never read before in this cell",
        "repeat": "residency of each extent just before its read, read before in this cell",
        "over_read": "process read_bytes - first - repeat - prefetch: also what reclaim took from"
        " an extent while it was being read, which an audit tells apart",
        "prefetch": "residency of each extent just before and after its hint, unless it was read"
        " meanwhile: what a hint and a read bring at the same time is in first and repeat, or else"
        " in over_read",
        "foreign": "unknown" if measured is None else foreign_of(measured).how,
        "residual": "device sectors x 512 - process read_bytes - foreign",
    }


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two counts that must tell the same story; `difference_bytes` is left less right.

    A count of more than us is on the right: there only a positive difference is held against it.
    """

    left: str
    right: str
    difference_bytes: int | None
    share: float | None
    limit_bytes: float | None
    ok: bool | None


_COUNTS = {
    "process read_bytes": process_read_bytes,
    "scope io": scope_read_bytes,
    "device sectors x 512": device_read_bytes,
    "host pgpgin": host_read_bytes,
}
_PAIRS = (
    ("process read_bytes", "scope io", False),
    ("process read_bytes", "device sectors x 512", True),
    ("scope io", "device sectors x 512", True),
    ("process read_bytes", "host pgpgin", True),
    ("device sectors x 512", "host pgpgin", True),
)


def agreements(replay: Pass, limits: Limits) -> list[Agreement]:
    """Every pair of sources of a pass, with what the campaign tolerates."""
    counts = {name: count(replay) for name, count in _COUNTS.items()}
    return [_agreement(counts, *pair, limits) for pair in _PAIRS]


def _agreement(
    counts: dict[str, int | None], left: str, right: str, one_sided: bool, limits: Limits
) -> Agreement:
    ours, theirs = counts[left], counts[right]
    if ours is None or theirs is None:
        return Agreement(left, right, None, None, None, None)
    difference, larger = ours - theirs, max(ours, theirs)
    tolerated = limits.tolerated_bytes(limits.disagreement_share, larger)
    ok = difference <= tolerated and (one_sided or difference >= -tolerated)
    share = difference / larger if larger else None
    return Agreement(left, right, difference, share, tolerated, ok)


def refault_bytes(replay: Pass, page_bytes: int | None) -> tuple[int | None, str | None]:
    """A lower bound of what had been in the cache before and was read again, and its source.

    Ordinary misses of a warm replay are refaults, too: no term of the ledger.  A scope whose
    statistics were not flushed yet (each 2 s) loses shadow entries, and with them refaults
    (mm/workingset.c, count_shadow_nodes): seen down to 0 of 65536.
    """
    for source, *path in (
        ("memory.stat workingset_refault_file of the scope", "scope", "refault_file_pages"),
        ("vmstat workingset_refault_file of the host", "vmstat", "workingset_refault_file"),
    ):
        pages = delta(replay.before, replay.after, *path)
        if pages is not None and page_bytes is not None:
            return pages * page_bytes, f"{source} x page size, a lower bound"
    return None, None


@dataclass(frozen=True, slots=True)
class Traced:
    """The insertions of an audited pass, beside what is otherwise got without them.

    taken_while_reading: traced in-extent bytes less first and repeat, which are what was absent
    just before each read: pages that reclaim took from an extent before the read came to them.
    unexplained: process read_bytes less all insertions (blocks of the file system's own).
    """

    in_extent: int | None
    over_read: int | None
    taken_while_reading: int | None
    unexplained: int | None
    problem: str | None


def traced(replay: Pass) -> Traced | None:
    """None of a pass that was not audited."""
    found = replay.result.get("insertions")
    if not isinstance(found, Mapping):
        return None
    inside, outside = number(found, "in_extent_bytes"), number(found, "over_read_bytes")
    return Traced(
        in_extent=inside,
        over_read=outside,
        taken_while_reading=minus(inside, in_extent_bytes(replay)),
        unexplained=minus(minus(process_read_bytes(replay), inside), outside),
        problem=found.get("problem"),
    )


# ---- per iteration ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IterationLedger:
    """A column per term, an entry per iteration; `others` is what the device read for no one of
    us, foreign and residual together.

    first and repeat come from the reader itself.  The rest comes from the timeline: None where its
    samples do not lie close enough to the ends of the iteration.
    """

    first: tuple[int | None, ...]
    repeat: tuple[int | None, ...]
    over_read: tuple[int | None, ...]
    device: tuple[int | None, ...]
    others: tuple[int | None, ...]


def by_iteration(replay: Pass) -> IterationLedger:
    """The ledger of each iteration as far as it is known.

    What hints brought is counted for the pass alone, and over-read is unknown beside it.
    """
    hinted = Hints.of(replay) is not None
    rows = replay.iterations
    ends = [number(replay.result, "start_ns"), *(row.end_ns for row in rows)]
    own = _growth(replay, ends, _process_bytes)
    device = _growth(replay, ends, _device_bytes)
    return IterationLedger(
        first=tuple(row.first_bytes for row in rows),
        repeat=tuple(row.repeat_bytes for row in rows),
        over_read=tuple(
            None
            if hinted or count is None or row.first_bytes is None or row.repeat_bytes is None
            else count - row.first_bytes - row.repeat_bytes
            for count, row in zip(own, rows, strict=True)
        ),
        device=tuple(device),
        others=tuple(
            None if ours is None or all_ is None else all_ - ours
            for ours, all_ in zip(own, device, strict=True)
        ),
    )


_Count = Callable[[Snapshot], int | None]


def _process_bytes(snapshot: Snapshot) -> int | None:
    return number(snapshot, "process", "read_bytes")


def _device_bytes(snapshot: Snapshot) -> int | None:
    sectors = number(snapshot, "device", "sectors_read")
    return None if sectors is None else sectors * SECTOR_BYTES


def _growth(replay: Pass, ends: Sequence[int | None], count: _Count) -> list[int | None]:
    points = sorted(
        (at_ns, value)
        for snapshot in series(replay)
        if (at_ns := number(snapshot, "at_ns")) is not None
        and (value := count(snapshot)) is not None
    )
    bounds = [None if end is None else _around(points, end) for end in ends]
    return [_between(start, end) for start, end in pairwise(bounds)]


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What a counter had reached at some moment: at least, at most, and most likely."""

    least: int
    most: int
    likely: float


def _around(points: Sequence[tuple[int, int]], at_ns: int) -> _Bounds | None:
    """A counter never falls: between two samples it lies between their values."""
    index = bisect_right(points, at_ns, key=lambda point: point[0])
    if index == 0:
        return None
    start_ns, least = points[index - 1]
    if start_ns == at_ns:
        return _Bounds(least, least, least)
    if index == len(points):
        return None
    end_ns, most = points[index]
    part = (at_ns - start_ns) / (end_ns - start_ns)
    return _Bounds(least, most, least + part * (most - least))


def _between(start: _Bounds | None, end: _Bounds | None) -> int | None:
    if start is None or end is None:
        return None
    likely = end.likely - start.likely
    open_bytes = (end.most - end.least) + (start.most - start.least)
    return round(likely) if open_bytes <= _OPEN_SHARE * likely else None
