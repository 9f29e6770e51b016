# SPDX-License-Identifier: Apache-2.0
"""Rows of a sweep as documents: every row names its contract, so that it can stand alone.

Budgets are those of one layer under per-layer scope and of all layers under global scope; the total
stands beside them.
"""

from typing import Any

from pagetier.analysis.simulators.sweep import Row, TieSpread

__all__ = ["row_document"]


def row_document(row: Row, ties: TieSpread | None = None) -> dict[str, Any]:
    """One row of the JSON and of the CSV; nested only in `tie_spread`."""
    prepared = row.cell.prepared
    layers = prepared.events.num_layers if prepared.contract.scope == "per-layer" else 1
    return {
        "policy": row.cell.policy,
        "budget": str(row.cell.budget),
        "budget_experts": _share(row.budget_experts, layers),
        "budget_bytes": _share(row.budget_bytes, layers),
        "budget_total_experts": row.budget_experts,
        **prepared.contract.as_document(),
        "iterations": prepared.scored_iterations,
        "accesses": row.accesses,
        "hits": row.hits,
        "misses": row.misses,
        "hit_rate": row.hit_rate,
        "miss_bytes_per_iteration": row.miss_bytes_per_iteration,
        "initial_load_experts": row.initial_load,
        "initial_load_bytes": row.initial_load_bytes,
        "static_fit": row.fitted_on,
        "tie_spread": _spread(ties),
    }


def _share(total: int | None, layers: int) -> int | float | None:
    """Whole where it can be: layers may differ by one expert."""
    if total is None:
        return None
    return total // layers if total % layers == 0 else total / layers


def _spread(ties: TieSpread | None) -> dict[str, Any] | None:
    if ties is None:
        return None
    return {"seeds": list(ties.seeds), "min_misses": ties.min, "max_misses": ties.max}
