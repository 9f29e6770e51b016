# SPDX-License-Identifier: Apache-2.0
"""Findings of a host, and a need that judges them.

`ok` is None where the answer is unknown, which never stops anything.  `needed_for` holds the
mechanisms, tiers and features that cannot do without; when it is empty the need is advice, which a
result carries as a label.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pagetier.bench.device import Device
from pagetier.bench.kernel.damon import ProactiveReclaim
from pagetier.bench.kernel.limits import Limits
from pagetier.bench.kernel.numa import Node
from pagetier.bench.kernel.oomkillers import OomKiller
from pagetier.bench.kernel.swaps import Swap
from pagetier.bench.kernel.writers import Writer
from pagetier.capacity.mglru import Mglru

__all__ = [
    "CHECK",
    "EVERY_MECHANISM",
    "PRESSURE",
    "Findings",
    "Judgement",
    "Need",
    "PoolFindings",
    "Requirement",
    "or_unknown",
]

EVERY_MECHANISM = ("none", "wall", "balloon", "boot")
PRESSURE = ("wall", "balloon", "boot")
CHECK = "check"
"""The feature name of the operator's check."""


@dataclass(frozen=True, slots=True)
class PoolFindings:
    """A pool that is there, or the geometry of one that will be; None where nothing was said."""

    files: int | None = None
    expert_bytes: int | None = None
    """Of the largest piece that is read at once: an expert, or an extent of a mapped one."""
    layout: str | None = None
    planned_bytes: int | None = None
    present: bool = False
    problems: tuple[str, ...] = ()
    remedy: str = "make the pool again with `pagetier pool create`"
    writers: tuple[Writer, ...] | None = None
    """None where nobody looked, or not every process could be looked into and none was found."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that was looked at, before it is judged."""

    effective_user: int
    memory_cgroup: str
    memory_cgroup_problem: str | None
    swap_limit_file: bool | None
    swaps: tuple[Swap, ...]
    zswap: bool | None
    psi: str
    mglru: Mglru
    thp: str | None
    nodes: tuple[Node, ...]
    residency: bool | None
    limits: Limits | None
    may_lock: bool | None
    max_map_count: int | None
    faked_proc: tuple[str, ...]
    sysfs_writable: bool | None
    device: Device | None
    device_problem: tuple[str, str] | None
    oom_killers: tuple[OomKiller, ...]
    proactive_reclaim: ProactiveReclaim
    reclaimers: tuple[str, ...]
    proactive_pages: int | None
    kernel_log: bool
    free_bytes: int | None
    pool: PoolFindings


class Judgement(NamedTuple):
    """What a need makes of findings; the remedy matters only where `ok` is not True."""

    ok: bool | None
    found: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Requirement:
    """One line of the doctor; the remedy is empty where nothing is to be done."""

    name: str
    ok: bool | None
    found: str
    remedy: str
    needed_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Need:
    """A declared need: its name, its judgement, and who cannot do without."""

    name: str
    judge: Callable[[Findings], Judgement]
    needed_for: tuple[str, ...] = ()

    def check(self, host: Findings) -> Requirement:
        """This need, judged on the findings of one host."""
        return Requirement(self.name, *self.judge(host), self.needed_for)


def or_unknown(value: object) -> object:
    """A value as a sentence shows it."""
    return "unknown" if value is None else value
