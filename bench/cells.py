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

from pagetier.analysis.naming import prefetch_name
from pagetier.analysis.units import format_bytes
from pagetier.bench.campaign import ArenaOptions, Campaign, PrefetchChoices, Variation
from pagetier.capacity.mglru import State

__all__ = ["ArenaSpec", "CellSpec", "PrefetchSpec", "plan_cells"]


@dataclass(frozen=True, slots=True)
class ArenaSpec:
    """The arena of a cell: the table it is filled by, and its share of the budget, 0 to 1."""

    table: str
    fraction: float


@dataclass(frozen=True, slots=True)
class PrefetchSpec:
    """The advisor of a cell; what its plan does not use is None."""

    plan: str
    delivery: str
    chunk: int | Literal["safe", "whole"] | None
    recall: float | None
    predictions: str | None
    seed: int | None
    min_layer_recall: float


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
    read_ahead_kb: int | None = None
    arena: ArenaSpec | None = None
    spine_bytes: int = 0
    prefetch: PrefetchSpec | None = None

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
            f"{self.tier}{self._describe_arena()}, {self.mechanism}{capacity}{balloon}, "
            f"{Path(self.pool).name}, {mglru}{self.read}, advice {self.advice}, "
            f"{self._describe_reading()}repetition {self.repetition}"
        )

    def _describe_arena(self) -> str:
        if self.arena is None:
            return ""
        table = "" if self.arena.table == "oracle" else f" by {Path(self.arena.table).name}"
        return f" {self.arena.fraction:g}{table}" if self.tier == "hybrid" else table

    def _describe_reading(self) -> str:
        window = "" if self.read_ahead_kb is None else f"read_ahead_kb {self.read_ahead_kb}, "
        spine = f"spine {format_bytes(self.spine_bytes)}, " if self.spine_bytes else ""
        name = prefetch_name(asdict(self))
        hints = f"prefetch ({name}), " if name else ""
        return f"{window}{spine}{hints}"


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
    for tier, mechanism, pool, mglru, advice, prefetch in itertools.product(
        campaign.tiers,
        campaign.mechanisms,
        campaign.pool,
        campaign.mglru,
        campaign.advice,
        list(_prefetches(campaign.prefetch)),
    ):
        balloon = campaign.balloon if mechanism == "balloon" else None
        capacities = [None] if mechanism == "none" else campaign.capacities
        for capacity, arena in itertools.product(capacities, _arenas(tier, campaign.arena)):
            yield CellSpec(
                tier=tier,
                mechanism=mechanism,
                capacity_bytes=capacity,
                pool=pool.path,
                mglru=mglru,
                # O_DIRECT knows no readahead, so that there is nothing to advise.
                advice="default" if tier == "direct" else advice,
                read=campaign.read,
                threads=campaign.threads,
                barrier=campaign.barrier,
                headroom=campaign.headroom,
                balloon_order=None if balloon is None else balloon.order,
                balloon_huge_pages=None if balloon is None else balloon.huge_pages,
                repetition=repetition,
                read_ahead_kb=campaign.read_ahead_kb,
                arena=arena,
                spine_bytes=campaign.spine,
                prefetch=prefetch,
            )


def _arenas(tier: str, options: ArenaOptions) -> list[ArenaSpec | None]:
    match tier:
        case "arena":
            return [ArenaSpec(options.table, 1.0)]
        case "hybrid":
            return [ArenaSpec(options.table, fraction) for fraction in options.fraction]
        case _:
            return [None]


def _prefetches(choices: PrefetchChoices) -> Iterator[PrefetchSpec | None]:
    for plan, delivery, chunk in itertools.product(choices.plan, choices.delivery, choices.chunk):
        if plan == "none":
            yield None
            continue
        degraded = plan == "degraded"
        yield PrefetchSpec(
            plan=plan,
            delivery=delivery,
            chunk=chunk if delivery == "advice" else None,
            recall=choices.recall if degraded else None,
            predictions=choices.trace if plan == "recorded" else None,
            seed=choices.seed if degraded else None,
            min_layer_recall=choices.min_layer_recall,
        )
