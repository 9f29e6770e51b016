# SPDX-License-Identifier: Apache-2.0
"""The document of ``report --json``: every figure of every cell, None where unknown."""

from dataclasses import asdict
from typing import Any

from pagetier.analysis.counters import number
from pagetier.analysis.derive import CellFacts, derive_cell
from pagetier.analysis.naming import reclaim_name
from pagetier.analysis.results import Cell, Results

__all__ = ["report_json"]

_LEDGER_METHODS = {
    "first": "residency of each extent just before its read, never read before in this cell",
    "repeat": "residency of each extent just before its read, read before in this cell",
    "over_read": "process read_bytes - first - repeat - prefetch",
    "prefetch": "residency of each extent just before and after its hint, unless it was read"
    " meanwhile: what a hint and a read bring at the same time is in first and repeat, or else in"
    " over_read",
    "foreign": "device sectors x 512 - scope io, or - process read_bytes without a scope's count",
    "residual": "scope io - process read_bytes",
}


def report_json(results: Results) -> dict[str, Any]:
    """The document of ``report --json``: every figure of every cell, None where unknown."""
    return {
        "campaign": {**dict(results.campaign), "sha256": results.meta.get("campaign_sha256")},
        "host": dict(results.host),
        "cells": [_cell_json(cell, reclaim_name(cell, results.host)) for cell in results.cells],
    }


def _cell_json(cell: Cell, implementation: str | None) -> dict[str, Any]:
    facts = derive_cell(cell)
    return {
        "id": cell.id,
        **{key: cell.spec.get(key) for key in _SPEC_KEYS},
        "mglru_mask": number(cell.facts, "mglru", "during"),
        "state": cell.state,
        "reasons": list(cell.reasons),
        "labels": list(cell.labels),
        "iterations": facts.iterations,
        **_figures(facts),
        **_reclaim_json(facts, implementation),
        **_tier_json(cell, facts),
        "ledger": _ledger_json(facts),
        "enforced": dict(cell.enforced),
    }


_SPEC_KEYS = (
    "tier",
    "mechanism",
    "capacity_bytes",
    "mglru",
    "repetition",
    "layout",
    "pool",
    "advice",
    "read",
    "threads",
    "barrier",
    "headroom",
    "read_ahead_kb",
    "arena",
    "spine_bytes",
    "prefetch",
)


def _figures(facts: CellFacts) -> dict[str, Any]:
    spread = facts.iteration_s
    return {
        "iteration_s": {
            "median": None if spread is None else spread.median,
            "min": None if spread is None else spread.min,
            "max": None if spread is None else spread.max,
        },
        "demand_bytes_per_iteration": facts.per_iteration(facts.demand_bytes),
        "device_bytes_per_iteration": facts.per_iteration(facts.device_bytes),
        "nominal_miss_bytes_per_iteration": facts.per_iteration(facts.nominal_miss_bytes),
        "effective_miss_bytes_per_iteration": facts.per_iteration(facts.effective_miss_bytes),
        "in_extent_bytes_per_iteration": facts.per_iteration(facts.in_extent_bytes),
        "effective_capacity_bytes": facts.effective_capacity.bytes,
        "effective_capacity_source": facts.effective_capacity.source,
        "amplification": facts.amplification,
        "in_extent_amplification": facts.in_extent_amplification,
        "over_read_share": facts.over_read_share,
        "foreign_share": facts.foreign_share,
        "served_fraction": facts.served_fraction,
        "served_fraction_device": facts.served_fraction_device,
        "accepted_tokens": facts.accepted_tokens,
        "s_per_accepted_token": facts.s_per_accepted_token,
    }


def _tier_json(cell: Cell, facts: CellFacts) -> dict[str, Any]:
    measured, warm_up = cell.passes.get("measured"), cell.passes.get("warm-up")
    hints = facts.hints
    return {
        "served": {
            "arena": facts.served_arena,
            "page_cache": facts.served_page_cache,
            "missed": None if facts.served_fraction is None else 1 - facts.served_fraction,
        },
        "nominal_policy": cell.facts.get("nominal_policy"),
        "budget": cell.facts.get("budget"),
        "preload": cell.facts.get("preload"),
        "read_ahead_kb_read": cell.facts.get("read_ahead_kb"),
        "aligned_over_read_bytes": number(
            {} if measured is None else measured.result, "aligned_over_read_bytes"
        ),
        "content_hash": None if warm_up is None else warm_up.result.get("content_hash"),
        "hints": None
        if hints is None
        else {
            **asdict(hints),
            "resident_share": hints.resident_share,
            "used_share": hints.used_share,
        },
    }


def _reclaim_json(facts: CellFacts, implementation: str | None) -> dict[str, Any]:
    reclaim = facts.reclaim
    return {
        "scan_pages": None if reclaim is None else reclaim.scan_pages,
        "steal_pages": None if reclaim is None else reclaim.steal_pages,
        "scan_to_steal": None if reclaim is None else reclaim.scan_to_steal,
        "scan_to_steal_source": None if reclaim is None else reclaim.source,
        "reclaim_implementation": implementation,
        "reclaim_counters": [
            {**asdict(counter), "scan_to_steal": counter.scan_to_steal}
            for counter in facts.reclaim_counters
        ],
    }


def _ledger_json(facts: CellFacts) -> dict[str, Any]:
    terms = {name: facts.per_iteration(value) for name, value in asdict(facts.ledger).items()}
    return {**terms, "obtained": _LEDGER_METHODS}
