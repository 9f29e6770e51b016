# SPDX-License-Identifier: Apache-2.0
"""The wall: a cgroup memory limit of C plus headroom, swap forbidden.

The limit counts what the program itself holds as well as the page cache, so a limit of C would
leave less than C for the cache: headroom gives that back.  It is a fixed number of bytes (6 GiB in
the paper) or `auto`, the anonymous and kernel memory that the scope holds when the wall goes up,
never its file pages.  memory.stat is flushed lazily, every 2 s or when enough has changed
(mm/memcontrol.c, FLUSH_TIME), hence the pause before `auto` is read.

Raises CapacityError when the limit cannot bind (an ancestor's is lower) or can only end in OOM.
"""

import mmap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from pagetier.capacity.base import Enforced
from pagetier.capacity.errors import CapacityError
from pagetier.cgroups.errors import CgroupError
from pagetier.cgroups.scope import Events, MemoryState, Scope

__all__ = ["Wall", "WallEnforcement", "wall_limit"]

_SETTLE_S = 2.5


class WallEnforcement:
    """A limit in force, and the scope's events from before it."""

    def __init__(self, enforced: Enforced, scope: Scope, before: Events) -> None:
        self._enforced = enforced
        self._scope = scope
        self._before = before

    @property
    def enforced(self) -> Enforced:
        """Limit and swap limit as read back from the kernel."""
        return self._enforced

    def problems(self) -> list[str]:
        """Scope gone, limit changed, OOM events since the wall went up."""
        if not self._scope.exists():
            return [f"scope {self._scope.name} is gone: something else removed it"]
        try:
            return [*self._limit_problems(), *self._event_problems()]
        except CgroupError as error:
            return [f"scope {self._scope.name} cannot be read any more: {error}"]

    def _limit_problems(self) -> Iterator[str]:
        limits = self._scope.limits()
        for what, asked, found in (
            ("memory", self._enforced.limit_bytes, limits.memory_bytes),
            ("swap", self._enforced.swap_limit_bytes, limits.swap_bytes),
        ):
            if asked != found:
                yield f"{what} limit is {found}, was {asked} when the wall went up"

    def _event_problems(self) -> Iterator[str]:
        now = self._scope.events()
        for what, before, after in (
            ("oom", self._before.oom, now.oom),
            ("oom_kill", self._before.oom_kill, now.oom_kill),
        ):
            if before is not None and after is not None and after != before:
                yield f"{what} went from {before} to {after}: C or headroom is too small"


class Wall:
    """A limit of C + headroom on the scope's memory."""

    name = "wall"

    def __init__(self, headroom: int | Literal["auto"], settle_s: float = _SETTLE_S) -> None:
        if headroom != "auto" and headroom < 0:
            raise CapacityError(f"headroom is {headroom}: give bytes >= 0, or auto")
        self._headroom = headroom
        self._settle_s = settle_s

    @contextmanager
    def enforce(self, capacity_bytes: int | None, scope: Scope | None) -> Iterator[WallEnforcement]:
        """Put the wall up; on exit the limit is taken away from a scope that is still there."""
        if capacity_bytes is None or scope is None:
            raise CapacityError("a wall needs a capacity and a scope to put its limit on")
        state = self._settled_state(scope)
        headroom_bytes = _held_bytes(state) if self._headroom == "auto" else self._headroom
        limit_bytes = wall_limit(capacity_bytes, headroom_bytes, mmap.PAGESIZE)
        ancestor_bytes = scope.ancestor_limit_bytes()
        _check_room(limit_bytes, state, ancestor_bytes, scope)
        before = scope.events()
        scope.set_limit(limit_bytes)
        try:
            limits = scope.limits()
            enforced = Enforced(
                mechanism=self.name,
                capacity_bytes=capacity_bytes,
                headroom_bytes=headroom_bytes,
                limit_bytes=limits.memory_bytes,
                swap_limit_bytes=limits.swap_bytes,
                locked_bytes=None,
                facts=_facts(self._headroom, scope, state, ancestor_bytes),
            )
            yield WallEnforcement(enforced, scope, before)
        finally:
            if scope.exists():
                scope.clear_limit()

    def _settled_state(self, scope: Scope) -> MemoryState:
        if self._headroom == "auto":
            time.sleep(self._settle_s)
        return scope.memory()


def wall_limit(capacity_bytes: int, headroom_bytes: int, page_bytes: int) -> int:
    """C + headroom, rounded up to a page: the kernel rounds a limit down to whole pages."""
    if capacity_bytes <= 0:
        raise CapacityError(f"capacity is {capacity_bytes}: it must be positive")
    return -(-(capacity_bytes + headroom_bytes) // page_bytes) * page_bytes


def _held_bytes(state: MemoryState) -> int:
    """Anonymous and kernel memory; kernel memory that is not counted is not limited either."""
    return state.anon_bytes + (state.kernel_bytes or 0)


def _unreclaimable_bytes(state: MemoryState) -> int:
    """What no reclaim inside the scope can free with swap forbidden."""
    shmem = state.raw.get("total_shmem", state.raw.get("shmem", 0))
    reclaimable_slab = state.raw.get("slab_reclaimable", 0)
    return _held_bytes(state) + shmem - reclaimable_slab


def _check_room(
    limit_bytes: int, state: MemoryState, ancestor_bytes: int | None, scope: Scope
) -> None:
    if ancestor_bytes is not None and ancestor_bytes < limit_bytes:
        raise CapacityError(
            f"a cgroup above {scope.path} is limited to {ancestor_bytes} bytes, under the "
            f"wall's {limit_bytes}: raise that limit or ask for a smaller capacity"
        )
    unreclaimable = _unreclaimable_bytes(state)
    if unreclaimable >= limit_bytes:
        raise CapacityError(
            f"scope {scope.name} already holds {unreclaimable} bytes that cannot be reclaimed, and "
            f"the wall would be {limit_bytes}: raise the capacity or the headroom"
        )


def _facts(
    headroom: int | str, scope: Scope, state: MemoryState, ancestor_bytes: int | None
) -> dict[str, int | str | None]:
    return {
        "headroom_source": "auto" if headroom == "auto" else "fixed",
        "cgroup_version": scope.version,
        "scope_path": str(scope.path),
        "anon_bytes": state.anon_bytes,
        "kernel_bytes": state.kernel_bytes,
        "file_bytes": state.file_bytes,
        "ancestor_limit_bytes": ancestor_bytes,
    }
