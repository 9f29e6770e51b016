# SPDX-License-Identifier: Apache-2.0
"""What the cells of one campaign have in common, and who is told how one is getting on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pagetier.analysis.derive import Limits
from pagetier.analysis.plans import Plan
from pagetier.bench.device import Device
from pagetier.bench.journal import Journal
from pagetier.bench.tiering import Advice
from pagetier.cgroups.detect import Support
from pagetier.cgroups.roots import Roots
from pagetier.tiers.pool import Pool

__all__ = ["Bench", "Observer", "Spec"]


class Spec(Protocol):
    """One cell to measure."""

    @property
    def id(self) -> str: ...

    def describe(self) -> str: ...


class Observer(Protocol):
    """Who is told how a cell is getting on."""

    def start_pass(self, name: str) -> None: ...

    def advance(self, event: dict[str, Any], device_bytes: int | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Bench:
    """What the cells of one campaign share; `prompt` is read before each pass, outside of it."""

    roots: Roots
    support: Support
    device: Device
    pools: dict[str, Pool]
    plan: Plan
    advice: Advice
    accepted_tokens: int | None
    journal: Journal
    limits: Limits
    balloon_floor_bytes: int
    job_dir: Path
    warnings: dict[str, list[dict[str, Any]]]
    audit: bool = False
    prompt: Plan | None = None
