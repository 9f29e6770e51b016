# SPDX-License-Identifier: Apache-2.0
"""What each record and iteration of a trace was: normal, or speculation that held or failed.

A trace carries no event tags; the types follow from widths and from layers routed twice.

- A record is `spec-fallback` where its iteration routes its layer more than once, else
  `spec-accept` where it is wider than k, else `normal`.
- An iteration is `spec-fallback` when a layer of it is routed twice, else `spec-accept` when a
  record of it is wider than k, else `normal`.
- A pass (the first routing of each layer, the second, ...) of an iteration routed as many positions
  as its widest record needs.  A wide record may be a set, so its width only says how many positions
  it had at least.  With at most 2 positions a pass, which is what widths up to 2k throughout the
  trace mean, that is exact; beyond, it is exact only if every width is a multiple of k.  Else
  positions and accepted tokens are None: they cannot be told.
- Accepted tokens: 1 of a normal iteration, all positions of an accepted one, 1 of a failed draft of
  one token.  What a longer draft that failed had accepted before it failed cannot be told.
- In a merged trace a wide record is a union and a repeated layer another request's: all records are
  `normal` and the header has the counts.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagetier.analysis.traces.columns import Int64, Trace, widths

__all__ = ["ACCEPT", "FALLBACK", "NORMAL", "TYPE_NAMES", "Accounting", "account", "occurrence"]

NORMAL, ACCEPT, FALLBACK = range(3)
TYPE_NAMES = ("normal", "spec-accept", "spec-fallback")

Int8 = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True, eq=False)
class Accounting:
    """The three denominators, per iteration; None where the trace does not say.

    Types are NORMAL, ACCEPT and FALLBACK, the places of their names in TYPE_NAMES.
    """

    record_type: Int8
    iteration_type: Int8
    positions_of_iteration: Int64 | None
    accepted_of_iteration: Int64 | None

    @property
    def iterations(self) -> int:
        return len(self.iteration_type)

    @property
    def positions(self) -> int | None:
        """Token positions that were routed, those of failed drafts and of their reruns included."""
        return _sum(self.positions_of_iteration)

    @property
    def accepted_tokens(self) -> int | None:
        """Tokens that were served."""
        return _sum(self.accepted_of_iteration)


def _sum(values: Int64 | None) -> int | None:
    return None if values is None else int(values.sum())


def account(trace: Trace) -> Accounting:
    """Type every record and iteration of `trace` and count its positions and accepted tokens."""
    if trace.header.batch is not None:
        return _merged(trace)
    iteration_records = widths(trace.iteration_start)
    iterations = len(iteration_records)
    iteration = np.repeat(np.arange(iterations), iteration_records)
    place = iteration * trace.header.num_layers + trace.layer
    repeated = np.bincount(place)[place] > 1
    wide = widths(trace.record_start) > trace.header.top_k
    record_type = np.where(repeated, FALLBACK, np.where(wide, ACCEPT, NORMAL)).astype(np.int8)
    # The types are ranked: the highest of its records is the iteration's.
    iteration_type = np.zeros(iterations, np.int8)
    np.maximum.at(iteration_type, iteration, record_type)
    positions = _positions(trace, iteration, place)
    return Accounting(
        record_type=record_type,
        iteration_type=iteration_type,
        positions_of_iteration=None if positions is None else positions.sum(axis=1),
        accepted_of_iteration=None if positions is None else _accepted(iteration_type, positions),
    )


def _merged(trace: Trace) -> Accounting:
    header = trace.header
    return Accounting(
        record_type=np.zeros(trace.num_records, np.int8),
        iteration_type=np.zeros(len(trace.iteration_start) - 1, np.int8),
        positions_of_iteration=_as_array(header.positions),
        accepted_of_iteration=_as_array(header.accepted),
    )


def _as_array(counts: tuple[int, ...] | None) -> Int64 | None:
    return None if counts is None else np.array(counts, np.int64)


def _positions(trace: Trace, iteration: Int64, place: Int64) -> Int64 | None:
    """Positions of each pass of each iteration, by iteration and pass; 0 where there is no pass."""
    top_k = trace.header.top_k
    width = widths(trace.record_start)
    if width.max() > 2 * top_k and (width % top_k).any():
        return None
    pass_number = occurrence(place)
    positions = np.zeros((int(iteration[-1]) + 1, int(pass_number.max()) + 1), np.int64)
    np.maximum.at(positions, (iteration, pass_number), -(-width // top_k))
    return positions


def occurrence(places: Int64) -> Int64:
    """How often the value of each entry came before it."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    new = np.diff(ordered, prepend=ordered[0] - 1) != 0
    first = np.maximum.accumulate(np.where(new, np.arange(len(ordered)), 0))
    before = np.empty(len(places), np.int64)
    before[order] = np.arange(len(ordered)) - first
    return before


def _accepted(iteration_type: Int8, positions: Int64) -> Int64 | None:
    failed = iteration_type == FALLBACK
    if positions[failed].max(initial=0) > 2:
        return None
    return np.where(failed, 1, positions[:, 0])
