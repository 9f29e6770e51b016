# SPDX-License-Identifier: Apache-2.0
"""The facts of a trace beside its counts: the locality of its routing, and its traffic.

`zipf_alpha` is minus the least-squares slope of log count over log rank, over the experts that a
layer used at all; the mean over layers.  `reuse` W_n is the share of a position's experts that any
of the n positions before it used, in its own request and layer, averaged over positions that have
at least one before them; a position is a record, for the positions inside a wider one cannot be
told apart.  `coverage` is the share of all experts that were used at least once.  What a trace
cannot tell is None.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.columns import Float64, Int64, Trace, widths
from pagetier.analysis.traces.info import trace_info
from pagetier.analysis.traces.locality import Locality, failed_passes, measure, reuse_by_layer

__all__ = ["DEFAULT_WINDOWS", "domain_jaccard", "top8_shares", "trace_facts", "zipf_slope"]

ZIPF_METHOD = (
    "minus the least-squares slope of log count over log rank, experts of count 0 left out,"
    " per layer; the mean over layers"
)
REUSE_METHOD = (
    "mean share of a position's experts that the n positions before it, of the same request and"
    " layer, used; one record is one position"
)
HOT_SHARES = (10, 20, 30, 40)
DEFAULT_WINDOWS = (1, 8, 64)
_TOP = 8
_WEIGHT_CHUNK_RECORDS = 1 << 16


def trace_facts(
    trace: Trace, *, reuse: Sequence[int] = DEFAULT_WINDOWS, expert_bytes: int | None = None
) -> dict[str, Any]:
    """Locality and traffic of `trace`: what ``trace info --json`` says beside the counts.

    Bytes need `expert_bytes`; W_n is given for each n of `reuse`.
    """
    windows = sorted(set(reuse))
    if not windows or windows[0] < 1:
        raise InputError(f"reuse windows {list(reuse)}: give whole numbers of 1 or more")
    locality = measure(trace)
    layer_sums, positions = reuse_by_layer(trace, windows)
    slopes = [zipf_slope(layer) for layer in locality.counts]
    top8 = top8_shares(locality.counts)
    return {
        "zipf_alpha": _mean([slope for slope in slopes if slope is not None]),
        "zipf_method": ZIPF_METHOD,
        "reuse": _reuse(windows, layer_sums.sum(axis=1), int(positions.sum())),
        "reuse_method": REUSE_METHOD,
        "reuse_without_failed_passes": _reuse_of_served(trace, windows),
        "top8_share": _spread(top8),
        "coverage": float(np.count_nonzero(locality.counts) / locality.counts.size),
        "coverage_over_time": _coverage_over_time(locality),
        "layer_union": _spread(np.count_nonzero(locality.counts, axis=1)),
        "step_union": _union_sizes(locality.union_sizes),
        "hottest_share": _hot_shares(locality.counts),
        "gate_mass_by_rank": _gate_mass(trace),
        **_traffic(trace, expert_bytes),
        "layers": [
            {
                "layer": layer,
                "reads": int(locality.counts[layer].sum()),
                "experts_used": int(np.count_nonzero(locality.counts[layer])),
                "zipf_alpha": slopes[layer],
                "top8_share": float(top8[layer]),
                "reuse": _reuse(windows, layer_sums[:, layer], int(positions[layer])),
            }
            for layer in range(trace.header.num_layers)
        ],
    }


def zipf_slope(counts: Int64) -> float | None:
    """Minus the slope of log count over log rank; None where fewer than two experts were used."""
    used = np.sort(counts[counts > 0])[::-1]
    if len(used) < 2:
        return None
    rank = np.log(np.arange(1, len(used) + 1))
    rank -= rank.mean()
    return float(-(rank @ np.log(used)) / (rank @ rank))


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def top8_shares(counts: Int64) -> Float64:
    """Share of each layer's reads that go to its eight most used experts."""
    ordered = -np.sort(-counts, axis=1)
    return np.asarray(ordered[:, :_TOP].sum(axis=1) / ordered.sum(axis=1), dtype=np.float64)


def _reuse(windows: Sequence[int], sums: Float64, positions: int) -> dict[str, float | None]:
    return {
        str(window): float(total) / positions if positions else None
        for window, total in zip(windows, sums, strict=True)
    }


def _reuse_of_served(trace: Trace, windows: Sequence[int]) -> dict[str, float | None] | None:
    """Reuse along the passes that were not done again; None where no pass was.

    The second pass of a fallback repeats the routing of its first by construction: as positions
    of their own, both raise W_n without any locality of the router.
    """
    failed = failed_passes(trace)
    if not failed.any():
        return None
    sums, positions = reuse_by_layer(trace, windows, ~failed)
    return _reuse(windows, sums.sum(axis=1), int(positions.sum()))


