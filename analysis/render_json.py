# SPDX-License-Identifier: Apache-2.0
"""The document of ``report --json``: every figure of every cell, None where unknown."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from pagetier.analysis.counters import number
from pagetier.analysis.derive import CellFacts, Limits, derive_cell
from pagetier.analysis.facts import includes_limits, ratio
from pagetier.analysis.ledger import agreements, by_iteration, obtained, refault_bytes, traced
from pagetier.analysis.naming import mapping, reclaim_name
from pagetier.analysis.page_exact import PageExact
from pagetier.analysis.results import Cell, Results

__all__ = ["report_json"]


def report_json(results: Results) -> dict[str, Any]:
    """The document of ``report --json``: every figure of every cell, None where unknown."""
    return {
        "campaign": {**dict(results.campaign), "sha256": results.meta.get("campaign_sha256")},
        "host": dict(results.host),
        "cells": [_cell_json(cell, results) for cell in results.cells],
    }


def _cell_json(cell: Cell, results: Results) -> dict[str, Any]:
    facts, implementation = derive_cell(cell), reclaim_name(cell, results.host)
    return {
        "id": cell.id,
        **{key: cell.spec.get(key) for key in _SPEC_KEYS},
        "mglru_mask": number(cell.facts, "mglru", "during"),
        "state": cell.state,
        "reasons": list(cell.reasons),
        "labels": list(cell.labels),
        "iterations": facts.iterations,
        **_figures(facts),
        **_reclaim_json(facts, implementation, mapping(results.host.get("limit_reclaim_counters"))),
        **_tier_json(cell, facts),
        "page_exact": _page_exact_json(cell, facts),
        "ledger": _ledger_json(cell, facts),
        "ledger_evidence": _evidence_json(cell, _limits_of(results)),
        "audit": cell.facts.get("audit"),
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
    "arm",
    "prompt",
    "domain",
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


def _reclaim_json(
    facts: CellFacts, implementation: str | None, tested: Mapping[str, Any]
) -> dict[str, Any]:
    reclaim = facts.reclaim
    return {
        "scan_pages": None if reclaim is None else reclaim.scan_pages,
        "steal_pages": None if reclaim is None else reclaim.steal_pages,
        "scan_to_steal": None if reclaim is None else reclaim.scan_to_steal,
        "scan_to_steal_source": None if reclaim is None else reclaim.source,
        "scan_to_steal_includes_limits": (
            None if reclaim is None else includes_limits(reclaim, tested)
        ),
        "reclaim_implementation": implementation,
        "reclaim_counters": [
            {
                **asdict(counter),
                "scan_to_steal": counter.scan_to_steal,
                "includes_limits": includes_limits(counter, tested),
            }
            for counter in facts.reclaim_counters
        ],
    }


def _ledger_json(cell: Cell, facts: CellFacts) -> dict[str, Any]:
    terms = {name: facts.per_iteration(value) for name, value in asdict(facts.ledger).items()}
    return {**terms, "obtained": obtained(cell)}


def _page_exact_json(cell: Cell, facts: CellFacts) -> dict[str, Any]:
    exact = PageExact.of(cell)
    return {
        "page_bytes": exact.page_bytes,
        "demand_bytes_per_iteration": facts.per_iteration(exact.demand_bytes),
        "nominal_miss_bytes_per_iteration": facts.per_iteration(exact.nominal_miss_bytes),
        "effective_miss_bytes_per_iteration": facts.per_iteration(exact.effective_miss_bytes),
        "in_extent_amplification": ratio(facts.in_extent_bytes, exact.nominal_miss_bytes),
    }


def _limits_of(results: Results) -> Limits:
    """The campaign's limits; what it does not name is as by default."""
    named = mapping(results.campaign.get("limits"))
    known = {field.name for field in fields(Limits)}
    return Limits(**{name: value for name, value in named.items() if name in known})


_EVIDENCE = ("agreement", "others", "traced", "refault_bytes", "refault_source", "iterations")


def _evidence_json(cell: Cell, limits: Limits) -> dict[str, Any]:
    """What the ledger rests on: sources beside each other, and the terms of each iteration."""
    measured = cell.passes.get("measured")
    if measured is None:
        return dict.fromkeys(_EVIDENCE)
    refaulted, source = refault_bytes(measured, PageExact.of(cell).page_bytes)
    return {
        "agreement": {
            replay.name: [asdict(pair) for pair in agreements(replay, limits)]
            for replay in cell.passes.values()
        },
        "others": measured.result.get("others"),
        "traced": None if (trace := traced(measured)) is None else asdict(trace),
        "refault_bytes": refaulted,
        "refault_source": source,
        "iterations": {
            name: list(column) for name, column in asdict(by_iteration(measured)).items()
        },
    }
