# SPDX-License-Identifier: Apache-2.0
"""A trace in memory: one entry per record, as columns."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError

__all__ = [
    "Float64",
    "Int32",
    "Int64",
    "Trace",
    "TraceHeader",
    "Uint32",
    "Uint64",
    "iteration_starts",
    "starts_of",
    "widths",
]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Uint32 = npt.NDArray[np.uint32]
Uint64 = npt.NDArray[np.uint64]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """Line 1 of a trace: the model's routed geometry and where the records come from.

    A trace merged from those of several requests has the places of its `batch`; a wide record of
    it is a union and no speculation, so `accepted` and `positions` count tokens for each step.
    """

    model: str
    num_layers: int
    num_experts: int
    top_k: int
    source: str | None = None
    license: str | None = None
    phase: str | None = None
    domain: str | None = None
    batch: int | None = None
    accepted: tuple[int, ...] | None = None
    positions: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """The records of a trace as columns, one entry per record.

    `request` indexes `requests`.  Record r selected experts[record_start[r]:record_start[r + 1]]
    of its layer, in recorded order.  `sha256` is that of the file's bytes as they lie on disk.
    """

    header: TraceHeader
    requests: tuple[str | int, ...]
    request: Int32
    step: Int32
    layer: Int32
    record_start: Uint64
    experts: Uint32
    weights: Float64 | None
    sha256: str | None

    @property
    def num_records(self) -> int:
        return len(self.request)

    @property
    def num_reads(self) -> int:
        return len(self.experts)

    @property
    def iteration_start(self) -> Uint64:
        """First record of each iteration, one per (request, step), and the end of the last."""
        return iteration_starts(self.request, self.step)

    def first_steps(self, count: int) -> "Trace":
        """The first `count` steps of each request; `sha256` still names the file it came from."""
        if count < 1:
            raise InputError(f"a trace of {count} steps is empty: keep at least 1")
        keep = self.step < count
        width = widths(self.record_start)
        kept_reads = np.repeat(keep, width)
        header = self.header
        return replace(
            self,
            header=replace(
                header,
                accepted=None if header.accepted is None else header.accepted[:count],
                positions=None if header.positions is None else header.positions[:count],
            ),
            request=self.request[keep],
            step=self.step[keep],
            layer=self.layer[keep],
            record_start=starts_of(width[keep]),
            experts=self.experts[kept_reads],
            weights=None if self.weights is None else self.weights[kept_reads],
        )


def widths(starts: Uint64) -> Int64:
    """Length of each item of an array of starts."""
    signed = starts.astype(np.int64)
    return signed[1:] - signed[:-1]


def starts_of(lengths: Int32 | Int64) -> Uint64:
    """The inverse of `widths`: where items of these lengths start, and the end of the last."""
    starts = np.zeros(len(lengths) + 1, dtype=np.uint64)
    np.cumsum(lengths, out=starts[1:], dtype=np.uint64)
    return starts


def iteration_starts(request: Int32, step: Int32) -> Uint64:
    """First record of each (request, step), and the end of the last."""
    changed = (np.diff(request) != 0) | (np.diff(step) != 0)
    return np.concatenate(([0], np.flatnonzero(changed) + 1, [len(request)])).astype(np.uint64)
