# SPDX-License-Identifier: Apache-2.0
"""Names that tables and documents give to what a cell was: its tier, its hints, its reclaim."""

from collections.abc import Mapping
from typing import Any

from pagetier.analysis.counters import number
from pagetier.analysis.results import Cell

__all__ = ["mapping", "mglru_enabled", "prefetch_name", "reclaim_name", "tier_name"]


def mapping(value: object) -> Mapping[str, Any]:
    """A JSON object as it is, anything else as an empty one."""
    return value if isinstance(value, Mapping) else {}


def mglru_enabled(cell: Cell, host: Mapping[str, Any]) -> bool | None:
    """As read back in the cell; of one that did not get so far, as it was asked for."""
    mask = number(cell.facts, "mglru", "during")
    if mask is not None:
        return bool(mask & 1)
    if cell.spec.get("mglru") in ("on", "off"):
        return bool(cell.spec["mglru"] == "on")
    enabled = mapping(host.get("mglru")).get("enabled")
    return enabled if isinstance(enabled, bool) else None


def reclaim_name(cell: Cell, host: Mapping[str, Any]) -> str | None:
    """The reclaim implementation at work in a cell; None when it was not found out."""
    enabled = mglru_enabled(cell, host)
    if enabled:
        return "MGLRU"
    if mapping(host.get("mglru")).get("available") is False:
        return "classic LRU (no MGLRU in this kernel)"
    return None if enabled is None else "classic LRU (MGLRU off)"


def tier_name(spec: Mapping[str, Any]) -> str:
    """A hybrid with the arena's share of the budget."""
    tier, arena = str(spec.get("tier", "n/a")), mapping(spec.get("arena"))
    return f"{tier} {arena['fraction']:g}" if tier == "hybrid" and "fraction" in arena else tier


def prefetch_name(spec: Mapping[str, Any]) -> str:
    """Plan and delivery of a cell's advisor, with what shapes them; empty without one."""
    prefetch = mapping(spec.get("prefetch"))
    if not prefetch:
        return ""
    recall, chunk = prefetch.get("recall"), prefetch.get("chunk")
    parts = [
        str(prefetch.get("plan")) + ("" if recall is None else f" {recall:g}"),
        str(prefetch.get("delivery")) + ("" if chunk in (None, "safe") else f" {chunk}"),
    ]
    least = prefetch.get("min_layer_recall")
    return ", ".join([*parts, f"layers above {least:g}"] if least else parts)
