# SPDX-License-Identifier: Apache-2.0
"""The cells of an engine's campaign, in an order that favours no arm.

A round measures every prompt under every limit once, in seeded random order; the arms of one prompt
and limit follow each other in time, the first arm first in round 1, last in round 2, shuffled from
then on.
"""

import hashlib
import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pagetier.analysis.engine import REPLAY
from pagetier.analysis.units import format_bytes
from pagetier.bench.cells import CellSpec
from pagetier.bench.engine.campaign import EngineCampaign
from pagetier.bench.engine.prompts import Prompt

__all__ = ["EngineCell", "ModelBytes", "arm_problem", "ordered_arms", "plan_engine_cells"]

# What a scope needs beside C when the weights fill it: page tables of 1/512 of them, slab, and the
# reserve that reclaim keeps on its toes for.
SLACK_SHARE, SLACK_BYTES = 1 / 256, 32 << 20
MAX_READ_AHEAD_KB = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelBytes:
    """Bytes of a model: its experts, what of it is none, and experts that no token is routed to,
    which an engine need not load."""

    experts: int
    spine: int
    unrouted: int = 0

    @property
    def weights(self) -> int:
        """What every engine loads."""
        return self.experts + self.spine


@dataclass(frozen=True, slots=True)
class EngineCell:
    """One process to measure.  `base` is its limit, and of a replay the whole cell; its pool is the
    path of the model."""

    arm: str
    prompt: int
    domain: str
    engine: str  # the options of the engine, as JSON: a cell is hashable
    base: CellSpec

    @property
    def id(self) -> str:
        """Stable across runs of the same campaign."""
        text = json.dumps(self.stored(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def stored(self) -> dict[str, Any]:
        """The specification in the results."""
        options = json.loads(self.engine)
        tier = "pagetier replay" if self.arm == REPLAY else f"{options['name']} {self.arm}"
        own = {"arm": self.arm, "prompt": self.prompt, "domain": self.domain, "engine": options}
        return {**asdict(self.base), "tier": tier, "layout": "mapped", **own}

    def describe(self) -> str:
        """For people: what this cell is, in one line."""
        return (
            f"{self.describe_limit()}, prompt {self.prompt} ({self.domain}), "
            f"round {self.base.repetition}"
        )

    def describe_limit(self) -> str:
        """What it has in common with the cells of other prompts and rounds."""
        capacity = self.base.capacity_bytes
        limit = "" if capacity is None else f" {format_bytes(capacity)}"
        return f"{self.arm}, {self.base.mechanism}{limit}"


def plan_engine_cells(
    campaign: EngineCampaign,
    prompts: Sequence[Prompt],
    model: ModelBytes,
    window_kb: int | None,
) -> list[EngineCell]:
    """Every cell, round by round; `window_kb` is the readahead window of the model's device."""
    rng = random.Random(campaign.seed)
    limits: list[tuple[str, int | None]] = []
    for mechanism in campaign.mechanisms:
        capacities = [None] if mechanism == "none" else campaign.capacities
        limits += [(mechanism, capacity) for capacity in capacities]
    ordered = []
    for number in range(1, campaign.pairs + 1):
        blocks = list(itertools.product(prompts, limits))
        rng.shuffle(blocks)
        for prompt, limit in blocks:
            cells = [
                _cell(campaign, prompt, limit, arm, number)
                for arm in ordered_arms(campaign.arms, number, rng)
            ]
            ordered += [_as_replay(cell, model, window_kb) for cell in cells]
    return ordered


def ordered_arms(arms: Sequence[str], number: int, rng: random.Random) -> list[str]:
    """The first arm first, then last, then anywhere."""
    if number == 1:
        return list(arms)
    if number == 2:
        return list(reversed(arms))
    return rng.sample(list(arms), len(arms))


def _cell(
    campaign: EngineCampaign,
    prompt: Prompt,
    limit: tuple[str, int | None],
    arm: str,
    number: int,
) -> EngineCell:
    mechanism, capacity = limit
    base = CellSpec(
        tier="page-cache",
        mechanism=mechanism,
        capacity_bytes=capacity,
        pool=campaign.engine.model,
        mglru="keep",
        advice="default",
        read="mmap",
        threads=campaign.engine.threads,
        barrier="record",
        headroom=campaign.headroom,
        balloon_order=None,
        balloon_huge_pages=None,
        repetition=number,
        read_ahead_kb=campaign.read_ahead_kb,
    )
    options = campaign.engine.model_dump(exclude={"model", "prompts"})
    return EngineCell(arm, prompt.number, prompt.domain, json.dumps(options, sort_keys=True), base)


def _as_replay(cell: EngineCell, model: ModelBytes, window_kb: int | None) -> EngineCell:
    """A replay as it must be to read as the engine does; other cells as they are.

    One thread: those of an engine fault through one open file with one readahead state, and each of
    the reader's has its own.  Twice the window: llama.cpp declares its file sequential, which is
    just that (mm/fadvise.c, POSIX_FADV_SEQUENTIAL); madvise would be another thing.  The spine is
    locked: an engine leaves it to the page cache, but touches it with every token, so that it is as
    good as locked there, and it belongs to C.
    """
    if cell.arm != REPLAY:
        return cell
    window_kb = cell.base.read_ahead_kb if cell.base.read_ahead_kb is not None else window_kb
    doubled_kb = None if window_kb is None else min(2 * window_kb, MAX_READ_AHEAD_KB)
    base = replace(cell.base, threads=1, spine_bytes=model.spine, read_ahead_kb=doubled_kb)
    return replace(cell, base=base)


def arm_problem(cell: EngineCell, model: ModelBytes, available_bytes: int | None) -> str | None:
    """Why the weights would not fit as the arm holds them, which can only end in an OOM kill; None
    where they do."""
    if cell.arm not in ("mlock", "no-mmap"):
        return None
    most = model.weights + model.unrouted
    needed = most + round(SLACK_SHARE * most) + SLACK_BYTES
    capacity = cell.base.capacity_bytes
    held = "locked" if cell.arm == "mlock" else "anonymous"
    if capacity is not None and capacity < needed:
        return (
            f"{cell.arm} needs {format_bytes(needed)} for weights that are {held} memory, C is "
            f"{format_bytes(capacity)}: it could only end in an OOM kill; use a larger C"
        )
    if available_bytes is not None and available_bytes < needed:
        return (
            f"{cell.arm} needs {format_bytes(needed)} for weights that are {held} memory, "
            f"{format_bytes(available_bytes)} are available on this host"
        )
    return None
