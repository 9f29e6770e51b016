# SPDX-License-Identifier: Apache-2.0
"""What a scope is, whatever the cgroup version, and the records it gives.

Units are in the names.  A number that the kernel does not keep is None, never 0.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pagetier.cgroups.errors import CgroupError
from pagetier.cgroups.psi import Pressure

__all__ = ["Events", "Limits", "MemoryState", "Scope", "check_limit", "check_name", "is_marked"]

_NAME = re.compile(r"pagetier-[0-9A-Za-z]+-[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the kernel enforces; None is no limit, and also says nothing of unaccounted swap."""

    memory_bytes: int | None
    swap_bytes: int | None
    swap_accounted: bool


@dataclass(frozen=True, slots=True)
class MemoryState:
    """Charged memory, descendants included; event counters are pages since the scope was made."""

    current_bytes: int
    peak_bytes: int | None
    anon_bytes: int
    file_bytes: int
    kernel_bytes: int | None
    refault_file_pages: int | None
    pgscan_pages: int | None
    pgsteal_pages: int | None
    raw: dict[str, int]


@dataclass(frozen=True, slots=True)
class Events:
    """Times the limit was hit (`max`), could not be met (`oom`) and cost a process (`oom_kill`)."""

    oom: int | None
    oom_kill: int | None
    max: int | None


class Scope(Protocol):
    """One cgroup for one measured program."""

    @property
    def name(self) -> str:
        """`pagetier-<token>-<n>`."""
        ...

    @property
    def version(self) -> str:
        """Version of the memory controller in use: `v1` or `v2`."""
        ...

    @property
    def path(self) -> Path:
        """Directory of the memory controller's files."""
        ...

    def directories(self) -> tuple[Path, ...]:
        """Every directory made for this scope: what a journal must name for crash recovery."""
        ...

    def create(self) -> None:
        """Make the scope; raises CgroupError when it exists or lacks the memory controller."""
        ...

    def command(self, argv: Sequence[str]) -> list[str]:
        """argv wrapped so that the program starts inside, before its first instruction."""
        ...

    def attach(self, pid: int, timeout_s: float = 10.0) -> None:
        """Wait until the started process is inside; raises CgroupError when it never gets there."""
        ...

    def set_limit(self, memory_bytes: int) -> None:
        """Limit memory and forbid swap; raises CgroupError unless both read back as asked."""
        ...

    def clear_limit(self) -> None:
        """Take the limit away again; a scope that is gone has none."""
        ...

    def exists(self) -> bool:
        """Whether the kernel still has this scope."""
        ...

    def limits(self) -> Limits:
        """Limits as read from the kernel; raises CgroupError when the limit file is absent."""
        ...

    def memory(self) -> MemoryState:
        """Charges and counters now."""
        ...

    def events(self) -> Events:
        """Limit and OOM events since the scope was made."""
        ...

    def pressure(self) -> Pressure | None:
        """Memory stalls of this scope; None without PSI and on v1."""
        ...

    def io(self) -> dict[str, int] | None:
        """Bytes read by `MAJ:MIN`; None when the kernel does not account them."""
        ...

    def pids(self) -> list[int]:
        """Processes inside."""
        ...

    def remove(self) -> None:
        """Kill what is inside, nothing else, and remove the scope; gone already is fine."""
        ...

    def ancestor_limit_bytes(self) -> int | None:
        """The smallest limit above this scope; None when nothing above is limited."""
        ...


def check_limit(scope: Path, asked_bytes: int, limits: Limits) -> None:
    """Raise CgroupError unless the kernel enforces exactly what was asked for, and no swap."""
    if limits.memory_bytes != asked_bytes:
        raise CgroupError(
            f"the memory limit of {scope} reads {limits.memory_bytes}, not the {asked_bytes} asked "
            "for: it is no whole number of pages, or another manager owns this cgroup"
        )
    if limits.swap_accounted and limits.swap_bytes != 0:
        raise CgroupError(f"the swap limit of {scope} reads {limits.swap_bytes}, not 0")


def check_name(name: str) -> str:
    """The name, if it is `pagetier-<token>-<n>`; raises CgroupError otherwise."""
    if _NAME.fullmatch(name) is None:
        raise CgroupError(f"scope name {name!r} is not `pagetier-<token>-<n>`")
    return name


def is_marked(path: Path, token: str) -> bool:
    """Whether this directory's own name carries the marker of the run with this token."""
    if not (token.isascii() and token.isalnum()):
        raise CgroupError(f"token {token!r} is not alphanumeric")
    return _NAME.fullmatch(path.name.removesuffix(".scope")) is not None and path.name.startswith(
        f"pagetier-{token}-"
    )
