# SPDX-License-Identifier: Apache-2.0
"""What a worker says of one replay: the JSON form of its counts, arrays as lists or sums."""

from dataclasses import asdict
from typing import Any

import numpy as np

from pagetier.native.passes import HintCounts
from pagetier.native.reader import PassResult

__all__ = ["pass_event"]


def _as_list(array: "np.ndarray[Any, Any] | None") -> list[int] | None:
    return None if array is None else [int(value) for value in array]


def _sum(array: "np.ndarray[Any, Any] | None") -> int | None:
    return None if array is None else int(array.sum())


def _hint_counts(counts: HintCounts | None) -> dict[str, Any] | None:
    if counts is None:
        return None
    failure = counts.first_failure
    sums = {
        name: _sum(getattr(counts, name))
        for name in (
            "submitted",
            "overwritten",
            "completed",
            "failed",
            "hinted_bytes",
            "resident_before_bytes",
            "resident_after_bytes",
            "brought_bytes",
            "raced_bytes",
            "lost_bytes",
            "used_bytes",
            "evicted_bytes",
        )
    }
    return {
        **sums,
        "unused_bytes": counts.unused_bytes,
        "first_failure": None if failure is None else asdict(failure),
        "busy_ns": counts.busy_ns,
        "user_ns": counts.user_ns,
        "system_ns": counts.system_ns,
    }


def pass_event(result: PassResult) -> dict[str, Any]:
    """The ``pass`` event of a replay."""
    buckets = np.flatnonzero(result.latency_histogram)
    return {
        "event": "pass",
        "start_ns": result.start_ns,
        "user_ns": result.user_ns,
        "system_ns": result.system_ns,
        "verified_reads": result.verified_reads,
        "latency_histogram": [[int(b), int(result.latency_histogram[b])] for b in buckets],
        "end_ns": _as_list(result.iteration_end_ns),
        "wall_ns": _as_list(result.iteration_wall_ns),
        "bytes": _as_list(result.iteration_bytes),
        "reads": _as_list(result.iteration_reads),
        "first_bytes": _as_list(result.iteration_first_bytes),
        "repeat_bytes": _as_list(result.iteration_repeat_bytes),
        "resident_bytes": _sum(result.iteration_resident_bytes),
        "aligned_over_read_bytes": _sum(result.iteration_over_read_bytes),
        "arena_reads": _sum(result.iteration_arena_reads),
        "arena_bytes": _sum(result.iteration_arena_bytes),
        # As text: JSON numbers end at 2^53 for many a reader of the results.
        "content_hash": None if result.content_hash is None else f"{result.content_hash:016x}",
        "hints": _hint_counts(result.hints),
    }
