# SPDX-License-Identifier: Apache-2.0
"""``--repair``: iterations that break a rule are left out, the steps are counted anew, and both are
said.  Nothing is invented."""

from dataclasses import replace

import numpy as np

from pagetier.analysis.traces.columns import Int64, TraceHeader, starts_of
from pagetier.analysis.traces.importers.iterations import iterations_of
from pagetier.analysis.traces.importers.routes import Routes
from pagetier.native.routes import first_repeated

__all__ = ["drop_broken_iterations"]


def drop_broken_iterations(routes: Routes, header: TraceHeader) -> Routes:
    """Only iterations that route every layer, with ids that exist and none twice."""
    iteration = iterations_of(routes)
    iterations = int(iteration[-1]) + 1
    layers = header.num_layers
    in_range = routes.layer < layers
    place = iteration[in_range] * layers + routes.layer[in_range]
    seen = np.bincount(np.unique(place) // layers, minlength=iterations)
    complete = seen == layers
    broken = _broken_records(routes, header)
    complete[iteration[broken]] = False
    kept = np.flatnonzero(complete[iteration])
    # Without recorded steps those that stay are counted anew; their borders have to stay too.
    renumbered = replace(routes, step=iteration.astype(np.int32)).take(kept)
    count = iterations - int(np.count_nonzero(complete))
    if len(kept):
        renumbered = replace(renumbered, step=iterations_of(renumbered).astype(np.int32))
    if not count:
        return renumbered
    first = routes.where(int(np.argmin(complete[iteration])))
    return renumbered.with_notes(
        f"repaired: {count} of {iterations} iterations were left out, the first at {first}"
    )


def _broken_records(routes: Routes, header: TraceHeader) -> Int64:
    width, starts = routes.width, starts_of(routes.width)
    record = np.repeat(np.arange(len(routes)), width)
    unknown = (routes.experts < 0) | (routes.experts >= header.num_experts)
    broken = (width < header.top_k) | (width > header.num_experts)
    broken |= routes.layer >= header.num_layers
    broken[record[unknown]] = True
    experts = routes.experts.view(np.uint32)
    at = 0
    while (read := first_repeated(experts, starts[at:])) is not None:
        at = int(record[read]) + 1
        broken[at - 1] = True
    return np.flatnonzero(broken)
