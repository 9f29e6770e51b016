# SPDX-License-Identifier: Apache-2.0
"""One policy at one budget under one contract: exact hits and misses."""

from dataclasses import dataclass
from typing import get_args

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError
from pagetier.analysis.simulators.budgets import Budget, Capacity, ExpertBytes, capacity_of
from pagetier.analysis.simulators.prepare import Prepared
from pagetier.analysis.simulators.table import Table, same_trace_table, static_set
from pagetier.native import simulator
from pagetier.native.simulator import NativePolicy

__all__ = ["POLICIES", "Outcome", "check_policy", "simulate"]

Bool = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]

# demand holds nothing; static holds a fixed set; the others are the native ones.
POLICIES = ("demand", "static", *get_args(NativePolicy))


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a replay found.  `hit` has every access of the replay, in the order of its stream; the
    figures are of the scored part.

    initial_load: experts a static set loads before the first access, not among the misses; 0 for
    the policies that start empty.  fitted_on: where a static set was counted, else None.
    """

    prepared: Prepared
    policy: str
    capacity: Capacity
    sizes: ExpertBytes | None
    hit: Bool
    initial_load: Int64
    fitted_on: str | None

    @property
    def accesses(self) -> int:
        return self.prepared.accesses

    @property
    def hits(self) -> int:
        scored = self.prepared.scored
        return int(np.count_nonzero(self.hit if scored is None else self.hit & scored))

    @property
    def misses(self) -> int:
        return self.accesses - self.hits

    @property
    def hit_rate(self) -> float | None:
        """None when nothing was scored."""
        return self.hits / self.accesses if self.accesses else None

    @property
    def misses_by_iteration(self) -> Int64:
        """Of every scored iteration."""
        return self.prepared.per_iteration(~self.hit)

    @property
    def miss_bytes(self) -> int | None:
        """Bytes of the misses; None when no size is known."""
        by_iteration = self.miss_bytes_by_iteration
        return None if by_iteration is None else int(by_iteration.sum())

    @property
    def miss_bytes_by_iteration(self) -> Int64 | None:
        """Of every scored iteration; None when no size is known."""
        if self.sizes is None or isinstance(self.sizes, int):
            return None if self.sizes is None else self.misses_by_iteration * self.sizes
        missed = ~self.hit if self.prepared.scored is None else ~self.hit & self.prepared.scored
        by_object = self.prepared.of_experts(self.sizes).astype(np.int64)
        found = np.zeros(self.prepared.scored_iterations, dtype=np.int64)
        np.add.at(
            found, self.prepared.iteration[missed], by_object[self.prepared.stream.objects[missed]]
        )
        return found

    @property
    def miss_bytes_per_iteration(self) -> float | None:
        """Mean over the scored iterations; None when no size is known or none was scored."""
        iterations = self.prepared.scored_iterations
        return None if self.miss_bytes is None or not iterations else self.miss_bytes / iterations

    @property
    def initial_load_bytes(self) -> int | None:
        """None when no size is known."""
        if self.sizes is None or isinstance(self.sizes, int):
            return None if self.sizes is None else len(self.initial_load) * self.sizes
        return int(self.sizes[self.initial_load].sum())


def check_policy(policy: str) -> None:
    """InputError for a policy that is not one of POLICIES."""
    if policy not in POLICIES:
        raise InputError(f"there is no policy {policy!r}: take one of {', '.join(POLICIES)}")


def simulate(
    prepared: Prepared,
    policy: str,
    budget: Budget,
    sizes: ExpertBytes | None = None,
    table: Table | None = None,
) -> Outcome:
    """Replay one policy.  `table` freezes the set of `static`; without one it is fitted on what
    warms the replay, or on the whole trace where nothing does."""
    check_policy(policy)
    capacity = capacity_of(prepared, budget, sizes)
    none = np.zeros(0, dtype=np.int64)
    if policy == "demand":
        nothing = np.zeros(len(prepared.stream.objects), dtype=np.bool_)
        return Outcome(prepared, policy, capacity, sizes, nothing, none, None)
    if policy == "static":
        table = same_trace_table(prepared) if table is None else table
        held = static_set(prepared, table, capacity)
        hit = held.holds[prepared.stream.objects]
        return Outcome(prepared, policy, capacity, sizes, hit, held.experts, table.source)
    hit = _replayed(prepared, policy, capacity)
    return Outcome(prepared, policy, capacity, sizes, hit, none, None)


def _replayed(prepared: Prepared, policy: str, capacity: Capacity) -> Bool:
    native = next(name for name in get_args(NativePolicy) if name == policy)
    if native == "arc" and capacity.expert_size is not None:
        raise InputError(
            "arc is defined for experts of one size: give its budget in experts, or a scope of "
            "per-layer where the sizes differ between layers only"
        )
    stream = prepared.stream
    if capacity.expert_size is not None:
        stream = stream.with_sizes(prepared.of_experts(capacity.expert_size).astype(np.uint64))
    return simulator.run(native, stream, capacity.of_part).view(np.bool_)
