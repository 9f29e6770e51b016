# SPDX-License-Identifier: Apache-2.0
"""Counts of a trace."""

from typing import Any

import numpy as np

from pagetier.analysis.traces.accounting import TYPE_NAMES, Int8, account
from pagetier.analysis.traces.columns import Trace

__all__ = ["trace_info"]


def trace_info(trace: Trace) -> dict[str, Any]:
    """Counts of the trace, in the shape of ``trace info --json``.

    `positions` and `accepted_tokens` are None where no event tag says what speculation did and the
    widths leave it open: a guess would bias every figure that is divided by them.
    """
    accounting = account(trace)
    return {
        "model": trace.header.model,
        "num_layers": trace.header.num_layers,
        "num_experts": trace.header.num_experts,
        "top_k": trace.header.top_k,
        "batch": trace.header.batch,
        "requests": len(trace.requests),
        "iterations": accounting.iterations,
        "positions": accounting.positions,
        "accepted_tokens": accounting.accepted_tokens,
        "iteration_types": _counts(accounting.iteration_type),
        "records": trace.num_records,
        "record_types": _counts(accounting.record_type),
        "reads": trace.num_reads,
        "reads_per_iteration": trace.num_reads / accounting.iterations,
    }


def _counts(types: Int8) -> dict[str, int]:
    counts = np.bincount(types, minlength=len(TYPE_NAMES)).tolist()
    return dict(zip(TYPE_NAMES, counts, strict=True))
