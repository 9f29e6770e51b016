# SPDX-License-Identifier: Apache-2.0
"""A cell's scope and its mechanism, journaled for as long as they exist.

The capacity of a cell is its whole budget: what the worker has locked before the mechanism starts,
spine and arena, is taken off what is enforced, by the kernel's own count of it.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from pagetier.bench.cells import CellSpec
from pagetier.bench.shared import Bench
from pagetier.capacity.balloon import Balloon, BalloonEnforcement
from pagetier.capacity.base import Enforced, Enforcement, Mechanism
from pagetier.capacity.boot import Boot
from pagetier.capacity.none import Unlimited
from pagetier.capacity.wall import Wall
from pagetier.cgroups.scope import Scope, open_scope

__all__ = ["balloon_pids", "charged", "enforced", "opened_scope"]


@contextlib.contextmanager
def opened_scope(bench: Bench) -> Iterator[Scope | None]:
    """A scope of the cell's own, even without a limit: it tells the worker's pages apart."""
    if bench.support.base is None:  # the preflight has refused every mechanism that needs one
        yield None
        return
    scope = open_scope(bench.support, bench.journal.next_scope_name())
    with bench.journal.entry(kind="scope", paths=[str(path) for path in scope.directories()]):
        scope.create()
        try:
            yield scope
        finally:
            scope.remove()


@contextlib.contextmanager
def enforced(
    bench: Bench, spec: CellSpec, scope: Scope | None, locked_bytes: int | None
) -> Iterator[Enforcement]:
    """The mechanism of a cell in force, beside what its worker has locked."""
    capacity_bytes = _left_to_enforce(spec, locked_bytes or 0)
    with _mechanism(bench, spec).enforce(capacity_bytes, scope) as enforcement:
        if not isinstance(enforcement, BalloonEnforcement):
            yield enforcement
            return
        process = enforcement.process
        with bench.journal.entry(kind="balloon", pid=process.pid, start_ticks=process.start_ticks):
            yield enforcement


def _left_to_enforce(spec: CellSpec, locked_bytes: int) -> int | None:
    """What a mechanism has to leave beside what the worker holds already.

    Spine and arena belong to C, and both an automatic headroom and MemAvailable count them as the
    program's own: C less them is left, so that together they are C.  A fixed headroom knows nothing
    of them.
    """
    if spec.capacity_bytes is None or (spec.mechanism == "wall" and spec.headroom != "auto"):
        return spec.capacity_bytes
    return spec.capacity_bytes - locked_bytes


def charged(spec: CellSpec, enforced: Enforced, locked_bytes: int | None) -> Enforced:
    """The same limit seen from the whole budget: spine and arena are no headroom."""
    headroom_bytes = enforced.headroom_bytes
    if headroom_bytes is not None and spec.headroom == "auto":
        headroom_bytes -= locked_bytes or 0
    return replace(enforced, capacity_bytes=spec.capacity_bytes, headroom_bytes=headroom_bytes)


def balloon_pids(enforcement: Enforcement) -> set[int]:
    """The process of a balloon; no other mechanism has one."""
    return {enforcement.process.pid} if isinstance(enforcement, BalloonEnforcement) else set()


def _mechanism(bench: Bench, spec: CellSpec) -> Mechanism:
    match spec.mechanism:
        case "wall":
            return Wall(headroom=spec.headroom)
        case "balloon":
            return Balloon(
                bench.roots,
                floor_bytes=bench.balloon_floor_bytes,
                order=spec.balloon_order or "touch-lock",
                huge_pages=spec.balloon_huge_pages or "off",
            )
        case "boot":
            return Boot(bench.roots)
        case _:
            return Unlimited()
