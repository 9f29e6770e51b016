# SPDX-License-Identifier: Apache-2.0
"""The cells a campaign asks for, in their order."""

import hashlib
import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pagetier.analysis.units import format_bytes
from pagetier.bench.campaign import Campaign, Variation
from pagetier.capacity.mglru import State

__all__ = ["CellSpec", "plan_cells"]


@dataclass(frozen=True, slots=True)
class CellSpec:
    """One point to measure; `id` is stable across runs of the same campaign."""

    tier: str
    mechanism: str
    capacity_bytes: int | None
    pool: str
    mglru: State
    advice: str
    read: str
    threads: int
    barrier: str
    headroom: int | Literal["auto"]
    balloon_order: Literal["touch-lock", "lock-touch"] | None
    balloon_huge_pages: Literal["on", "off"] | None
    repetition: int

    @property
    def id(self) -> str:
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def describe(self) -> str:
        """For people: what this cell is, in one line."""
        capacity = "" if self.capacity_bytes is None else f" {format_bytes(self.capacity_bytes)}"
        balloon = (
            ""
            if self.balloon_order is None
            else f" ({self.balloon_order}, huge pages {self.balloon_huge_pages})"
        )
        mglru = "" if self.mglru == "keep" else f"MGLRU {self.mglru}, "
        return (
            f"{self.tier}, {self.mechanism}{capacity}{balloon}, {Path(self.pool).name}, "
            f"{mglru}{self.read}, advice {self.advice}, repetition {self.repetition}"
        )


def plan_cells(campaign: Campaign) -> list[CellSpec]:
    """Every cell of a campaign: repetitions in turn, each in a seeded random order of its own.

    Shuffling inside a repetition keeps slow drift of the host from falling on one arm.  A variation
    adds the cells of the campaign with its keys in place of the campaign's; a cell that stands
    there already is not measured twice.
    """
    rng = random.Random(campaign.seed)
    arms = [campaign, *(_varied(campaign, variation) for variation in campaign.variations)]
    ordered: list[CellSpec] = []
    for repetition in range(1, campaign.repetitions + 1):
        block = list(
            dict.fromkeys(cell for arm in arms for cell in _cells_of_repetition(arm, repetition))
        )
        rng.shuffle(block)
        ordered += block
    return ordered


def _varied(campaign: Campaign, variation: Variation) -> Campaign:
    # Not the fields that were set: in a campaign written out again all are, most of them to None.
    named = {key: getattr(variation, key) for key in Variation.model_fields}
    return campaign.model_copy(update={k: value for k, value in named.items() if value is not None})


def _cells_of_repetition(campaign: Campaign, repetition: int) -> Iterator[CellSpec]:
    for tier, mechanism, pool, mglru, advice in itertools.product(
        campaign.tiers, campaign.mechanisms, campaign.pool, campaign.mglru, campaign.advice
    ):
        balloon = campaign.balloon if mechanism == "balloon" else None
        for capacity in [None] if mechanism == "none" else campaign.capacities:
            yield CellSpec(
                tier=tier,
                mechanism=mechanism,
                capacity_bytes=capacity,
                pool=pool.path,
                mglru=mglru,
                advice=advice,
                read=campaign.read,
                threads=campaign.threads,
                barrier=campaign.barrier,
                headroom=campaign.headroom,
                balloon_order=None if balloon is None else balloon.order,
                balloon_huge_pages=None if balloon is None else balloon.huge_pages,
                repetition=repetition,
            )
