# SPDX-License-Identifier: Apache-2.0
"""What a campaign will read and roughly how long it will take, before it starts.

With it stand what can be told without a replay: cells that are refused, and how good each prefetch
plan is, beside what the previous token alone would have told.
"""

from typing import Any

from pagetier.analysis.hints import HintPlan, LayerQuality, plan_quality
from pagetier.analysis.nominal import tier_misses
from pagetier.analysis.plans import Plan
from pagetier.analysis.simulators.budgets import ExpertBytes
from pagetier.analysis.traces import Trace
from pagetier.bench.cells import CellSpec
from pagetier.bench.inputs import Geometry, Inputs
from pagetier.bench.tiering import Advice, Holding, bytes_of, refusal
from pagetier.tiers.prefetch import PrefetchOptions, make_hints

__all__ = ["estimate"]

# Assumed only for the forecast; `pagetier doctor --probe` measures the real ones.
ASSUMED_DEVICE_BYTES_PER_S = 1_000_000_000
ASSUMED_MEMORY_BYTES_PER_S = 5_000_000_000


def estimate(inputs: Inputs, pools: dict[str, Geometry]) -> dict[str, Any]:
    """Per cell: bytes demanded and, by simulation, bytes read in warm-up and measured pass."""
    rows, refused = [], []
    for cell in inputs.cells:
        pool = pools[cell.pool]
        reason = refusal(cell, pool.expert_bytes, pool.experts)
        if reason is None:
            rows.append(_forecast(inputs.plan, cell, pool.expert_bytes, inputs.advice))
        else:
            refused.append({"cell": cell.describe(), "reason": reason})
    return {
        "cells": rows,
        "refused": refused,
        "prefetch": _qualities(inputs.trace, inputs.plan, inputs.advice),
        "device_bytes": sum(row["device_bytes"] for row in rows),
        "seconds": sum(row["seconds"] for row in rows),
        "assumed": {
            "device_bytes_per_s": ASSUMED_DEVICE_BYTES_PER_S,
            "memory_bytes_per_s": ASSUMED_MEMORY_BYTES_PER_S,
        },
    }


def _forecast(
    plan: Plan, cell: CellSpec, expert_bytes: ExpertBytes, advice: Advice
) -> dict[str, Any]:
    holding = Holding.of(cell, plan, expert_bytes, advice)
    missed_bytes = sum(
        tier_misses(plan, holding.held, holding.cache_bytes, expert_bytes, passes).bytes
        for passes in (1, 2)
    )
    demand_bytes = 2 * bytes_of(plan.experts, expert_bytes)
    # What is preloaded is read as well, before the measured interval.
    device_bytes = missed_bytes + bytes_of(holding.held, expert_bytes)
    return {
        "id": cell.id,
        "cell": cell.describe(),
        "demand_bytes": demand_bytes,
        "device_bytes": device_bytes,
        "arena_bytes": holding.budget.arena_bytes,
        "seconds": demand_bytes / ASSUMED_MEMORY_BYTES_PER_S
        + device_bytes / ASSUMED_DEVICE_BYTES_PER_S,
    }


def _qualities(trace: Trace, plan: Plan, advice: Advice) -> list[dict[str, Any]]:
    """Each plan of the campaign, and what to beat: the previous token, which costs no predictor."""
    if not advice.hints:
        return []
    baseline = PrefetchOptions(plan="previous-token")
    hints = {**advice.hints}
    hints.setdefault(baseline, make_hints(trace, baseline))
    return [_quality(plan, options, made) for options, made in hints.items()]


def _quality(plan: Plan, options: PrefetchOptions, hints: HintPlan) -> dict[str, Any]:
    quality = plan_quality(plan, hints)
    return {
        "plan": options.plan,
        "min_layer_recall": options.min_layer_recall,
        "hints": hints.num_hints,
        **_rates(quality.overall),
        "layers": [{"layer": row.layer, **_rates(row)} for row in quality.layers],
    }


def _rates(row: LayerQuality) -> dict[str, float | None]:
    return {"recall": row.recall, "precision": row.precision}
