# SPDX-License-Identifier: Apache-2.0
"""How far the best causal policy is from the offline optimum, and what the difference consists of.

The effective miss fraction m = (misses + initial load) / logical has the expert assignments before
deduplication as its denominator, so that it compares across batch sizes; what deduplication saves
is union / logical and never a policy's.  A static set's initial load is counted in m and shown on
its own.  The recoverable gap is (m_causal - m_Belady) / m_causal.  Of it the admission share is
what Belady forced to admit every miss loses to Belady, the future-victim share the rest.  Neither
is clamped: where unions exceed the capacity, admitting all of one may cost more than the causal
policy pays, which keeps the best of residents and members.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pagetier.analysis.simulators import Budget, Contract, ExpertBytes, Prepared, prepare, simulate
from pagetier.analysis.studies.batching import Workload
from pagetier.analysis.studies.regime import group_starts
from pagetier.analysis.traces.columns import Int64

__all__ = ["CAUSAL", "Gap", "Measure", "ReplayRow", "gap", "replays", "scored_iterations"]

CAUSAL = ("lru", "lfu", "lfru", "least-stale")
_OFFLINE = ("belady", "belady-forced")
# `static` is fitted on what it is scored on unless a window warms it: a diagnostic, no candidate.
STUDIED = (*CAUSAL, "static", *_OFFLINE)


@dataclass(frozen=True, slots=True)
class Measure:
    """One policy: what it transferred.  Fractions are None where the trace does not tell the
    assignments or the tokens, bytes where no size is known."""

    policy: str
    misses: int
    initial_load: int
    miss_fraction: float | None
    per_token: float | None
    bytes_per_token: float | None
    fitted_on: str | None

    @property
    def transferred(self) -> int:
        """Experts, a static set's initial load included."""
        return self.misses + self.initial_load


@dataclass(frozen=True, slots=True)
class Gap:
    """The policies of STUDIED on one replay.  The gap is None when no causal policy misses at all,
    its shares when there is no gap."""

    policies: tuple[Measure, ...]
    union: int
    logical: int | None
    accepted: int | None
    best_causal: str
    gap: float | None
    admission_share: float | None
    future_victim_share: float | None

    @property
    def union_over_logical(self) -> float | None:
        """What is left of the assignments after deduplication inside events."""
        return _share(self.union, self.logical)

    def of(self, policy: str) -> Measure:
        """One of the policies."""
        return next(one for one in self.policies if one.policy == policy)

    def as_document(self) -> dict[str, Any]:
        """For JSON: the policies nested."""
        return {**asdict(self), "union_over_logical": self.union_over_logical}


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """What one policy transfers under each replay of the same workload: event-atomic, and access by
    access in three orders."""

    policy: str
    event: int
    recorded: int
    ascending: int
    random: int

    @property
    def inflation(self) -> float | None:
        """Of access replay in recorded order over event-atomic replay, less 1."""
        return self.recorded / self.event - 1 if self.event else None

    @property
    def random_inflation(self) -> float | None:
        """The same for a random order within events."""
        return self.random / self.event - 1 if self.event else None

    def as_document(self) -> dict[str, Any]:
        """Flat, for a row of JSON or CSV."""
        derived = {"inflation": self.inflation, "random_inflation": self.random_inflation}
        return {**asdict(self), **derived}


def gap(
    workload: Workload, contract: Contract, budget: Budget, sizes: ExpertBytes | None = None
) -> Gap:
    """Every policy of STUDIED at one budget."""
    prepared = prepare(workload.events, contract)
    scored = scored_iterations(prepared)
    logical = None if workload.logical is None else int(workload.logical[scored].sum())
    accepted = None if workload.accepted is None else int(workload.accepted[scored].sum())
    policies = tuple(
        _measure(prepared, policy, budget, sizes, logical, accepted) for policy in STUDIED
    )
    return _gap(policies, prepared.accesses, logical, accepted)


def replays(
    workload: Workload, contract: Contract, budget: Budget, sizes: ExpertBytes | None = None
) -> list[ReplayRow]:
    """The policies of STUDIED under event-atomic replay and under access replay in three orders."""
    contracts = [replace(contract, replay="event", order="recorded")]
    for order in ("recorded", "ascending", "random"):
        contracts.append(replace(contract, replay="access", order=order))
    prepared = [prepare(workload.events, one) for one in contracts]
    rows = []
    for policy in STUDIED:
        outcomes = [simulate(one, policy, budget, sizes) for one in prepared]
        transferred = [one.misses + len(one.initial_load) for one in outcomes]
        rows.append(ReplayRow(policy, *transferred))
    return rows


def scored_iterations(prepared: Prepared) -> Int64:
    """The iterations of the workload that a replay of it scores."""
    cycle = prepared.stream.group_cycle
    if cycle is None:
        raise ValueError("a stream that does not number its iterations")
    if prepared.scored is not None:
        cycle = cycle[prepared.scored[group_starts(prepared)[:-1]]]
    return np.unique(cycle.astype(np.int64) % max(1, prepared.events.num_iterations))


def _measure(
    prepared: Prepared,
    policy: str,
    budget: Budget,
    sizes: ExpertBytes | None,
    logical: int | None,
    accepted: int | None,
) -> Measure:
    outcome = simulate(prepared, policy, budget, sizes)
    load = len(outcome.initial_load)
    moved = outcome.miss_bytes
    if moved is not None and outcome.initial_load_bytes is not None:
        moved += outcome.initial_load_bytes
    return Measure(
        policy=policy,
        misses=outcome.misses,
        initial_load=load,
        miss_fraction=_share(outcome.misses + load, logical),
        per_token=_share(outcome.misses + load, accepted),
        bytes_per_token=_share(moved, accepted),
        fitted_on=outcome.fitted_on,
    )


def _gap(policies: Sequence[Measure], union: int, logical: int | None, accepted: int | None) -> Gap:
    moved = {one.policy: one.transferred for one in policies}
    best = min(CAUSAL, key=lambda policy: moved[policy])
    causal, optimum, forced = moved[best], moved["belady"], moved["belady-forced"]
    return Gap(
        policies=tuple(policies),
        union=union,
        logical=logical,
        accepted=accepted,
        best_causal=best,
        gap=_share(causal - optimum, causal),
        admission_share=_share(forced - optimum, causal - optimum),
        future_victim_share=_share(causal - forced, causal - optimum),
    )


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole
