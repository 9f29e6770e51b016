# SPDX-License-Identifier: Apache-2.0
"""Prefill is no decode: it mixes many positions in one pass, and is cut from every trace.

It is known by what the file says of a record, by the number of prompt tokens that the user gives,
or by passes of more positions than speculative decode makes.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.columns import Int64
from pagetier.analysis.traces.importers.iterations import iterations_of, steps_of
from pagetier.analysis.traces.importers.options import ImportOptions
from pagetier.analysis.traces.importers.routes import Routes

__all__ = ["drop_prefill"]

# More passes than this being prefill means that they are none: deeper speculation, or a batch.
_MAX_WIDE_SHARE = 0.25


def drop_prefill(path: Path, routes: Routes, top_k: int, options: ImportOptions) -> Routes:
    """Decode passes only."""
    if routes.prefill is not None and routes.prefill.any():
        routes = _without(routes, routes.prefill, "records of prefill were left out")
    if options.prompt_tokens and len(routes):
        prompt = steps_of(routes) < options.prompt_tokens
        routes = _without(routes, prompt, "records of prompt tokens were left out")
    return _drop_wide(path, routes, top_k, options.positions) if len(routes) else routes


def _without(routes: Routes, left_out: npt.NDArray[np.bool_], what: str) -> Routes:
    count = np.count_nonzero(left_out)
    return routes.take(np.flatnonzero(~left_out)).with_notes(f"{count} {what}")


def _drop_wide(path: Path, routes: Routes, top_k: int, positions: int) -> Routes:
    wide = (
        routes.width > positions * top_k
        if routes.positions is None
        else routes.positions > positions
    )
    if not wide.any():
        return routes
    iteration = iterations_of(routes)
    is_wide = np.bincount(iteration[wide], minlength=int(iteration[-1]) + 1) > 0
    count = int(np.count_nonzero(is_wide))
    if count > max(1, _MAX_WIDE_SHARE * len(is_wide)):
        raise InputError(
            f"{routes.where(int(np.argmax(wide)))}: {count} of {len(is_wide)} passes route more"
            f" than {positions} positions of top-{top_k}: give --positions N for drafts of N - 1"
            " tokens, or record one request at a time"
        )
    note = f"{count} passes of more than {positions} positions were left out as prefill"
    return (
        _split(routes, iteration, is_wide)
        .take(np.flatnonzero(~is_wide[iteration]))
        .with_notes(note)
    )


def _split(routes: Routes, iteration: Int64, is_wide: npt.NDArray[np.bool_]) -> Routes:
    """A new request begins after each prefill."""
    after = np.cumsum(np.diff(is_wide.astype(np.int8), prepend=0) < 0)[iteration]
    pairs = np.stack([routes.request.astype(np.int64), after], axis=1)
    kept = ~is_wide[iteration]
    distinct = np.unique(pairs[kept], axis=0)
    if len(distinct) == len(np.unique(routes.request)):
        return routes
    number = {tuple(pair): index for index, pair in enumerate(distinct.tolist())}
    request = np.array([number.get(tuple(pair), 0) for pair in pairs.tolist()], np.int32)
    names = tuple(f"{routes.names[first]}:{second}" for first, second in distinct.tolist())
    return replace(routes, names=names, request=request)
