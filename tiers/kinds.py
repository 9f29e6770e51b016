# SPDX-License-Identifier: Apache-2.0
"""The tiers by name: what serves a hit, and how a miss is read.

``page-cache``  hits and misses through the page cache, by pread or a mapping.
``arena``       hits from locked memory, misses through what little page cache the budget leaves.
``hybrid``      the same, with the budget divided by a fraction.
``direct``      O_DIRECT: nothing is cached.
``dontcache``   RWF_DONTCACHE (Linux 6.14): read through the page cache, dropped by the kernel.
``drop-behind`` read through the page cache, then POSIX_FADV_DONTNEED.
"""

from dataclasses import dataclass

__all__ = ["TIERS", "Tier"]


@dataclass(frozen=True, slots=True)
class Tier:
    """`mode` is how the reader reads for a tier that leaves no choice of it, else None."""

    name: str
    has_arena: bool
    admits: bool  # whether what was read may stay in the page cache
    mode: str | None


TIERS = {
    tier.name: tier
    for tier in (
        Tier("page-cache", has_arena=False, admits=True, mode=None),
        Tier("arena", has_arena=True, admits=True, mode=None),
        Tier("hybrid", has_arena=True, admits=True, mode=None),
        Tier("direct", has_arena=False, admits=False, mode="direct"),
        Tier("dontcache", has_arena=False, admits=False, mode="dontcache"),
        Tier("drop-behind", has_arena=False, admits=False, mode="drop-behind"),
    )
}
