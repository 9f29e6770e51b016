# SPDX-License-Identifier: Apache-2.0
"""Equal memory: how one budget C is divided between spine, arena and page cache.

Everything that a configuration holds to serve reads is charged to C: the locked spine, the arena
with the padding between its experts, and the page cache, which has the rest.  A miss of an arena is
read through the page cache as well, so some of C stays with it even where the arena has the whole
budget: room for the reads in flight, without which reclaim finds nothing to free and the kernel
kills.  Sizes are bytes.  This is the plan; what really holds is read back from the kernel.
"""

import mmap
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagetier.analysis.errors import PagetierError
from pagetier.analysis.units import format_bytes

__all__ = ["Budget", "BudgetError", "divide", "room_in_flight"]

Int64 = NDArray[np.int64]

# native/arena.h: each expert starts on a cache line.
_SLOT_BYTES = 64
# Of each thread: the expert that it reads, and the one before, still on the kernel's pagevecs.
_EXPERTS_IN_FLIGHT = 2


class BudgetError(PagetierError):
    """A budget that cannot be divided as asked; one sentence with the numbers."""


@dataclass(frozen=True, slots=True)
class Budget:
    """`capacity_bytes` None: no limit, and then no arena."""

    capacity_bytes: int | None
    spine_bytes: int
    arena_experts: int
    arena_bytes: int

    @property
    def locked_bytes(self) -> int:
        """What mlock must hold: spine and arena."""
        return self.spine_bytes + self.arena_bytes

    @property
    def page_cache_bytes(self) -> int | None:
        """What is left to the page cache; None without a limit."""
        return None if self.capacity_bytes is None else self.capacity_bytes - self.locked_bytes


def room_in_flight(threads: int, expert_bytes: int) -> int:
    """Page cache that reads in progress need, whatever the arena takes."""
    return _EXPERTS_IN_FLIGHT * threads * _round_up(expert_bytes, mmap.PAGESIZE)


def divide(
    capacity_bytes: int | None,
    *,
    spine_bytes: int,
    fraction: float,
    expert_bytes: int | Int64,
    pool_experts: int,
    threads: int,
) -> Budget:
    """Spine first, then `fraction` of the rest to an arena of whole experts.

    `expert_bytes` is one size, or the sizes in the order in which the arena takes the experts: up
    to the first that does not fit.  The room for reads in flight stays with the page cache;
    BudgetError when there is none.
    """
    spine_bytes = _round_up(spine_bytes, mmap.PAGESIZE)
    if capacity_bytes is None:
        if fraction > 0:
            raise BudgetError(
                "an arena takes its share of a budget, and no limit is none: name a C"
            )
        return Budget(None, spine_bytes, 0, 0)
    spare_bytes = capacity_bytes - spine_bytes
    room_bytes = room_in_flight(threads, int(np.max(expert_bytes)))
    if (fraction > 0 or spine_bytes) and spare_bytes < room_bytes:
        raise BudgetError(
            f"a spine of {format_bytes(spine_bytes)} and an arena would fill C = "
            f"{format_bytes(capacity_bytes)}, and the reads of {threads} threads in flight need "
            f"{format_bytes(room_bytes)} of it: it would end in OOM; raise C, or lower either"
        )
    if fraction == 0:
        return Budget(capacity_bytes, spine_bytes, 0, 0)
    share_bytes = min(int(fraction * spare_bytes), spare_bytes - room_bytes)
    if isinstance(expert_bytes, int):
        experts = min(share_bytes // _round_up(expert_bytes, _SLOT_BYTES), pool_experts)
        return Budget(capacity_bytes, spine_bytes, experts, arena_region(experts, expert_bytes))
    return Budget(capacity_bytes, spine_bytes, *_arena(share_bytes, expert_bytes))


def _arena(share_bytes: int, sizes: Int64) -> tuple[int, int]:
    """How many of the first experts fit, and the bytes of the region that holds them."""
    ends = np.cumsum(-(-sizes // _SLOT_BYTES) * _SLOT_BYTES)
    experts = int(np.searchsorted(ends, share_bytes, "right"))
    return experts, _round_up(int(ends[experts - 1]) if experts else 0, mmap.PAGESIZE)


def arena_region(experts: int, expert_bytes: int) -> int:
    """Bytes of the region that holds so many experts, whole pages."""
    return _round_up(experts * _round_up(expert_bytes, _SLOT_BYTES), mmap.PAGESIZE)


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
