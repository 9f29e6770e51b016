# SPDX-License-Identifier: Apache-2.0
"""A control: the same events in another order.

Unions, capacities and so the regime stay exactly what they were; only when an expert is used again
changes.  No scheduler could serve it.
"""

from dataclasses import replace

import numpy as np

from pagetier.analysis.studies.batching import Workload
from pagetier.analysis.traces import widths
from pagetier.analysis.traces.columns import starts_of

__all__ = ["permuted"]


def permuted(workload: Workload, seed: int) -> Workload:
    """All events of `workload` in a random order drawn from `seed`; each keeps its layer.

    Iterations keep their lengths but no longer their meaning, so a replay of the result is to be
    scored as a whole; its totals are those of `workload`.
    """
    events = workload.events
    width = widths(events.event_start)
    order = np.random.default_rng(seed).permutation(len(width))
    # A read moves with its event.
    starts = events.event_start[:-1].astype(np.int64)
    moved = starts_of(width[order]).astype(np.int64)
    source = np.repeat(starts[order] - moved[:-1], width[order]) + np.arange(len(events.experts))
    return replace(
        workload,
        events=replace(events, experts=events.experts[source], event_start=starts_of(width[order])),
    )
