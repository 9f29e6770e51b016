# SPDX-License-Identifier: Apache-2.0
"""A campaign in which an engine decodes: `engine:` in the place of `trace:` and `tiers:`.

Sizes and paths are as in any campaign.  The first arm is the one that all others are paired with.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, model_validator

from pagetier.analysis.yaml_model import load_yaml_model
from pagetier.bench.campaign import (
    Bytes,
    Headroom,
    ReadAheadKb,
    StrictModel,
    Threads,
    ValidityLimits,
)

__all__ = ["Arm", "EngineCampaign", "EngineOptions", "is_engine_campaign", "load_engine_campaign"]

Arm = Literal["mmap", "no-admission", "mlock", "no-mmap", "replay"]


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


class EngineOptions(StrictModel):
    """The engine, its model, and what it decodes; without a temperature it takes the likeliest
    token, and prompt i of the file draws with `seed` + i."""

    name: Literal["llama.cpp"] = "llama.cpp"
    model: str
    prompts: str
    tokens: Annotated[int, Field(gt=0)]
    temperature: Annotated[float, Field(gt=0, lt=1e6)] | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    threads: Threads = 1
    context: Annotated[int, Field(ge=8, le=1 << 20)] = 4096
    backend: str = "CPU"


class EngineCampaign(StrictModel):
    """The keys of an engine's campaign; everything but `engine` and `capacities` has a default."""

    engine: EngineOptions
    arms: list[Arm] = Field(["mmap", "no-admission", "replay"], min_length=1)
    mechanisms: list[Literal["wall", "none"]] = Field(["wall"], min_length=1)
    capacities: list[Bytes] = Field([])
    pairs: Annotated[int, Field(gt=0)] = 3
    headroom: Headroom = "auto"
    read_ahead_kb: ReadAheadKb | None = None
    seed: int = 0
    limits: ValidityLimits = ValidityLimits()
    device: Annotated[list[str], BeforeValidator(_as_list)] = Field([])

    @model_validator(mode="after")
    def _is_whole(self) -> "EngineCampaign":
        if set(self.mechanisms) != {"none"} and not self.capacities:
            raise ValueError("'capacities' is needed by every mechanism but 'none'")
        if len(set(self.arms)) < len(self.arms):
            raise ValueError("an arm stands twice in 'arms'")
        if self.arms[0] == "replay":
            raise ValueError("the first of 'arms' is what others are paired with: name an engine's")
        return self

    def canonical_json(self) -> str:
        """The whole campaign, defaults included, in one canonical text."""
        return json.dumps(self.model_dump(), sort_keys=True, separators=(",", ":"))

    @property
    def sha256(self) -> str:
        """Identity of what was asked for, independent of comments and layout of the file."""
        return sha256(self.canonical_json().encode()).hexdigest()


def load_engine_campaign(path: Path, device: tuple[str, ...] = ()) -> EngineCampaign:
    """Read a campaign file; `device` are the user's words for its disks, instead of the file's.

    Raises InputError naming file, line and field of the first mistake.
    """

    def amend(document: dict[str, Any]) -> None:
        if device:
            document["device"] = list(device)

    return load_yaml_model(path, EngineCampaign, amend)


def is_engine_campaign(path: Path) -> bool:
    """Whether the file names an engine; what cannot be read names none."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return False
    return isinstance(document, dict) and "engine" in document
