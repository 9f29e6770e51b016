# SPDX-License-Identifier: Apache-2.0
"""What a tier would have to read from the pool: the simulated yardstick of its cell.

Experts held in an arena never miss.  The other reads go through an exact LRU of whole experts as
large as the part of the budget that is left to the page cache; without cache admission, capacity 0,
every one of them is a miss.
"""

import numpy as np
import numpy.typing as npt

from pagetier.analysis.lru import Misses, lru_misses_of_bytes
from pagetier.analysis.plans import Plan, Uint32
from pagetier.analysis.simulators.budgets import ExpertBytes

__all__ = ["after_prompt", "arena_hits", "rest_of_plan", "tier_misses"]

Bool = npt.NDArray[np.bool_]


def arena_hits(plan: Plan, held: Uint32) -> Bool:
    """Which reads of the plan an arena with these experts serves."""
    return np.isin(plan.experts, held)


def rest_of_plan(plan: Plan, held: Uint32) -> Plan:
    """The plan without the reads that the arena serves; records and iterations stay."""
    missed = ~arena_hits(plan, held)
    before = np.concatenate(([0], np.cumsum(missed)))
    return Plan(
        experts=plan.experts[missed],
        record_start=before[plan.record_start.astype(np.int64)].astype(np.uint64),
        iteration_start=plan.iteration_start,
        num_layers=plan.num_layers,
        num_experts=plan.num_experts,
    )


def after_prompt(prompt: Plan, plan: Plan) -> Plan:
    """One plan of both, the prompt as its first iteration."""
    records = prompt.num_records
    return Plan(
        experts=np.concatenate((prompt.experts, plan.experts)),
        record_start=np.concatenate(
            (prompt.record_start[:-1], plan.record_start + prompt.num_reads)
        ),
        iteration_start=np.concatenate(
            (np.zeros(1, dtype=np.uint64), plan.iteration_start + np.uint64(records))
        ),
        num_layers=plan.num_layers,
        num_experts=plan.num_experts,
    )


def tier_misses(
    plan: Plan,
    held: Uint32,
    cache_bytes: int,
    expert_bytes: ExpertBytes,
    passes: int = 2,
    prompt: Plan | None = None,
) -> Misses:
    """Misses in the last of `passes` replays: arena first, then an LRU.

    `expert_bytes` is one size or a size per global id.  What `prompt` reads before each pass goes
    through the LRU, too, and is not counted.
    """
    if prompt is None:
        return lru_misses_of_bytes(rest_of_plan(plan, held), cache_bytes, expert_bytes, passes)
    whole = rest_of_plan(after_prompt(prompt, plan), held)
    found = lru_misses_of_bytes(whole, cache_bytes, expert_bytes, passes)
    return Misses(found.by_iteration[1:], found.bytes_by_iteration[1:])
