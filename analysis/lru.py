# SPDX-License-Identifier: Apache-2.0
"""Misses of an exact LRU cache of whole experts.

One cache for all layers; every read is an access, in recorded order; the cache starts empty and is
carried from pass to pass.  These are the nominal misses that device bytes are compared with.
"""

from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from pagetier.analysis.plans import Plan, per_iteration

__all__ = ["capacity_in_experts", "lru_misses"]


def capacity_in_experts(capacity_bytes: int, expert_bytes: int) -> int:
    """Whole experts of raw bytes that fit into `capacity_bytes`."""
    if expert_bytes < 1 or capacity_bytes < 0:
        raise ValueError(f"capacity {capacity_bytes} B of experts of {expert_bytes} B")
    return capacity_bytes // expert_bytes


def lru_misses(plan: Plan, capacity_experts: int, passes: int = 2) -> npt.NDArray[np.int64]:
    """Misses per iteration in the last of `passes` replays of `plan`."""
    if capacity_experts < 0 or passes < 1:
        raise ValueError(f"capacity {capacity_experts} experts, {passes} passes")
    if capacity_experts == 0:
        return np.diff(plan.read_start)
    experts = plan.experts.tolist()
    cache: OrderedDict[int, None] = OrderedDict()
    for _ in range(passes):
        missed = _replay(experts, cache, capacity_experts)
    return per_iteration(plan, np.frombuffer(missed, dtype=np.bool_))


def _replay(experts: list[int], cache: OrderedDict[int, None], capacity: int) -> bytearray:
    missed = bytearray(len(experts))
    touch, evict = cache.move_to_end, cache.popitem
    room = capacity - len(cache)
    for read, expert in enumerate(experts):
        if expert in cache:
            touch(expert)
            continue
        missed[read] = 1
        if room:
            room -= 1
        else:
            evict(last=False)
        cache[expert] = None
    return missed
