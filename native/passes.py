# SPDX-License-Identifier: Apache-2.0
"""What one replay of a plan counted.  Times are nanoseconds, sizes bytes; None = not measured."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["HintCounts", "HintFailure", "PassResult", "Progress"]

_SUB_BUCKETS: Final = 32


@dataclass(frozen=True, slots=True)
class Progress:
    """What the replay in progress has completed so far."""

    reads: int
    bytes: int
    iterations: int


@dataclass(frozen=True, slots=True)
class HintFailure:
    """The first hint of a pass that the kernel refused."""

    errno: int
    call: str
    path: str
    offset: int
    expert: int


@dataclass(frozen=True, slots=True)
class HintCounts:
    """What became of the hints of one pass; arrays have one entry per iteration.

    The first group belongs to the iteration of the record whose start submitted the hint, and there
    submitted = overwritten + completed + failed.  Bytes are whole pages of the extents.

    hinted_bytes: asked for, by hints that the worker took.
    resident_before_bytes, resident_after_bytes: of these, in the page cache just before the calls
    for an expert and just after.  A page counts from the moment its read is submitted when asked by
    cachestat; mincore (Linux before 6.5) counts it when it has arrived, and is then too low.
    brought_bytes: absent before a call and there after it: device bytes that no read counts.
    raced_bytes: the same while a read of the expert ran.  That read counts what it had found absent
    as first or repeat; of the rest it is not known.  So what the device read within extents lies
    between first + repeat + brought and that + raced.  A race costs one chunk at most, but of a
    blocking hint what the kernel read ahead, and of a whole one all of it.
    lost_bytes: brought by a hint, unread, and gone when the same expert was hinted again.

    used_bytes, evicted_bytes: in the iteration of the read, of what hints had brought for the
    expert since its read before: still there, or gone (at least used, at most evicted: which of an
    expert's missing pages a hint had brought is not known).  Over a pass
    brought = used + evicted + lost + unused_bytes, the last being never read again.

    All of these byte counts but hinted_bytes are None when residency is off.
    """

    submitted: NDArray[np.int64]
    overwritten: NDArray[np.int64]
    completed: NDArray[np.int64]
    failed: NDArray[np.int64]
    hinted_bytes: NDArray[np.int64]
    resident_before_bytes: NDArray[np.int64] | None
    resident_after_bytes: NDArray[np.int64] | None
    brought_bytes: NDArray[np.int64] | None
    raced_bytes: NDArray[np.int64] | None
    lost_bytes: NDArray[np.int64] | None
    used_bytes: NDArray[np.int64] | None
    evicted_bytes: NDArray[np.int64] | None
    unused_bytes: int | None
    first_failure: HintFailure | None
    busy_ns: int
    user_ns: int
    system_ns: int


@dataclass(frozen=True, slots=True)
class PassResult:
    """One replay of a plan: one entry per iteration, and sums.

    iteration_end_ns: when the iteration's last read, and all before it, had completed.
    iteration_first_bytes, iteration_repeat_bytes: in-extent bytes that the device had to bring, of
    experts that this reader had never read, or had: whole pages absent just before the read; in
    mode "direct" the extents themselves, every time.  Reads from an arena are neither.  None when
    residency is off (never in mode "direct").
    latency_histogram: reads per bucket of latency (32 buckets per octave; the copies alone).
    user_ns, system_ns: CPU time of the reading threads.
    iteration_resident_bytes: whole pages of the extents that were in the page cache just before
    their reads, those from an arena aside; None when residency is off.
    iteration_over_read_bytes: mode "direct" alone: read around extents that do not start and end
    on the device's blocks.  first + repeat + over_read is then what the device was asked for.
    iteration_arena_reads, iteration_arena_bytes: the part of reads and bytes that came from the
    arena; None without one.
    content_hash: sum modulo 2^64, over all reads, of XXH64(bytes, seed = number of the read);
    None when not asked for.
    """

    start_ns: int
    iteration_end_ns: NDArray[np.int64]
    iteration_bytes: NDArray[np.int64]
    iteration_reads: NDArray[np.int64]
    iteration_first_bytes: NDArray[np.int64] | None
    iteration_repeat_bytes: NDArray[np.int64] | None
    latency_histogram: NDArray[np.int64]
    user_ns: int
    system_ns: int
    verified_reads: int
    iteration_resident_bytes: NDArray[np.int64] | None = None
    iteration_over_read_bytes: NDArray[np.int64] | None = None
    iteration_arena_reads: NDArray[np.int64] | None = None
    iteration_arena_bytes: NDArray[np.int64] | None = None
    content_hash: int | None = None
    hints: HintCounts | None = None

    @property
    def iteration_wall_ns(self) -> NDArray[np.int64]:
        """From the end of the iteration before (or the start) to the end of each."""
        return np.diff(self.iteration_end_ns, prepend=np.int64(self.start_ns))

    def latency_quantile_ns(self, q: float) -> float | None:
        """The latency that a share ``q`` of the reads did not exceed, within 1.6 %; None if no
        read was made."""
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"a quantile lies between 0 and 1, not at {q}")
        reads = int(self.latency_histogram.sum())
        if reads == 0:
            return None
        rank = max(1, int(np.ceil(q * reads)))
        return _bucket_middle_ns(int(np.searchsorted(np.cumsum(self.latency_histogram), rank)))


def _bucket_middle_ns(bucket: int) -> float:
    octave = max(0, bucket // _SUB_BUCKETS - 1)
    width = 1 << octave
    return (bucket - octave * _SUB_BUCKETS) * width + (width - 1) / 2
