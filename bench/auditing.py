# SPDX-License-Identifier: Apache-2.0
"""The audit of a cell, from the harness' side: the trace around its measured pass, and the facts.

What the kernel keeps is asked of the page cache by the worker; what it inserted is traced, where
tracefs is there, we are root, and every insertion belongs to a read call (mode pread, no hints).
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from pagetier.analysis.audit import audit_points
from pagetier.analysis.derive import effective_capacity
from pagetier.analysis.pages import extents_of
from pagetier.analysis.plans import Plan
from pagetier.analysis.results import Pass
from pagetier.bench.cells import CellSpec
from pagetier.bench.journal import Journal
from pagetier.bench.kernel.filemap_events import InsertionCounts, Span
from pagetier.bench.tiering import Holding
from pagetier.bench.tracing import Tracing, instance_path, traced, tracefs
from pagetier.cgroups.roots import Roots
from pagetier.native.residency import page_bytes, pages_touched
from pagetier.tiers.kinds import TIERS
from pagetier.tiers.pool import Pool

__all__ = ["audit_facts", "insertions"]

MOUNT = "mount -t tracefs tracefs /sys/kernel/tracing"


@contextlib.contextmanager
def insertions(
    spec: CellSpec, pool: Pool, pid: int, journal: Journal, roots: Roots
) -> Iterator[dict[str, Any]]:
    """A record that is filled at the end of the block: traced figures, or why there are none."""
    found: dict[str, Any] = {"in_extent_bytes": None, "over_read_bytes": None, "problem": None}
    root = tracefs(roots)
    found["problem"] = _obstacle(spec, root is not None)
    if root is None or found["problem"] is not None:
        yield found
        return
    path = instance_path(root, journal.token)
    counts = InsertionCounts(page_bytes(), _spans(pool))
    tracing: Tracing | None = None
    with journal.entry(kind="tracing", path=str(path)):
        try:
            with traced(path, pid, counts) as tracing:
                yield found
        except OSError as error:
            if tracing is not None:
                raise
            found["problem"] = f"{path}: cannot be made or read: {error.strerror}"
            yield found
        else:
            found |= tracing.as_dict()


def _obstacle(spec: CellSpec, mounted: bool) -> str | None:
    if not mounted:
        return f"no tracefs here: as root, {MOUNT}"
    if os.geteuid() != 0:
        return "tracing needs root"
    mode = TIERS[spec.tier].mode or spec.read
    if mode != "pread" or spec.prefetch is not None:
        return "only reads by pread without hints can be told apart by their insertions"
    return None


def _spans(pool: Pool) -> dict[tuple[int, int, int], list[Span]]:
    table = pool.extent_table()
    by_file: dict[int, list[Span]] = {}
    for extents in extents_of(table):
        for file, offset, length in extents:
            by_file.setdefault(file, []).append((offset, length))
    found: dict[tuple[int, int, int], list[Span]] = {}
    for file, spans in by_file.items():
        status = os.stat(table.paths[file])
        key = os.major(status.st_dev), os.minor(status.st_dev), status.st_ino
        found[key] = sorted(spans)
    return found


def audit_facts(
    plan: Plan, spec: CellSpec, pool: Pool, holding: Holding, measured: Pass
) -> dict[str, Any]:
    """What the kernel kept against what an LRU of the effective capacity would have."""
    audit, effective = measured.result.get("audit"), effective_capacity(measured)
    if audit is None:
        return {}
    points = None
    experts = None
    size = pool.size_of_experts
    # An LRU of experts that differ in size is not the first so many of an order.
    if effective.bytes is not None and TIERS[spec.tier].admits and isinstance(size, int):
        experts = effective.bytes // size
        pages = [
            sum(pages_touched(offset, length) for _, offset, length in extents)
            for extents in extents_of(pool.extent_table())
        ]
        sizes = np.array(pages, dtype=np.int64)
        points = audit_points(plan, holding.held, sizes, page_bytes(), experts, audit)
    return {
        "audit": {
            "capacity_experts": experts,
            "points": None if points is None else [asdict(point) for point in points],
        }
    }
