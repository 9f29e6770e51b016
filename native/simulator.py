# SPDX-License-Identifier: Apache-2.0
"""Exact replays of cache policies in C, the GIL free; sim.h says what each policy keeps.

Arrays that do not fit together raise ValueError; positions are kept in 32 bits, so a stream holds
fewer than 2^32 - 1 accesses.
"""

import errno
import os
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from pagetier.native._core import ffi, lib

__all__ = ["NativePolicy", "Stream", "belady_distances", "lru_distances", "run"]

NativePolicy = Literal[
    "lru",
    "lfu",
    "lfu-in-cache",
    "lfru",
    "least-stale",
    "belady",
    "belady-forced",
    "arc",
    "s3-fifo",
    "sieve",
]

Uint8 = npt.NDArray[np.uint8]
Uint32 = npt.NDArray[np.uint32]
Uint64 = npt.NDArray[np.uint64]

# The order of the numbers in sim.h.
_NUMBERS: Final = {name: number for number, name in enumerate(get_args(NativePolicy))}


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Accesses in groups in parts: part p is groups part_start[p] to part_start[p + 1], and group g
    is accesses group_start[g] to group_start[g + 1], distinct and in ascending order of rank.

    Without `group_start` every access is a group of its own: access replay instead of event-atomic
    replay.  The other optional arrays: what ages are counted in, the generations of Least-Stale,
    the size of every object (1), and what settles ties (the object's number).
    """

    objects: Uint32
    part_start: Uint64
    num_objects: int
    group_start: Uint64 | None = None
    group_time: Uint32 | None = None
    group_cycle: Uint32 | None = None
    object_size: Uint64 | None = None
    object_rank: Uint32 | None = None

    @property
    def num_groups(self) -> int:
        return len(self.objects) if self.group_start is None else len(self.group_start) - 1

    def with_sizes(self, object_size: Uint64) -> "Stream":
        """The same accesses of objects of these sizes."""
        return replace(self, object_size=object_size)


def run(policy: NativePolicy, stream: Stream, capacity: Uint64) -> Uint8:
    """1 for every access that hits, with a cold cache of `capacity[p]` for every part p."""
    if len(capacity) != len(stream.part_start) - 1:
        raise ValueError(f"{len(capacity)} capacities for {len(stream.part_start) - 1} parts")
    hit = np.empty(len(stream.objects), dtype=np.uint8)
    view = _View(stream, capacity)
    into = ffi.from_buffer("uint8_t[]", hit, require_writable=True)
    _checked(lib.pt_sim_run(_NUMBERS[policy], view.stream, into))
    return hit


def lru_distances(stream: Stream) -> Uint32:
    """The least capacity in objects at which each access hits under LRU; 0 where none does."""
    distance = np.empty(len(stream.objects), dtype=np.uint32)
    view = _View(stream, None)
    into = ffi.from_buffer("uint32_t[]", distance, require_writable=True)
    _checked(lib.pt_sim_lru_distances(view.stream, into))
    return distance


def belady_distances(stream: Stream) -> Uint32:
    """The least capacity in objects at which each access hits under Belady with bypass, or 0."""
    distance = np.empty(len(stream.objects), dtype=np.uint32)
    view = _View(stream, None)
    into = ffi.from_buffer("uint32_t[]", distance, require_writable=True)
    _checked(lib.pt_sim_belady_distances(view.stream, into))
    return distance


class _View:
    """A Stream as C reads it; keeps alive what C points to."""

    def __init__(self, stream: Stream, capacity: Uint64 | None) -> None:
        num_groups, num_objects = stream.num_groups, stream.num_objects
        if not 0 <= num_objects < 2**32 - 1 or not len(stream.part_start):
            raise ValueError(f"{num_objects} objects, {len(stream.part_start)} starts of parts")
        self.stream = ffi.new("struct pt_sim_stream *")
        self._kept: list[object] = []
        self.stream.objects = self._pointer("uint32_t[]", stream.objects, None)
        self.stream.part_start = self._pointer("uint64_t[]", stream.part_start, None)
        self.stream.capacity = self._pointer("uint64_t[]", capacity, None)
        self.stream.group_start = self._pointer("uint64_t[]", stream.group_start, num_groups + 1)
        self.stream.group_time = self._pointer("uint32_t[]", stream.group_time, num_groups)
        self.stream.group_cycle = self._pointer("uint32_t[]", stream.group_cycle, num_groups)
        self.stream.object_size = self._pointer("uint64_t[]", stream.object_size, num_objects)
        self.stream.object_rank = self._pointer("uint32_t[]", stream.object_rank, num_objects)
        self.stream.num_accesses = len(stream.objects)
        self.stream.num_parts = len(stream.part_start) - 1
        self.stream.num_objects = num_objects
        if int(stream.part_start[-1]) != num_groups:
            raise ValueError(f"the parts end at group {stream.part_start[-1]} of {num_groups}")

    def _pointer(self, kind: str, array: Uint32 | Uint64 | None, length: int | None) -> object:
        if array is None:
            return ffi.NULL
        dtype = np.uint32 if kind == "uint32_t[]" else np.uint64
        if array.dtype != dtype or array.ndim != 1 or length not in (None, len(array)):
            raise ValueError(
                f"an array of {length} {dtype.__name__} is not {array.shape} {array.dtype}"
            )
        pointer = ffi.from_buffer(kind, np.ascontiguousarray(array))
        self._kept.append(pointer)
        return pointer


def _checked(result: int) -> None:
    if result == -errno.ENOMEM:
        raise MemoryError("no memory for the simulated cache")
    if result != 0:
        raise ValueError(f"not a stream of the simulator: {os.strerror(-result)}")
