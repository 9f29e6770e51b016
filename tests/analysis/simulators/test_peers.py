# SPDX-License-Identifier: Apache-2.0
"""Access replay beside libCacheSim, count for count, where both define a policy alike."""

from collections.abc import Callable

import libcachesim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pagetier.analysis.simulators import Budget, Contract, Events, prepare, simulate

Ids = NDArray[np.uint32]
Peer = Callable[[int], "libcachesim.CacheBase"]

# hashpower: its tables of 2^24 entries would take most of the time of a small trace.
PEERS: dict[str, Peer] = {
    "lru": lambda size: libcachesim.LRU(size, hashpower=10),
    "lfu-in-cache": lambda size: libcachesim.LFU(size, hashpower=10),
    "belady-forced": lambda size: libcachesim.Belady(size, hashpower=10),
    "arc": lambda size: libcachesim.ARC(size, hashpower=10),
    "s3-fifo": lambda size: libcachesim.S3FIFO(size, hashpower=10),
    "sieve": lambda size: libcachesim.Sieve(size, hashpower=10),
}
# It admits nothing to a small queue that is no larger than the object.
LEAST_S3FIFO = 20


def peer_misses(policy: str, ids: Ids, experts: int) -> int:
    cache = PEERS[policy](experts)
    position: dict[int, int] = {}
    following = np.full(len(ids), 2**63 - 1, dtype=np.int64)
    for at in range(len(ids) - 1, -1, -1):
        following[at] = position.get(int(ids[at]), 2**63 - 1)
        position[int(ids[at])] = at
    request = libcachesim.Request()
    request.obj_size = 1
    misses = 0
    for number, following_use in zip(ids.tolist(), following.tolist(), strict=True):
        request.obj_id = number
        request.next_access_vtime = following_use
        misses += not cache.get(request)
    return misses


def our_misses(policy: str, ids: Ids, experts: int) -> int:
    starts = np.array([0, len(ids)], dtype=np.uint64)
    one = np.array([0, 1], dtype=np.uint64)
    universe = int(ids.max()) + 1
    events = Events(ids, starts, one, np.zeros(1, dtype=np.int64), 1, universe)
    prepared = prepare(events, Contract("access", scope="global"))
    return simulate(prepared, policy, Budget("experts", experts)).misses


@pytest.mark.parametrize("policy", PEERS)
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**31), skew=st.sampled_from((1, 2, 4)), experts=st.integers(2, 60))
def test_counts_are_equal(policy: str, seed: int, skew: int, experts: int) -> None:
    rng = np.random.default_rng(seed)
    ids = (80 * rng.random(400) ** skew).astype(np.uint32)
    experts = max(experts, LEAST_S3FIFO) if policy == "s3-fifo" else experts
    assert our_misses(policy, ids, experts) == peer_misses(policy, ids, experts)