def _coverage_over_time(locality: Locality) -> list[dict[str, float]]:
    """Coverage after 1, 2, 4, ... iterations and after the last."""
    used = np.cumsum(locality.new_experts)
    points = [1 << power for power in range(len(used).bit_length())]
    return [
        {"iterations": count, "coverage": float(used[count - 1] / locality.counts.size)}
        for count in sorted({*points, len(used)})
    ]


def _spread(values: npt.NDArray[np.integer | np.floating]) -> dict[str, float]:
    return {"mean": values.mean().item(), "min": values.min().item(), "max": values.max().item()}


def _union_sizes(histogram: Int64) -> dict[str, float]:
    """Distinct experts of an iteration and layer: mean and 95th percentile (linear)."""
    ends = np.cumsum(histogram)
    place = (int(ends[-1]) - 1) * 0.95
    low, high = np.searchsorted(ends, [math.floor(place), math.ceil(place)], side="right")
    mean = float(np.arange(len(histogram)) @ histogram) / int(ends[-1])
    return {"mean": mean, "p95": float(low + (high - low) * (place - math.floor(place)))}


def _hot_shares(counts: Int64) -> dict[str, float]:
    """Share of the reads that go to the most used 10, 20, 30, 40 % of all (layer, expert) blocks.

    One minus a share is the miss ratio of a static table of that size, made of the trace itself.
    """
    ordered = np.cumsum(-np.sort(-counts, axis=None))
    blocks = {percent: -(-len(ordered) * percent // 100) for percent in HOT_SHARES}
    return {str(percent): float(ordered[n - 1] / ordered[-1]) for percent, n in blocks.items()}


def _gate_mass(trace: Trace) -> list[float] | None:
    """Mean share of a record's gate weight by rank, largest first, over records of top_k experts.

    Recorded order need not be the order of weight.  None without weights.
    """
    if trace.weights is None:
        return None
    top_k = trace.header.top_k
    plain = np.flatnonzero(widths(trace.record_start) == top_k)
    total, records = np.zeros(top_k), 0
    for first in range(0, len(plain), _WEIGHT_CHUNK_RECORDS):
        start = trace.record_start[plain[first : first + _WEIGHT_CHUNK_RECORDS]].astype(np.int64)
        weights = -np.sort(-trace.weights[start[:, np.newaxis] + np.arange(top_k)], axis=1)
        mass = weights.sum(axis=1)
        total += (weights[mass > 0] / mass[mass > 0, np.newaxis]).sum(axis=0)
        records += int(np.count_nonzero(mass > 0))
    return [float(share) for share in total / records] if records else None


def _traffic(trace: Trace, expert_bytes: int | None) -> dict[str, float | None]:
    counts = trace_info(trace)
    accepted = counts["accepted_tokens"]
    per_token = counts["reads"] / accepted if accepted else None
    if expert_bytes is None:
        return {"reads_per_accepted_token": per_token}
    return {
        "reads_per_accepted_token": per_token,
        "expert_bytes": expert_bytes,
        "bytes_per_iteration": counts["reads_per_iteration"] * expert_bytes,
        "bytes_per_accepted_token": None if per_token is None else per_token * expert_bytes,
    }


def domain_jaccard(traces: Mapping[str, Trace], top: int = 16) -> dict[str, Any]:
    """Overlap of the most used `top` experts a layer, for each pair of named traces.

    |A and B| / |A or B|, per layer, then the mean over layers; of equal counts the lower id leads.
    Two sets of 16 drawn at random from E overlap by about 8 / E.
    """
    shapes = {(t.header.num_layers, t.header.num_experts) for t in traces.values()}
    if len(shapes) > 1:
        found = ", ".join(f"{layers} x {experts}" for layers, experts in sorted(shapes))
        raise InputError(f"the traces have different shapes ({found}): compare one model's traces")
    sets = {name: _top_sets(measure(trace).counts, top) for name, trace in traces.items()}
    pairs = [{"a": a, "b": b, **_overlap(sets[a], sets[b])} for a, b in combinations(sets, 2)]
    return {"top": top, "pairs": pairs}


def _top_sets(counts: Int64, top: int) -> npt.NDArray[np.bool_]:
    hottest = np.argsort(-counts, axis=1, kind="stable")[:, :top]
    member = np.zeros(counts.shape, dtype=np.bool_)
    np.put_along_axis(member, hottest, True, axis=1)
    return member & (counts > 0)


def _overlap(a: npt.NDArray[np.bool_], b: npt.NDArray[np.bool_]) -> dict[str, float]:
    return _spread((a & b).sum(axis=1) / (a | b).sum(axis=1))
