# SPDX-License-Identifier: Apache-2.0
"""Boot profiles of a real host: which `mem=` gives which capacity, and what is still to be booted.

A campaign's `boot` cells need a kernel that was started with less memory.  The plan has one boot
per capacity, largest first, and lies in the results directory as `boot-plan.json`.  Sizes are
bytes.
"""

import json
import platform
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pagetier.analysis.errors import InputError
from pagetier.analysis.files import replace_file
from pagetier.analysis.units import format_bytes
from pagetier.bench.cells import CellSpec
from pagetier.bench.kernel.iomem import read_system_ram
from pagetier.capacity.boot import (
    TOLERANCE,
    BootProfile,
    profile_options,
    read_boot_profile,
)
from pagetier.capacity.meminfo import read_meminfo
from pagetier.cgroups.roots import Roots

__all__ = [
    "HELD_BYTES",
    "BootPlan",
    "HostMemory",
    "Profile",
    "has_plan",
    "load_plan",
    "mem_bytes",
    "plan_boots",
    "read_host_memory",
    "save_plan",
]

PLAN_FILE = "boot-plan.json"

_MIB = 2**20
# What harness and worker need beyond what the host held before they started: 66 MiB at loop entry,
# and of their mapped files, which count as available then, some 16 MiB that stay in use.
HELD_BYTES = 82 * _MIB
MAX_CORRECTIONS = 3
# mem= is an address on x86 (a range of RAM ends there) and an amount elsewhere.
_BY_ADDRESS = ("x86_64", "i686")


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The host booted normally: MemTotal, what of it programs use, where the RAM lies if known."""

    total_bytes: int
    used_bytes: int
    ram: tuple[tuple[int, int], ...] | None
    by_address: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """One boot: its `mem=`, the capacity that leaves, the ids of the cells it is for, and how often
    its `mem=` was corrected by what such a boot really left."""

    capacity_bytes: int
    mem_bytes: int
    cells: tuple[str, ...]
    corrections: int = 0

    @property
    def name(self) -> str:
        """Short, for tables."""
        return self.arguments.split()[0]

    @property
    def arguments(self) -> str:
        """The words for the kernel's command line."""
        return " ".join(profile_options(self.mem_bytes, self.capacity_bytes))


@dataclass(frozen=True, slots=True)
class BootPlan:
    """The boots of a campaign in their order; `folder` is where the campaign's paths start."""

    folder: str
    normal_total_bytes: int
    profiles: tuple[Profile, ...]

    def upcoming(self, finished: Collection[str]) -> Profile | None:
        """The first boot that has cells to measure; None when all are measured."""
        for profile in self.profiles:
            if not set(profile.cells) <= set(finished):
                return profile
        return None

    def find(self, boot: BootProfile | None) -> Profile | None:
        """The profile that was booted exactly so."""
        for profile in self.profiles:
            if boot == BootProfile(profile.mem_bytes, profile.capacity_bytes):
                return profile
        return None

    def booted(self, roots: Roots) -> Profile | None:
        """The profile of the running kernel, None for the normal boot.

        Raises InputError when its mem= is of no boot of this plan, or its MemTotal does not fit.
        """
        found = read_boot_profile(roots)
        if found is None:
            return None
        profile = self.find(found)
        if profile is not None:
            _check_total(profile, read_meminfo(roots).total_bytes)
            return profile
        planned = "; ".join(profile.arguments for profile in self.profiles)
        raise InputError(
            f"{roots.proc / 'cmdline'}: mem= of {found.mem_bytes} bytes for a capacity of "
            f"{found.capacity_bytes} is no boot of this plan: boot with one of `{planned}`, or "
            "normally"
        )

    def corrected(self, booted: Profile, available_bytes: int) -> "BootPlan | None":
        """The plan with another mem= for the boot that runs; None when it leaves its capacity.

        Raises InputError when that was tried often enough: each time costs somebody a reboot.
        """
        missing_bytes = booted.capacity_bytes + HELD_BYTES - available_bytes
        if abs(missing_bytes) <= TOLERANCE * booted.capacity_bytes:
            return None
        if booted.corrections == MAX_CORRECTIONS:
            raise InputError(
                f"/proc/meminfo: {booted.name} leaves {available_bytes} bytes, too far from the "
                f"{booted.capacity_bytes} asked for, after {MAX_CORRECTIONS} corrections: what "
                "else runs here takes another amount after each boot; stop it, or measure this "
                "capacity with a wall or a balloon"
            )
        other = replace(
            booted,
            mem_bytes=_whole_mib(booted.mem_bytes + missing_bytes),
            corrections=booted.corrections + 1,
        )
        profiles = tuple(other if one == booted else one for one in self.profiles)
        return replace(self, profiles=profiles)


