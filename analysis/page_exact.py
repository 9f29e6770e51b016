# SPDX-License-Identifier: Apache-2.0
"""Nominal misses in pages, beside those in whole experts: the yardstick of the in-extent bytes.

Demand and misses of experts as the page cache holds them, in whole pages of the measured host, a
page that two experts share counted once.  Simulated where the pool is at hand and stored with the
cell as `page_exact`; here are the arithmetic of both ends.
"""

from dataclasses import dataclass
from typing import Any

from pagetier.analysis.counters import number
from pagetier.analysis.nominal import after_prompt, rest_of_plan
from pagetier.analysis.pages import PageLayout, page_demand, page_lru_misses
from pagetier.analysis.plans import Plan, Uint32
from pagetier.analysis.results import Cell

__all__ = ["PageExact", "page_exact_facts", "page_misses"]


def page_misses(
    plan: Plan,
    held: Uint32,
    layout: PageLayout,
    capacity_bytes: int,
    prompt: Plan | None = None,
) -> int:
    """Pages missed in the measured pass: arena first, then an exact LRU of pages.

    What `prompt` reads before each pass goes through the LRU, too, and is not counted.
    """
    if prompt is None:
        return int(page_lru_misses(rest_of_plan(plan, held), layout, capacity_bytes).sum())
    whole = rest_of_plan(after_prompt(prompt, plan), held)
    return int(page_lru_misses(whole, layout, capacity_bytes)[1:].sum())


def page_exact_facts(
    plan: Plan,
    held: Uint32,
    layout: PageLayout,
    capacity_bytes: int | None,
    prompt: Plan | None = None,
) -> dict[str, Any]:
    """What a cell stores; a capacity of None holds the whole pool."""
    if capacity_bytes is None:
        capacity_bytes = layout.pool_pages * layout.page_bytes
    return {
        "page_bytes": layout.page_bytes,
        "demand_pages": int(page_demand(plan, layout).sum()),
        "nominal_capacity_pages": capacity_bytes // layout.page_bytes,
        "nominal_miss_pages": page_misses(plan, held, layout, capacity_bytes, prompt),
    }


@dataclass(frozen=True, slots=True)
class PageExact:
    """Bytes of whole pages, of the measured pass; None where they were not simulated."""

    page_bytes: int | None
    demand_bytes: int | None
    nominal_miss_bytes: int | None
    effective_miss_bytes: int | None

    @classmethod
    def of(cls, cell: Cell) -> "PageExact":
        """As stored with the cell."""
        page_bytes = number(cell.facts, "page_exact", "page_bytes")

        def in_bytes(name: str) -> int | None:
            pages = number(cell.facts, "page_exact", name)
            return None if pages is None or page_bytes is None else pages * page_bytes

        return cls(
            page_bytes,
            in_bytes("demand_pages"),
            in_bytes("nominal_miss_pages"),
            in_bytes("effective_miss_pages"),
        )
