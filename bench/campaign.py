# SPDX-License-Identifier: Apache-2.0
"""A campaign: the keys of the YAML a user writes, their defaults and what they may hold.

Sizes are bytes or strings such as ``7.5 GB`` (10^9) and ``500 MiB`` (2^20).  Relative paths are
relative to the current directory, as on the command line.  `pagetier.bench.campaign_file` reads
one, `pagetier.bench.cells` makes its cells.
"""

import hashlib
import json
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from pagetier.analysis.derive import Limits
from pagetier.analysis.errors import InputError
from pagetier.analysis.units import parse_bytes
from pagetier.capacity.mglru import State

__all__ = [
    "ArenaOptions",
    "BalloonOptions",
    "Campaign",
    "CreatedPool",
    "GeneratedTrace",
    "PoolSource",
    "PrefetchChoices",
    "StrictModel",
    "TraceSource",
    "ValidityLimits",
    "Variation",
]


def _bytes(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("a size is a number of bytes or a string such as '500 MB'")
    try:
        return parse_bytes(value)
    except InputError as error:
        raise ValueError(str(error)) from None


def _word(value: object) -> object:
    """YAML 1.1 reads a bare on or off as a truth value."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _as_path(value: object) -> object:
    return {"path": value} if isinstance(value, str) else value


Bytes = Annotated[int, BeforeValidator(_bytes), Field(gt=0)]
SpineBytes = Annotated[int, BeforeValidator(_bytes), Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class StrictModel(BaseModel):
    """Unknown keys and values of another type are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class GeneratedTrace(StrictModel):
    """A trace made on the spot: Zipf popularity per layer plus recency reuse, seeded."""

    layers: Annotated[int, Field(gt=0)]
    experts: Annotated[int, Field(gt=0)]
    top_k: Annotated[int, Field(gt=0)]
    iterations: Annotated[int, Field(gt=0)]
    seed: int = 0
    zipf: Annotated[float, Field(ge=0)] = 1.0
    reuse: Share = 0.4


class TraceSource(StrictModel):
    """A trace file, cut to the first `steps` steps of each request, or a generated trace."""

    path: str | None = None
    steps: Annotated[int, Field(gt=0)] | None = None
    generate: GeneratedTrace | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "TraceSource":
        if (self.path is None) == (self.generate is None):
            raise ValueError("name either 'path' or 'generate'")
        return self


class CreatedPool(StrictModel):
    """Geometry of a pool that is made on first use."""

    layers: Annotated[int, Field(gt=0)]
    experts: Annotated[int, Field(gt=0)]
    expert_bytes: Bytes
    layout: Literal["files", "flat"] = "files"
    seed: int = 0


class PoolSource(StrictModel):
    path: str
    create: CreatedPool | None = None


class BalloonOptions(StrictModel):
    """How the balloon takes its pages, and the MemAvailable it never goes below."""

    order: Literal["touch-lock", "lock-touch"] = "touch-lock"
    huge_pages: Annotated[Literal["on", "off"], BeforeValidator(_word)] = "off"
    floor: Bytes = 2 << 30


class ArenaOptions(StrictModel):
    """What an arena holds: the most frequent experts of a table; `fraction` is the arena's share of
    a hybrid, 0 to 1."""

    table: str = "oracle"  # the plan's own counts, or the path of a trace or of a file of counts
    fraction: Annotated[list[Share], BeforeValidator(_as_list), Field(min_length=1)] = [0.5]


class PrefetchChoices(StrictModel):
    """What the advisor hints, one record ahead, and how: each list is a factor of the cells."""

    plan: Annotated[
        list[Literal["none", "oracle", "recorded", "previous-token", "degraded"]],
        BeforeValidator(_as_list),
        Field(min_length=1),
    ] = ["none"]
    delivery: Annotated[
        list[Literal["advice", "blocking"]], BeforeValidator(_as_list), Field(min_length=1)
    ] = ["advice"]
    chunk: Annotated[
        list[Literal["safe", "whole"] | Bytes], BeforeValidator(_as_list), Field(min_length=1)
    ] = ["safe"]
    recall: Share = 0.65
    trace: str | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    min_layer_recall: Share = 0.0

    @model_validator(mode="after")
    def _predictions_are_named(self) -> "PrefetchChoices":
        if "recorded" in self.plan and self.trace is None:
            raise ValueError("plan 'recorded' needs 'trace', the file of the predictions")
        return self


class ValidityLimits(StrictModel):
    """What a kept cell may show at most; see the verdict rules in the README."""

    foreign_share: Share = Limits().foreign_share
    disagreement_share: Share = Limits().disagreement_share
    peak_tolerance: Share = Limits().peak_tolerance


Mechanisms = Annotated[list[Literal["none", "balloon", "wall", "boot"]], Field(min_length=1)]
States = Annotated[
    list[Annotated[State, BeforeValidator(_word)]], BeforeValidator(_as_list), Field(min_length=1)
]
Advices = Annotated[
    list[Literal["default", "random", "sequential"]], BeforeValidator(_as_list), Field(min_length=1)
]
Tiers = Annotated[
    list[Literal["page-cache", "arena", "hybrid", "direct", "dontcache", "drop-behind"]],
    Field(min_length=1),
]
ReadAheadKb = Annotated[int, Field(ge=0, le=1 << 20)]
Read = Literal["pread", "mmap", "populate"]
Barrier = Literal["record", "iteration", "none"]
Threads = Annotated[int, Field(gt=0, le=1024)]
Headroom = Literal["auto"] | Bytes


class Variation(StrictModel):
    """What differs from the campaign's own keys in some further cells: one factor at a time."""

    tiers: Tiers | None = None
    mechanisms: Mechanisms | None = None
    capacities: list[Bytes] | None = None
    mglru: States | None = None
    read: Read | None = None
    advice: Advices | None = None
    read_ahead_kb: ReadAheadKb | None = None
    threads: Threads | None = None
    barrier: Barrier | None = None
    headroom: Headroom | None = None
    arena: ArenaOptions | None = None
    spine: SpineBytes | None = None
    prefetch: PrefetchChoices | None = None
    balloon: BalloonOptions | None = None


Pools = Annotated[
    list[Annotated[PoolSource, BeforeValidator(_as_path)]],
    BeforeValidator(_as_list),
    Field(min_length=1),
]


class Campaign(StrictModel):
    """The keys of a campaign file; everything but `trace` and `pool` has a default."""

    trace: Annotated[TraceSource, BeforeValidator(_as_path)]
    pool: Pools
    tiers: Tiers = ["page-cache"]
    mechanisms: Mechanisms = ["wall"]
    capacities: list[Bytes] = []
    mglru: States = ["keep"]
    read: Read = "pread"
    advice: Advices = ["default"]
    read_ahead_kb: ReadAheadKb | None = None
    threads: Threads = 8
    barrier: Barrier = "record"
    headroom: Headroom = "auto"
    arena: ArenaOptions = ArenaOptions()
    spine: SpineBytes = 0
    prefetch: PrefetchChoices = PrefetchChoices()
    balloon: BalloonOptions = BalloonOptions()
    variations: list[Variation] = []
    repetitions: Annotated[int, Field(gt=0)] = 1
    seed: int = 0
    limits: ValidityLimits = ValidityLimits()
    device: Annotated[list[str], BeforeValidator(_as_list)] = []
    audit: bool = False

    @model_validator(mode="after")
    def _capacities_are_named(self) -> "Campaign":
        if set(self.mechanisms) != {"none"} and not self.capacities:
            raise ValueError("'capacities' is needed by every mechanism but 'none'")
        return self

    def canonical_json(self) -> str:
        """The whole campaign, defaults included, in one canonical text."""
        return json.dumps(self.model_dump(), sort_keys=True, separators=(",", ":"))

    @property
    def sha256(self) -> str:
        """Identity of what was asked for, independent of comments and layout of the file."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()
