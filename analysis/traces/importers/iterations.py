# SPDX-License-Identifier: Apache-2.0
"""Which records belong together: one pass of the engine over all layers, and its repetitions.

Where steps or positions are recorded they say it.  Else the order of the layers does: an iteration
ends where the layer falls.  A layer that comes twice in a row is a failed speculation and its
fallback; a fallback that passes all layers a second time looks like an iteration of its own, which
only a recorded step could tell apart.
"""

import numpy as np

from pagetier.analysis.traces.columns import Int32, Int64
from pagetier.analysis.traces.importers.routes import Routes

__all__ = ["iterations_of", "steps_of"]


def iterations_of(routes: Routes) -> Int64:
    """The iteration of each record, counted through the file."""
    begins = np.empty(len(routes), np.bool_)
    begins[:1] = False
    np.not_equal(routes.request[1:], routes.request[:-1], out=begins[1:])
    if routes.step is None:
        begins[1:] |= routes.layer[1:] < routes.layer[:-1]
    else:
        begins[1:] |= routes.step[1:] != routes.step[:-1]
    return np.cumsum(begins)


def steps_of(routes: Routes) -> Int32:
    """The step of each record in its request, from 0; gaps in recorded steps stay gaps."""
    steps = iterations_of(routes) if routes.step is None else routes.step
    begins = np.flatnonzero(np.diff(routes.request, prepend=routes.request[0] - 1))
    lengths = np.diff(begins, append=len(routes))
    shifted: Int32 = (steps - np.repeat(steps[begins], lengths)).astype(np.int32)
    return shifted
