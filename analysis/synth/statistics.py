# SPDX-License-Identifier: Apache-2.0
"""The published locality statistics, measured on traces.

Reuse is published over "the previous n tokens".  With speculation a trace holds passes, of two
tokens each or of one once more.  So reuse is measured on the accepted tokens themselves
(`accepted_`) where they are at hand, on the passes as issued, and (`served_`) without those that
were done again.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pagetier.analysis.traces import Trace
from pagetier.analysis.traces.facts import domain_jaccard, top8_shares, zipf_slope
from pagetier.analysis.traces.locality import failed_passes, measure, reuse_by_layer

__all__ = ["domain_statistics", "model_statistics"]

WINDOWS = (1, 8, 64)


def domain_statistics(trace: Trace, accepted: Trace | None = None) -> dict[str, float]:
    """Statistics of one domain's trace, by name; `accepted` has its accepted tokens alone."""
    counts = measure(trace).counts
    slopes = [slope for layer in counts if (slope := zipf_slope(layer)) is not None]
    shares = top8_shares(counts)
    failed = failed_passes(trace)
    served = _reuse(trace, ~failed, "served_reuse") if failed.any() else {}
    of_tokens = {} if accepted is None else _reuse(accepted, None, "accepted_reuse")
    return {
        "zipf_alpha": float(np.mean(slopes)),
        **_reuse(trace, None, "reuse"),
        **served,
        **of_tokens,
        "top8_share": float(shares.mean()),
        "top8_first_layer": float(shares[0]),
        "top8_highest_layer": float(shares.max()),
        "top8_last_layer": float(shares[-1]),
        "coverage": float(np.count_nonzero(counts) / counts.size),
        "reads_per_iteration": trace.num_reads / (len(trace.iteration_start) - 1),
    }


def _reuse(trace: Trace, kept: npt.NDArray[np.bool_] | None, name: str) -> dict[str, float]:
    sums, positions = reuse_by_layer(trace, WINDOWS, kept)
    shares = sums.sum(axis=1) / positions.sum()
    return {f"{name}_{n}": float(share) for n, share in zip(WINDOWS, shares, strict=True)}


def model_statistics(traces: Mapping[str, Trace], top: int) -> dict[str, float]:
    """Statistics that need several domains of one model: overlap and union, by name."""
    overlaps = [pair["mean"] for pair in domain_jaccard(traces, top)["pairs"]]
    used = sum(measure(trace).counts for trace in traces.values())
    union = np.count_nonzero(used, axis=1)
    return {
        "jaccard_lowest": min(overlaps),
        "jaccard_highest": max(overlaps),
        "union_narrowest_layer": float(union.min()),
        "union_widest_layer": float(union.max()),
    }
