# SPDX-License-Identifier: Apache-2.0
"""Ids of -1: positions whose routes were not recorded, and lists padded to a fixed width."""

from dataclasses import replace

import numpy as np

from pagetier.analysis.traces.importers.iterations import iterations_of
from pagetier.analysis.traces.importers.routes import Routes

__all__ = ["drop_unrecorded"]


def drop_unrecorded(routes: Routes) -> Routes:
    """Without iterations that recorded nothing, and without padding."""
    if not (routes.experts < 0).any():
        return routes
    recorded = routes.experts >= 0
    record = np.repeat(np.arange(len(routes)), routes.width)
    width = np.bincount(record[recorded], minlength=len(routes)).astype(np.int32)
    iteration = iterations_of(routes)
    empty = np.bincount(iteration, weights=width) == 0
    routes = replace(
        routes,
        width=width,
        experts=routes.experts[recorded],
        weights=None if routes.weights is None else routes.weights[recorded],
    )
    if not empty.any():
        return routes
    note = f"{np.count_nonzero(empty)} positions without recorded routes (-1) were left out"
    return routes.take(np.flatnonzero(~empty[iteration])).with_notes(note)
