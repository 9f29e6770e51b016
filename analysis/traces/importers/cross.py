# SPDX-License-Identifier: Apache-2.0
"""Iterations that no decode made, known only by looking at several of them.

- A scheduler's dry run: the first step of every request is the same, bit by bit.  Requests differ,
  so a routing that does not depend on them came from none of them.
- Warm-up with dummy tokens: a trace that begins with the same iteration again and again.
"""

import numpy as np
import numpy.typing as npt

from pagetier.analysis.traces.columns import Trace
from pagetier.analysis.traces.importers.subset import take_iterations

__all__ = ["drop_synthetic"]

# Greedy decode repeats tokens, but not all routes of every layer dozens of times on end.
_DUMMY_RUN = 64


def drop_synthetic(trace: Trace) -> tuple[Trace, tuple[str, ...]]:
    """Without dummy iterations and dry runs, and what was left out."""
    notes = []
    dummies = _dummy_run(trace)
    if dummies:
        iterations = len(trace.iteration_start) - 1
        trace = take_iterations(trace, np.arange(dummies, iterations))
        notes.append(f"{dummies} identical iterations at the start were left out as warm-up")
    if _has_dry_run(trace):
        first = _first_of_requests(trace)
        trace = take_iterations(trace, np.flatnonzero(~first))
        notes.append(
            f"the first step of all {np.count_nonzero(first)} requests was bit-identical, a"
            " scheduler's dry run, and was left out"
        )
    return trace, tuple(notes)


def _first_of_requests(trace: Trace) -> npt.NDArray[np.bool_]:
    request = trace.request[trace.iteration_start[:-1].astype(np.int64)]
    first: npt.NDArray[np.bool_] = np.diff(request, prepend=-1) != 0
    return first


def _has_dry_run(trace: Trace) -> bool:
    first = _first_of_requests(trace)
    requests = int(np.count_nonzero(first))
    # A request of that step alone would vanish: what is left has to be a trace.
    lengths = np.diff(np.append(np.flatnonzero(first), len(first)))
    if requests < 2 or lengths.min() < 2:
        return False
    return len({_content(trace, int(index)) for index in np.flatnonzero(first)}) == 1


def _dummy_run(trace: Trace) -> int:
    """How many iterations at the start are one and the same; 0 when they are few, or all."""
    iterations = len(trace.iteration_start) - 1
    first = _content(trace, 0)
    run = 1
    while run < iterations and _content(trace, run) == first:
        run += 1
    return run if _DUMMY_RUN <= run < iterations else 0


def _content(trace: Trace, iteration: int) -> bytes:
    """Layers, widths and ids of an iteration."""
    first, last = trace.iteration_start[iteration : iteration + 2].astype(np.int64)
    starts = trace.record_start[first : last + 1].astype(np.int64)
    parts = (trace.layer[first:last], np.diff(starts), trace.experts[starts[0] : starts[-1]])
    return b"".join(part.tobytes() for part in parts)
