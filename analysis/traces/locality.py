# SPDX-License-Identifier: Apache-2.0
"""How often, how soon and how widely a trace uses its experts: one pass over its columns a layer.

A position is one record: where a record holds several positions (speculation, a batch) they cannot
be told apart, and count as one.  Temporary memory is a few times the reads of one layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagetier.analysis.traces.columns import Float64, Int64, Trace, widths

__all__ = ["Locality", "failed_passes", "measure", "reuse_by_layer"]

Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Locality:
    """What a trace's reads amount to.

    `counts` has shape (layers, experts); `new_experts` counts, per iteration, the experts that no
    iteration before used; `union_sizes[n]` counts the (iteration, layer) pairs with n distinct
    experts.
    """

    counts: Int64
    new_experts: Int64
    union_sizes: Int64


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """One layer's reads sorted by expert; those of one expert stay in recorded order."""

    expert: npt.NDArray[np.unsignedinteger]
    position: Int64
    width: Int64


def measure(trace: Trace) -> Locality:
    """Counts, first uses and unions of `trace`."""
    layers, experts = trace.header.num_layers, trace.header.num_experts
    lengths = widths(trace.iteration_start)
    iteration = np.repeat(np.arange(len(lengths)), lengths)
    counts = np.zeros((layers, experts), dtype=np.int64)
    new_experts = np.zeros(len(lengths), dtype=np.int64)
    union_sizes = np.zeros(experts + 1, dtype=np.int64)
    for layer, records in enumerate(_records_by_layer(trace)):
        uses = _sorted_layer(trace, records)
        when = iteration[records][uses.position]
        again = _same_as_before(uses.expert)
        counts[layer] = np.bincount(uses.expert, minlength=experts)
        new_experts += np.bincount(when[~again], minlength=len(lengths))
        distinct = ~(again & _same_as_before(when))
        unions = np.bincount(when[distinct], minlength=len(lengths))
        union_sizes += np.bincount(unions[unions > 0], minlength=experts + 1)
    return Locality(counts, new_experts, union_sizes)


def reuse_by_layer(
    trace: Trace, windows: Sequence[int], kept: Bool | None = None
) -> tuple[Float64, Int64]:
    """Sums of the shares of reused experts, shape (windows, layers), and positions per layer.

    The share of a position is that of its experts which any of the n positions before it, of the
    same request and layer, used; only positions with a predecessor count.  `kept` names the
    records that are positions (default: all).
    """
    sums = np.zeros((len(windows), trace.header.num_layers))
    positions = np.zeros(trace.header.num_layers, dtype=np.int64)
    for layer, records in enumerate(_records_by_layer(trace)):
        chain = records if kept is None else records[kept[records]]
        request = trace.request[chain]
        follows = _same_as_before(request)
        positions[layer] = np.count_nonzero(follows)
        uses = _sorted_layer(trace, chain)
        # Positions are numbered on from request to request, so the request is compared as well.
        again = _same_as_before(uses.expert) & _same_as_before(request[uses.position])
        ago = np.diff(uses.position, prepend=0)
        for row, window in enumerate(windows):
            reused = np.bincount(uses.position[again & (ago <= window)], minlength=len(chain))
            sums[row, layer] = np.sum((reused / uses.width)[follows])
    return sums, positions


def failed_passes(trace: Trace) -> Bool:
    """Records after which their step passes their layer once more: the drafts that failed."""
    lengths = widths(trace.iteration_start)
    iteration = np.repeat(np.arange(len(lengths)), lengths)
    place = iteration * trace.header.num_layers + trace.layer
    last = np.zeros(len(lengths) * trace.header.num_layers, dtype=np.int64)
    last[place] = np.arange(len(place))  # of equal places numpy keeps the last
    failed: Bool = last[place] != np.arange(len(place))
    return failed


def _records_by_layer(trace: Trace) -> list[Int64]:
    order = np.argsort(trace.layer, kind="stable")
    ends = np.cumsum(np.bincount(trace.layer, minlength=trace.header.num_layers))
    return np.split(order, ends[:-1])


def _sorted_layer(trace: Trace, records: Int64) -> _Layer:
    starts = trace.record_start.astype(np.int64)
    width = starts[records + 1] - starts[records]
    position = np.repeat(np.arange(len(records)), width)
    ends = np.cumsum(width)
    read = np.repeat(starts[records] - (ends - width), width) + np.arange(len(position))
    expert = trace.experts[read]
    if trace.header.num_experts <= 1 << 16:
        expert = expert.astype(np.uint16)  # numpy sorts 16-bit keys by radix: linear, and stable
    order = np.argsort(expert, kind="stable")
    return _Layer(expert[order], position[order], width)


def _same_as_before(values: npt.NDArray[np.integer]) -> Bool:
    same = np.zeros(len(values), dtype=np.bool_)
    same[1:] = values[1:] == values[:-1]
    return same