def _check_total(profile: Profile, total_bytes: int) -> None:
    """Too little is corrected by what is available; too much means that mem= did not work."""
    if total_bytes > profile.mem_bytes:
        raise InputError(
            f"/proc/meminfo: MemTotal is {total_bytes} bytes, more than {profile.name}: this "
            "kernel or its firmware does not honour mem=, so boot cells cannot be run here"
        )


def read_host_memory(roots: Roots, machine: str | None = None) -> HostMemory:
    """The running host; raises InputError when it is itself booted with mem=."""
    if read_boot_profile(roots) is not None:
        raise InputError(
            f"{roots.proc / 'cmdline'}: this boot has mem= already, and boots are planned from the "
            "normal one: boot without it first"
        )
    meminfo = read_meminfo(roots)
    available = meminfo.available_bytes
    return HostMemory(
        total_bytes=meminfo.total_bytes,
        used_bytes=0 if available is None else meminfo.total_bytes - available,
        ram=read_system_ram(roots.proc),
        by_address=(machine or platform.machine()) in _BY_ADDRESS,
    )


def mem_bytes(capacity_bytes: int, host: HostMemory) -> int:
    """The mem= that should leave `capacity_bytes` available, a whole number of MiB.

    On top of the capacity come what programs use now, the harness, and the share of RAM that the
    kernel keeps from MemTotal: mostly page descriptors, which shrink with it.  What the boot really
    leaves is looked at before its cells are measured.
    """
    total_bytes = capacity_bytes + host.used_bytes + HELD_BYTES
    if total_bytes >= host.total_bytes:
        raise InputError(
            f"capacity {format_bytes(capacity_bytes)} and the {format_bytes(host.used_bytes)} that "
            f"programs use are more than this host's {format_bytes(host.total_bytes)}: boot cells "
            "take memory away, so name smaller capacities"
        )
    if host.ram is None:
        return _whole_mib(total_bytes)
    installed_bytes = sum(end - start for start, end in host.ram)
    wanted_bytes = -(-total_bytes * installed_bytes // host.total_bytes)
    return _whole_mib(_end_of(wanted_bytes, host.ram) if host.by_address else wanted_bytes)


def _end_of(wanted_bytes: int, ram: Iterable[tuple[int, int]]) -> int:
    """The address below which there is so much RAM: holes are for devices."""
    end = 0
    for start, end in sorted(ram):
        if wanted_bytes <= end - start:
            return start + wanted_bytes
        wanted_bytes -= end - start
    return end


def _whole_mib(size_bytes: int) -> int:
    return -(-size_bytes // _MIB) * _MIB


def plan_boots(cells: Iterable[CellSpec], host: HostMemory, folder: Path) -> BootPlan:
    """One boot per capacity, largest first, with all repetitions and variants of that capacity."""
    by_capacity: dict[int, list[str]] = {}
    for cell in cells:
        if cell.mechanism == "boot" and cell.capacity_bytes is not None:
            by_capacity.setdefault(cell.capacity_bytes, []).append(cell.id)
    profiles = tuple(
        Profile(capacity, mem_bytes(capacity, host), tuple(by_capacity[capacity]))
        for capacity in sorted(by_capacity, reverse=True)
    )
    return BootPlan(str(folder), host.total_bytes, profiles)


# ---- in the results directory -------------------------------------------------------------------


def has_plan(directory: Path) -> bool:
    """Whether boots of this results directory are planned."""
    return (directory / PLAN_FILE).exists()


def load_plan(directory: Path) -> BootPlan:
    """The plan of a results directory; raises InputError when there is none."""
    path = directory / PLAN_FILE
    try:
        document = json.loads(path.read_text())
        profiles = tuple(
            Profile(
                boot["capacity_bytes"], boot["mem_bytes"], tuple(boot["cells"]), boot["corrections"]
            )
            for boot in document["boots"]
        )
        return BootPlan(document["folder"], document["normal_total_bytes"], profiles)
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}: name the results directory of a campaign with boot cells"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: not a boot plan ({error!r}): remove it and resume the campaign on the normal "
            "boot, which makes it anew"
        ) from None


def save_plan(directory: Path, plan: BootPlan) -> None:
    """Keep the plan for after the reboots."""
    document = {
        "folder": plan.folder,
        "normal_total_bytes": plan.normal_total_bytes,
        "boots": [asdict(profile) for profile in plan.profiles],
    }
    replace_file(directory / PLAN_FILE, json.dumps(document, indent=2).encode())
