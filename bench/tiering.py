# SPDX-License-Identifier: Apache-2.0
"""What the tier of a cell works with: its share of the budget, the experts it holds, its hints.

Everything here is known before anything is started: it is what the preflight refuses by, what the
forecast counts and what the worker is told.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pagetier.analysis.hints import HintPlan
from pagetier.analysis.nominal import arena_hits
from pagetier.analysis.plans import Plan, Uint32, build_plan
from pagetier.analysis.simulators.budgets import ExpertBytes
from pagetier.analysis.traces import Trace
from pagetier.bench.cells import CellSpec, PrefetchSpec
from pagetier.tiers.budget import Budget, BudgetError, divide
from pagetier.tiers.kinds import TIERS
from pagetier.tiers.prefetch import PrefetchOptions, make_hints
from pagetier.tiers.table import ORACLE, Counts, count_reads, most_frequent, read_counts

__all__ = ["Advice", "Holding", "budget_of", "bytes_of", "load_advice", "refusal"]


@dataclass(frozen=True, slots=True)
class Advice:
    """The tables and hints that the cells of a campaign name, read and made once."""

    tables: dict[str, Counts]
    hints: dict[PrefetchOptions, HintPlan]

    def hints_of(self, cell: CellSpec) -> HintPlan | None:
        """All hints of the cell's plan; None without an advisor."""
        return None if cell.prefetch is None else self.hints[prefetch_options(cell.prefetch)]


def load_advice(cells: Iterable[CellSpec], trace: Trace) -> Advice:
    """Raises InputError for a table or a prediction file that does not fit the trace."""
    plan = build_plan(trace)
    tables = dict.fromkeys(cell.arena.table for cell in cells if cell.arena is not None)
    plans = dict.fromkeys(
        prefetch_options(cell.prefetch) for cell in cells if cell.prefetch is not None
    )
    return Advice(
        {name: _counts(name, plan) for name in tables},
        {options: make_hints(trace, options) for options in plans},
    )


def _counts(table: str, plan: Plan) -> Counts:
    if table == ORACLE:
        return count_reads(plan)
    return read_counts(Path(table), plan.num_layers, plan.num_experts)


def prefetch_options(spec: PrefetchSpec) -> PrefetchOptions:
    """What makes the hints, apart from how they are delivered."""
    return PrefetchOptions(
        plan=spec.plan,
        recall=spec.recall,
        seed=spec.seed or 0,
        predictions=spec.predictions,
        min_layer_recall=spec.min_layer_recall,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """What the tier of one cell holds of one pool."""

    budget: Budget
    held: Uint32  # experts of the arena, most frequent first
    cache_bytes: int  # what is left to the page cache, of the whole pool without a limit
    cache_experts: int | None  # whole experts that fit into it; None where sizes differ
    hints: HintPlan | None

    @classmethod
    def of(cls, cell: CellSpec, plan: Plan, expert_bytes: ExpertBytes, advice: Advice) -> "Holding":
        """`expert_bytes` is one size or a size per global id.

        Raises BudgetError when the budget cannot be divided so.
        """
        pool_experts = plan.num_layers * plan.num_experts
        ranked = np.zeros(0, dtype=np.uint32)
        if cell.arena is not None:
            ranked = most_frequent(advice.tables[cell.arena.table], pool_experts)
        sizes = expert_bytes
        if not isinstance(sizes, int) and cell.arena is not None:
            sizes = sizes[ranked]
        budget = budget_of(cell, sizes, pool_experts)
        held = ranked[: budget.arena_experts]
        pool_bytes = bytes_of(np.arange(pool_experts, dtype=np.uint32), expert_bytes)
        cache_bytes = _cache_bytes(cell, budget, pool_bytes)
        hints = advice.hints_of(cell)
        if hints is not None:  # a hint for what is in the arena would fill the page cache twice
            hints = hints.keep(~np.isin(hints.experts, held))
        experts = cache_bytes // expert_bytes if isinstance(expert_bytes, int) else None
        return cls(budget, held, cache_bytes, experts, hints)

    def arena_reads(self, plan: Plan) -> int:
        """Reads of one pass that the arena serves: certain, for what it holds never changes."""
        return int(arena_hits(plan, self.held).sum())


def budget_of(cell: CellSpec, expert_bytes: ExpertBytes, pool_experts: int) -> Budget:
    """How a cell's C is divided; raises BudgetError.

    Sizes that differ are in the order of an arena's table; in another one its share comes out
    larger or smaller by less than the largest expert.
    """
    return divide(
        cell.capacity_bytes,
        spine_bytes=cell.spine_bytes,
        fraction=0.0 if cell.arena is None else cell.arena.fraction,
        expert_bytes=expert_bytes,
        pool_experts=pool_experts,
        threads=cell.threads,
    )


def bytes_of(experts: Uint32, expert_bytes: ExpertBytes) -> int:
    """Of all these experts together."""
    if isinstance(expert_bytes, int):
        return len(experts) * expert_bytes
    return int(expert_bytes[experts].sum())


def _cache_bytes(cell: CellSpec, budget: Budget, pool_bytes: int) -> int:
    if not TIERS[cell.tier].admits:
        return 0
    return pool_bytes if budget.page_cache_bytes is None else budget.page_cache_bytes


def refusal(cell: CellSpec, expert_bytes: ExpertBytes, pool_experts: int) -> str | None:
    """Why a cell would not measure what it names, with the remedy; None where it would."""
    tier = TIERS[cell.tier]
    if tier.mode is not None and cell.read != "pread":
        return f"{tier.name} bypasses the page cache, read: {cell.read} maps it: use read: pread"
    if not tier.admits and cell.prefetch is not None:
        return (
            f"hints bring experts into the page cache and {tier.name} reads them again from the "
            "device: each would be read twice; use prefetch: {plan: none}"
        )
    if cell.mechanism == "boot" and (cell.spine_bytes or cell.arena is not None):
        return (
            "a boot's capacity is checked by MemAvailable, which locked memory has left by then: "
            "use mechanism wall"
        )
    try:
        budget_of(cell, expert_bytes, pool_experts)
    except BudgetError as error:
        return str(error)
    return None
