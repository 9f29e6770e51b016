# SPDX-License-Identifier: Apache-2.0
"""A campaign: the YAML a user writes, validated, and the cells it asks for in their order.

Sizes are bytes or strings such as ``7.5 GB`` (10^9) and ``500 MiB`` (2^20).  Relative paths are
relative to the current directory, as on the command line.  Every error names file, line and field.
"""

import difflib
import hashlib
import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from pagetier.analysis.derive import Limits
from pagetier.analysis.errors import InputError
from pagetier.analysis.units import format_bytes, parse_bytes
from pagetier.capacity.mglru import State

__all__ = ["Campaign", "CellSpec", "PoolSource", "TraceSource", "load_campaign", "plan_cells"]


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


Bytes = Annotated[int, BeforeValidator(_bytes), Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class GeneratedTrace(_Model):
    """A trace made on the spot: Zipf popularity per layer plus recency reuse, seeded."""

    layers: Annotated[int, Field(gt=0)]
    experts: Annotated[int, Field(gt=0)]
    top_k: Annotated[int, Field(gt=0)]
    iterations: Annotated[int, Field(gt=0)]
    seed: int = 0
    zipf: Annotated[float, Field(ge=0)] = 1.0
    reuse: Share = 0.4


class TraceSource(_Model):
    """A trace file, cut to the first `steps` steps of each request, or a generated trace."""

    path: str | None = None
    steps: Annotated[int, Field(gt=0)] | None = None
    generate: GeneratedTrace | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "TraceSource":
        if (self.path is None) == (self.generate is None):
            raise ValueError("name either 'path' or 'generate'")
        return self


class CreatedPool(_Model):
    """Geometry of a pool that is made on first use."""

    layers: Annotated[int, Field(gt=0)]
    experts: Annotated[int, Field(gt=0)]
    expert_bytes: Bytes
    layout: Literal["files", "flat"] = "files"
    seed: int = 0


class PoolSource(_Model):
    path: str
    create: CreatedPool | None = None


class BalloonOptions(_Model):
    """How the balloon takes its pages, and the MemAvailable it never goes below."""

    order: Literal["touch-lock", "lock-touch"] = "touch-lock"
    huge_pages: Annotated[Literal["on", "off"], BeforeValidator(_word)] = "off"
    floor: Bytes = 2 << 30


class ValidityLimits(_Model):
    """What a kept cell may show at most; see the verdict rules in the README."""

    foreign_share: Share = Limits().foreign_share
    disagreement_share: Share = Limits().disagreement_share
    peak_tolerance: Share = Limits().peak_tolerance


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _as_path(value: object) -> object:
    return {"path": value} if isinstance(value, str) else value


Mechanisms = Annotated[list[Literal["none", "balloon", "wall", "boot"]], Field(min_length=1)]
States = Annotated[
    list[Annotated[State, BeforeValidator(_word)]], BeforeValidator(_as_list), Field(min_length=1)
]
Advices = Annotated[
    list[Literal["default", "random", "sequential"]], BeforeValidator(_as_list), Field(min_length=1)
]
Read = Literal["pread", "mmap"]
Barrier = Literal["record", "iteration", "none"]
Threads = Annotated[int, Field(gt=0, le=1024)]
Headroom = Literal["auto"] | Bytes


class Variation(_Model):
    """What differs from the campaign's own keys in some further cells: one factor at a time."""

    mechanisms: Mechanisms | None = None
    capacities: list[Bytes] | None = None
    mglru: States | None = None
    read: Read | None = None
    advice: Advices | None = None
    threads: Threads | None = None
    barrier: Barrier | None = None
    headroom: Headroom | None = None
    balloon: BalloonOptions | None = None


Pools = Annotated[
    list[Annotated[PoolSource, BeforeValidator(_as_path)]],
    BeforeValidator(_as_list),
    Field(min_length=1),
]


class Campaign(_Model):
    """The keys of a campaign file; everything but `trace` and `pool` has a default."""

    trace: Annotated[TraceSource, BeforeValidator(_as_path)]
    pool: Pools
    tiers: Annotated[list[Literal["page-cache"]], Field(min_length=1)] = ["page-cache"]
    mechanisms: Mechanisms = ["wall"]
    capacities: list[Bytes] = []
    mglru: States = ["keep"]
    read: Read = "pread"
    advice: Advices = ["default"]
    threads: Threads = 8
    barrier: Barrier = "record"
    headroom: Headroom = "auto"
    balloon: BalloonOptions = BalloonOptions()
    variations: list[Variation] = []
    repetitions: Annotated[int, Field(gt=0)] = 1
    seed: int = 0
    limits: ValidityLimits = ValidityLimits()

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


def load_campaign(path: Path, *, trace: str | None = None, pool: str | None = None) -> Campaign:
    """Read a campaign file; `trace` and `pool` are paths that replace the file's own.

    Raises InputError naming file, line and field of the first mistake.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{path}: cannot read the campaign: {reason}; name a YAML file") from None
    document, root = _parse(text, path)
    if trace is not None:
        document["trace"] = _override(document.get("trace"), trace)
    if pool is not None:
        document["pool"] = pool
    try:
        return Campaign.model_validate(document)
    except ValidationError as error:
        raise InputError(_explain(error, root, path)) from None


def _override(source: object, path: str) -> dict[str, object]:
    """`--trace` names another file; a cut that the campaign asks for stays."""
    steps = source.get("steps") if isinstance(source, dict) else None
    return {"path": path} if steps is None else {"path": path, "steps": steps}


def _parse(text: str, path: Path) -> tuple[dict[str, Any], yaml.Node]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        document = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{path}:{line}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML: {error}") from None
    if root is None or not isinstance(document, dict):
        raise InputError(f"{path}: a campaign is a mapping with at least 'trace' and 'pool'")
    _refuse_repeated_keys(root, path)
    return document, root


def _refuse_repeated_keys(node: yaml.Node, path: Path) -> None:
    """YAML forbids them and PyYAML takes the last one silently: half an edit would go unseen."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item, path)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: set[str] = set()
    for key, value in node.value:
        if key.value in seen:
            raise InputError(
                f"{path}:{key.start_mark.line + 1}: key '{key.value}' stands twice; remove one"
            )
        seen.add(key.value)
        _refuse_repeated_keys(value, path)


def _explain(error: ValidationError, root: yaml.Node, path: Path) -> str:
    first = error.errors()[0]
    location = [part for part in first["loc"] if not _is_union_tag(part)]
    field = ".".join(str(part) for part in location) or "campaign"
    where = f"{path}:{_line_of(root, location)}"
    if first["type"] == "extra_forbidden":
        return f"{where}: unknown key '{field}'{_nearest(location)}"
    if first["type"] == "missing":
        return f"{where}: key '{field}' is missing"
    message = first["msg"].removeprefix("Value error, ")
    return f"{where}: {field}: {message}"


def _is_union_tag(part: object) -> bool:
    """pydantic names the member of a union that failed; that is no part of the user's file."""
    return isinstance(part, str) and ("[" in part or part in ("literal", "int", "constrained-int"))


def _nearest(location: list[Any]) -> str:
    models: dict[str, type[BaseModel]] = {
        "trace": TraceSource,
        "generate": GeneratedTrace,
        "pool": PoolSource,
        "create": CreatedPool,
        "balloon": BalloonOptions,
        "variations": Variation,
        "limits": ValidityLimits,
    }
    parents = [part for part in location[:-1] if isinstance(part, str)]
    model = models[parents[-1]] if parents else Campaign
    known = list(model.model_fields)
    close = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else f"; known keys: {', '.join(known)}"


def _line_of(node: yaml.Node, location: list[Any]) -> int:
    """Line of the deepest part of `location` that stands in the file."""
    line = node.start_mark.line + 1
    for part in location:
        if isinstance(node, yaml.MappingNode) and isinstance(part, str):
            pairs = [(key, value) for key, value in node.value if key.value == part]
            if not pairs:
                return line
            key, node = pairs[0]
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            if part >= len(node.value):
                return line
            node = node.value[part]
            line = node.start_mark.line + 1
        elif not isinstance(part, int):  # an item where one stands for a list of one: same node
            return line
    return line
