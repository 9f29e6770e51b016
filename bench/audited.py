# SPDX-License-Identifier: Apache-2.0
"""A replay that stops after chosen iterations to look at what is in the page cache, in the worker.

The pass is replayed in parts by the same reader, so that the cache, and what counts as read before,
go on from part to part; the looking is no part of any iteration's time, but the caches of the CPU
and the readers' pace are not what they would have been: times of such a pass are void.
"""

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pagetier.analysis.pages import extents_of
from pagetier.analysis.plans import Plan, Uint32, Uint64
from pagetier.bench.pass_event import pass_event
from pagetier.native.reader import ExtentTable, Progress, Reader
from pagetier.native.residency import resident_pages

__all__ = ["Hints", "audited_replay"]


@dataclass(frozen=True, slots=True, eq=False)
class Hints:
    """The hints of a plan, as the reader takes them."""

    hint_start: Uint64
    hint_experts: Uint32


def audited_replay(
    reader: Reader,
    table: ExtentTable,
    plan: Plan,
    hints: Hints | None,
    stops: Sequence[int],
    on_progress: Callable[[Progress], None],
) -> dict[str, Any]:
    """The ``pass`` event of the whole plan, with what was resident after each of the iterations
    `stops`, the last of which is the last of the plan.

    A pass with hints has to be replayed in one part: what became of them is counted to its end.
    """
    parts: list[dict[str, Any]] = []
    resident: list[list[int | None]] = []
    done = Progress(0, 0, 0)
    for first, last in itertools.pairwise([0, *(stop + 1 for stop in stops)]):

        def report(now: Progress, before: Progress = done) -> None:
            on_progress(_added(before, now))

        result = reader.replay(_part(plan, first, last), hints=hints, on_progress=report)
        done = _added(done, reader.progress())
        parts.append(pass_event(result))
        resident.append(_resident(table))
    audit = {"iterations": list(stops), "resident_pages": resident}
    return {**_joined(parts), "audit": audit}


def _added(before: Progress, now: Progress) -> Progress:
    return replace(
        now,
        reads=before.reads + now.reads,
        bytes=before.bytes + now.bytes,
        iterations=before.iterations + now.iterations,
    )


def _part(plan: Plan, first: int, last: int) -> Plan:
    """Iterations `first` to before `last`."""
    start, end = int(plan.iteration_start[first]), int(plan.iteration_start[last])
    records = plan.record_start[start : end + 1]
    return Plan(
        experts=np.ascontiguousarray(plan.experts[int(records[0]) : int(records[-1])]),
        record_start=records - records[0],
        iteration_start=plan.iteration_start[first : last + 1] - np.uint64(start),
        num_layers=plan.num_layers,
        num_experts=plan.num_experts,
    )


def _resident(table: ExtentTable) -> list[int | None]:
    """Resident pages of every expert; None where the kernel will not say."""
    pages: list[int | None] = [0] * (len(table.expert_start) - 1)
    by_file: dict[int, list[tuple[int, int, int]]] = {}
    for expert, extents in enumerate(extents_of(table)):
        for file, offset, length in extents:
            by_file.setdefault(file, []).append((expert, offset, length))
    for file, extents_of_file in by_file.items():
        fd = os.open(table.paths[file], os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            for expert, offset, length in extents_of_file:
                found, before = resident_pages(fd, offset, length), pages[expert]
                pages[expert] = None if found is None or before is None else before + found
        finally:
            os.close(fd)
    return pages


_LISTS = ("end_ns", "wall_ns", "bytes", "reads", "first_bytes", "repeat_bytes")
_SUMS = (
    "user_ns",
    "system_ns",
    "verified_reads",
    "resident_bytes",
    "aligned_over_read_bytes",
    "arena_reads",
    "arena_bytes",
)


def _joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One event of several; what one of them does not know is unknown."""
    first = parts[0]
    lists = {
        name: None
        if any(part[name] is None for part in parts)
        else [value for part in parts for value in part[name]]
        for name in _LISTS
    }
    sums = {
        name: None
        if any(part[name] is None for part in parts)
        else sum(part[name] for part in parts)
        for name in _SUMS
    }
    buckets: dict[int, int] = {}
    for part in parts:
        for bucket, count in part["latency_histogram"]:
            buckets[bucket] = buckets.get(bucket, 0) + count
    return {**first, **lists, **sums, "latency_histogram": sorted(map(list, buckets.items()))}
