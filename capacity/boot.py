# SPDX-License-Identifier: Apache-2.0
"""The boot mechanism: a kernel started with mem=, so that about C bytes are left for the cache.

Sizes are bytes.  Nothing is set here: enforcing means to verify that this boot is the profile of C
and to record what it really leaves.  On x86 mem= cuts at an address, so MemTotal may lie well under
it; the effective capacity is MemAvailable at loop entry, with harness and worker already there.
A boot made for a cell carries `pagetier.capacity=C` beside mem= (the kernel ignores names with a
dot that it does not know), so that two capacities close to each other are never mixed up.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pagetier.capacity.base import Enforced
from pagetier.capacity.errors import CapacityError
from pagetier.capacity.meminfo import Meminfo, read_meminfo
from pagetier.cgroups.files import read_text
from pagetier.cgroups.roots import Roots
from pagetier.cgroups.scope import Scope

__all__ = [
    "Boot",
    "BootEnforcement",
    "BootProfile",
    "parse_boot_profile",
    "profile_options",
    "profile_problem",
    "read_boot_profile",
]

TOKEN = "pagetier.capacity"
# Loop entry may miss C by this share and, for small ones, by this amount: mem= is cut before anyone
# knows what the kernel takes, and programs' own mapped files count as available.
TOLERANCE = 0.10
TOLERANCE_BYTES = 32 << 20

_SUFFIXES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(0x[0-9a-f]+|\d+)([kmgt]?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class BootProfile:
    """What the kernel was booted with; `capacity_bytes` is None without our token."""

    mem_bytes: int
    capacity_bytes: int | None


def parse_boot_profile(command_line: str) -> BootProfile | None:
    """The profile in /proc/cmdline; None without mem=.  The last of several counts, as for mem=.

    `memmap=` and sizes that the kernel would not take (memparse in lib/cmdline.c) are no profile.
    """
    mem = _last_size(command_line, "mem")
    return None if mem is None else BootProfile(mem, _last_size(command_line, TOKEN))


def read_boot_profile(roots: Roots) -> BootProfile | None:
    """The profile of this boot."""
    return parse_boot_profile(read_text(roots.proc / "cmdline"))


def profile_options(mem_bytes: int, capacity_bytes: int) -> tuple[str, str]:
    """The kernel options of a profile, as they stand on a command line."""
    return f"mem={mem_bytes // 1024}K", f"{TOKEN}={capacity_bytes}"


def profile_problem(
    profile: BootProfile | None, meminfo: Meminfo, capacity_bytes: int
) -> str | None:
    """Why this boot is not the profile of a capacity, with the remedy; None when it is.

    Before the harness has its memory only the token decides; without one MemTotal has to be at
    least C and not more than it by half and 1 GiB.
    """
    if profile is None:
        return (
            f"this kernel was booted without mem=: boot it with about `mem="
            f"{_suggested_bytes(capacity_bytes) // 1024}K {TOKEN}={capacity_bytes}`, or use "
            "`pagetier lab run`"
        )
    if profile.capacity_bytes == capacity_bytes:
        return None  # programs may use much beside C on a real host: MemTotal says nothing then
    if profile.capacity_bytes is not None:
        return f"this boot is the profile of {profile.capacity_bytes} bytes: boot that of this one"
    most_bytes = capacity_bytes + capacity_bytes // 2 + (1 << 30)
    if not capacity_bytes <= meminfo.total_bytes <= most_bytes:
        return (
            f"MemTotal is {meminfo.total_bytes} bytes, which cannot leave {capacity_bytes}: boot "
            f"with about `mem={_suggested_bytes(capacity_bytes) // 1024}K`"
        )
    return None


class BootEnforcement:
    """A boot that was verified; only memory hotplug can change it."""

    def __init__(self, enforced: Enforced, total_bytes: int, roots: Roots) -> None:
        self._enforced = enforced
        self._total_bytes = total_bytes
        self._roots = roots

    @property
    def enforced(self) -> Enforced:
        """mem= as booted, MemTotal and MemAvailable at loop entry among the facts."""
        return self._enforced

    def problems(self) -> list[str]:
        """MemTotal is another."""
        now_bytes = read_meminfo(self._roots).total_bytes
        if now_bytes == self._total_bytes:
            return []
        return [f"MemTotal is {now_bytes}, was {self._total_bytes}: memory was plugged"]


class Boot:
    """Verify that the running kernel leaves about C bytes."""

    name = "boot"

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    @contextmanager
    def enforce(self, capacity_bytes: int | None, scope: Scope | None) -> Iterator[BootEnforcement]:
        """Raises CapacityError, with the mem= to boot, when this boot is not the one for C."""
        if capacity_bytes is None:
            raise CapacityError("a boot needs the capacity that it was made for")
        profile, meminfo = read_boot_profile(self._roots), read_meminfo(self._roots)
        problem = profile_problem(profile, meminfo, capacity_bytes)
        if problem is not None or profile is None:
            raise CapacityError(problem or "this kernel was booted without mem=")
        available_bytes = _checked_available(profile, meminfo, capacity_bytes)
        enforced = Enforced(
            mechanism=self.name,
            capacity_bytes=capacity_bytes,
            headroom_bytes=None,
            limit_bytes=None,
            swap_limit_bytes=None,
            locked_bytes=None,
            facts={
                "mem_argument_bytes": profile.mem_bytes,
                "profile_capacity_bytes": profile.capacity_bytes,
                "mem_total_bytes": meminfo.total_bytes,
                "mem_available_bytes": available_bytes,
            },
        )
        yield BootEnforcement(enforced, meminfo.total_bytes, self._roots)


def _checked_available(profile: BootProfile, meminfo: Meminfo, capacity_bytes: int) -> int:
    available_bytes = meminfo.available_bytes
    if available_bytes is None:
        raise CapacityError("this kernel has no MemAvailable (3.14): no capacity can be told")
    missing_bytes = capacity_bytes - available_bytes
    if abs(missing_bytes) > TOLERANCE * capacity_bytes + TOLERANCE_BYTES:
        raise CapacityError(
            f"this boot leaves {available_bytes} bytes at loop entry, not {capacity_bytes}: boot "
            f"with `mem={(profile.mem_bytes + missing_bytes) // 1024}K`"
        )
    return available_bytes


def _suggested_bytes(capacity_bytes: int) -> int:
    """C, page structures (64 of 4096 bytes) and what kernel, harness and worker take."""
    return capacity_bytes + capacity_bytes // 64 + (384 << 20)


def _last_size(command_line: str, name: str) -> int | None:
    """The last `name=SIZE` among the words of a command line."""
    found = None
    for word in command_line.split():
        key, equals, value = word.partition("=")
        match = _SIZE.fullmatch(value.lower())
        if key == name and equals and match:
            found = int(match[1], 0) * _SUFFIXES[match[2]]
    return found
