# SPDX-License-Identifier: Apache-2.0
"""What a campaign will read and roughly how long it will take, before it starts."""

from typing import Any

from pagetier.analysis.lru import lru_misses
from pagetier.analysis.plans import Plan
from pagetier.bench.cells import CellSpec

__all__ = ["estimate"]

# Assumed only for the forecast; `pagetier doctor --probe` measures the real ones.
ASSUMED_DEVICE_BYTES_PER_S = 1_000_000_000
ASSUMED_MEMORY_BYTES_PER_S = 5_000_000_000


def estimate(
    plan: Plan, cells: list[CellSpec], expert_bytes_of_pool: dict[str, int]
) -> dict[str, Any]:
    """Per cell: bytes demanded and, by simulated LRU, bytes read in warm-up and measured pass."""
    rows = [_forecast(plan, cell, expert_bytes_of_pool[cell.pool]) for cell in cells]
    return {
        "cells": rows,
        "device_bytes": sum(row["device_bytes"] for row in rows),
        "seconds": sum(row["seconds"] for row in rows),
        "assumed": {
            "device_bytes_per_s": ASSUMED_DEVICE_BYTES_PER_S,
            "memory_bytes_per_s": ASSUMED_MEMORY_BYTES_PER_S,
        },
    }


def _forecast(plan: Plan, cell: CellSpec, expert_bytes: int) -> dict[str, Any]:
    capacity = capacity_experts(plan, cell.capacity_bytes, expert_bytes)
    misses = sum(int(lru_misses(plan, capacity, passes=n).sum()) for n in (1, 2))
    demand_bytes = 2 * plan.num_reads * expert_bytes
    device_bytes = misses * expert_bytes
    return {
        "id": cell.id,
        "cell": cell.describe(),
        "demand_bytes": demand_bytes,
        "device_bytes": device_bytes,
        "seconds": demand_bytes / ASSUMED_MEMORY_BYTES_PER_S
        + device_bytes / ASSUMED_DEVICE_BYTES_PER_S,
    }


def capacity_experts(plan: Plan, capacity_bytes: int | None, expert_bytes: int) -> int:
    """Whole experts that fit; without a limit the whole pool does."""
    if capacity_bytes is None:
        return plan.num_layers * plan.num_experts
    return capacity_bytes // expert_bytes
