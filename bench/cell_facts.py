# SPDX-License-Identifier: Apache-2.0
"""What is known of a cell beside its passes: its plan on its pool, its budget, and its residency.

Plain JSON objects for the results, from which verdicts and figures are derived later.
"""

from typing import Any

import numpy as np

from pagetier.analysis.derive import effective_capacity
from pagetier.analysis.nominal import tier_misses
from pagetier.analysis.page_exact import page_exact_facts, page_misses
from pagetier.analysis.pages import PageLayout, extents_of, page_layout
from pagetier.analysis.plans import Plan
from pagetier.analysis.results import Pass
from pagetier.bench.cells import CellSpec
from pagetier.bench.tiering import Holding, bytes_of
from pagetier.capacity.base import Enforced
from pagetier.native.residency import page_bytes
from pagetier.tiers.kinds import TIERS
from pagetier.tiers.pool import Pool

__all__ = ["budget_facts", "effective_facts", "hint_facts", "plan_facts"]


def plan_facts(
    plan: Plan, spec: CellSpec, pool: Pool, holding: Holding, prompt: Plan | None = None
) -> dict[str, Any]:
    """Demand and nominal misses of one pass, the latter after a warm-up and after `prompt`."""
    sizes = pool.size_of_experts
    misses = tier_misses(plan, holding.held, holding.cache_bytes, sizes, prompt=prompt)
    return {
        "expert_bytes": sizes if isinstance(sizes, int) else None,
        "reads_per_pass": plan.num_reads,
        "demand_bytes_per_pass": bytes_of(plan.experts, sizes),
        "distinct_bytes_per_pass": bytes_of(np.unique(plan.experts), sizes),
        "nominal_capacity_experts": holding.cache_experts,
        "nominal_misses": misses.total,
        "nominal_policy": _nominal_policy(spec),
        "admits": TIERS[spec.tier].admits,
        "arena_reads_per_pass": holding.arena_reads(plan),
        "pool_sha256": pool.digest,
        **_different_sizes(pool, {"nominal_miss_bytes": misses.bytes}),
        "page_exact": _page_exact(plan, spec, pool, holding, prompt),
    }


def _different_sizes(pool: Pool, facts: dict[str, Any]) -> dict[str, Any]:
    """Facts that no number of experts stands for; one size needs none of them."""
    if isinstance(pool.size_of_experts, int):
        return {}
    largest = {"largest_expert_bytes": pool.largest_expert_bytes, "pool_bytes": pool.total_bytes}
    return {**largest, **facts}


def _page_exact(
    plan: Plan, spec: CellSpec, pool: Pool, holding: Holding, prompt: Plan | None
) -> dict[str, Any]:
    capacity_bytes = holding.budget.page_cache_bytes if TIERS[spec.tier].admits else 0
    return page_exact_facts(plan, holding.held, _layout(pool), capacity_bytes, prompt)


def _layout(pool: Pool) -> PageLayout:
    return page_layout(extents_of(pool.extent_table()), page_bytes())


def _nominal_policy(spec: CellSpec) -> str:
    if not TIERS[spec.tier].admits:
        return "every read"
    if spec.arena is not None:
        return f"static arena by {spec.arena.table}, LRU of the rest"
    return "LRU"


def effective_facts(
    plan: Plan,
    spec: CellSpec,
    pool: Pool,
    holding: Holding,
    measured: Pass,
    page_exact: dict[str, Any],
    prompt: Plan | None = None,
) -> dict[str, Any]:
    """Misses with an LRU as large as what the page cache really held, beside the nominal ones."""
    effective = effective_capacity(measured)
    if effective.bytes is None:
        return {}
    cache_bytes = effective.bytes if TIERS[spec.tier].admits else 0
    misses = tier_misses(plan, holding.held, cache_bytes, pool.size_of_experts, prompt=prompt)
    pages = page_misses(plan, holding.held, _layout(pool), cache_bytes, prompt)
    return {
        "effective_misses": misses.total,
        **_different_sizes(pool, {"effective_miss_bytes": misses.bytes}),
        "page_exact": {**page_exact, "effective_miss_pages": pages},
    }


def budget_facts(
    holding: Holding, enforced: Enforced, locked_bytes: int | None
) -> dict[str, int | None]:
    """How C was divided, and by the kernel's own counts: VmLck of the worker, and what the limit
    leaves above the anonymous and kernel memory of the scope."""
    budget = holding.budget
    anon, kernel = enforced.facts.get("anon_bytes"), enforced.facts.get("kernel_bytes")
    room = None
    if enforced.limit_bytes is not None and isinstance(anon, int):
        room = enforced.limit_bytes - anon - (kernel if isinstance(kernel, int) else 0)
    return {
        "capacity_bytes": budget.capacity_bytes,
        "spine_bytes": budget.spine_bytes,
        "arena_experts": budget.arena_experts,
        "arena_bytes": budget.arena_bytes,
        "page_cache_bytes": budget.page_cache_bytes,
        "locked_asked_bytes": budget.locked_bytes,
        "locked_read_bytes": locked_bytes,
        "page_cache_read_bytes": room,
    }


def hint_facts(passes: dict[str, Pass]) -> dict[str, Any]:
    """Failed hints of all passes, and what the kernel said to the first of them."""
    counts = [replay.result.get("hints") for replay in passes.values()]
    given = [count for count in counts if count is not None]
    if not given:
        return {}
    failures = [count["first_failure"] for count in given if count["first_failure"] is not None]
    return {
        "hints_failed": sum(count["failed"] for count in given),
        "hint_failure": failures[0] if failures else None,
    }
