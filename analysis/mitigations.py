# SPDX-License-Identifier: Apache-2.0
"""The three remedies of the main paper's section 5, ranked for one host, with exact commands.

Nothing is run here: a command is for the operator to read, and to adapt where it holds a word in
capitals.  Sizes in commands are plain bytes, for a suffix means 1024 to systemd and 1000 to others.
"""

import shlex
from dataclasses import dataclass

from pagetier.analysis.check import LOCKED_SHARE
from pagetier.analysis.units import format_bytes

__all__ = ["Locker", "Mitigation", "Situation", "mitigations"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Locker:
    """A process and what it has locked."""

    pid: int
    name: str
    locked_bytes: int


@dataclass(frozen=True, slots=True)
class Situation:
    """What the commands depend on; None where it could not be seen."""

    cgroup_version: str
    """`v2`, `v1` or `none`."""
    cgroup_mount: str | None
    """Folder of the hierarchy that has the memory controller."""
    systemd: bool
    reader_pid: int | None
    reader_unit: str | None
    """systemd's name for the reader's cgroup."""
    reader_limit_bytes: int | None
    total_bytes: int | None
    available_bytes: int | None
    unevictable_bytes: int | None
    lockers: tuple[Locker, ...]
    mglru_mask: int | None
    """None where the kernel has no MGLRU."""


@dataclass(frozen=True, slots=True)
class Mitigation:
    """One remedy: whether it is one for this host, why, and the command."""

    name: str
    applies: bool
    why: str
    command: str


def mitigations(situation: Situation) -> tuple[Mitigation, ...]:
    """All three; those that apply here first, each group in the paper's order."""
    found = (_confine(situation), _unlock(situation), _classic_lru(situation))
    return tuple(sorted(found, key=lambda mitigation: not mitigation.applies))


def _confine(host: Situation) -> Mitigation:
    name = "confine the reader in a memory-limited cgroup"
    if host.reader_limit_bytes is not None:
        return Mitigation(
            name,
            False,
            f"the reader is confined already, to {format_bytes(host.reader_limit_bytes)}",
            "",
        )
    if host.cgroup_version == "none":
        return Mitigation(
            name,
            False,
            "this kernel or container offers no memory controller",
            "boot with the memory controller on (no cgroup_disable=memory)",
        )
    return Mitigation(
        name,
        True,
        "under a limit reclaim looks at the reader's own pages alone; restart the reader inside, "
        "for pages that are cached already stay charged where they are",
        _confine_command(host),
    )


def _confine_command(host: Situation) -> str:
    # A tenth is left to everyone else: the limit is to be met before the host runs short.
    limit = "BYTES"
    if host.available_bytes is not None:
        limit = str(host.available_bytes * 9 // 10 // _MIB * _MIB)
    if host.systemd and host.cgroup_version == "v2":
        limits = f"MemoryMax={limit} MemorySwapMax=0"
        if host.reader_unit is not None:
            return f"systemctl set-property --runtime {shlex.quote(host.reader_unit)} {limits}"
        properties = " ".join(f"-p {word}" for word in limits.split())
        return f"systemd-run --scope {properties} READER"
    folder = f"{host.cgroup_mount or '/sys/fs/cgroup'}/reader"
    file = "memory.max" if host.cgroup_version == "v2" else "memory.limit_in_bytes"
    pid = "PID" if host.reader_pid is None else str(host.reader_pid)
    return f"mkdir {folder} && echo {limit} > {folder}/{file} && echo {pid} > {folder}/cgroup.procs"


def _unlock(host: Situation) -> Mitigation:
    name = "reduce the locked region"
    total, held = host.total_bytes, host.unevictable_bytes
    if total is None or held is None:
        return Mitigation(name, False, "it could not be seen how much is locked", "")
    surplus = held - int(LOCKED_SHARE * total)
    if surplus <= 0:
        why = f"{format_bytes(held)} of {format_bytes(total)} is unevictable: no large share"
        return Mitigation(name, False, why, "")
    why = f"{format_bytes(surplus)} less would bring it to {LOCKED_SHARE:.0%} of memory"
    if not host.lockers:
        return Mitigation(name, True, why, "grep -H VmLck /proc/[0-9]*/status | sort -nk2 | tail")
    largest = host.lockers[0]
    less = max(0, largest.locked_bytes - surplus)
    why += f"; pid {largest.pid} ({largest.name}) has locked {format_bytes(largest.locked_bytes)}"
    program = shlex.quote(largest.name)
    return Mitigation(name, True, why, f"prlimit --memlock={less}:{less} {program} ARGUMENTS")


def _classic_lru(host: Situation) -> Mitigation:
    name = "test with MGLRU off"
    if host.mglru_mask is None:
        return Mitigation(name, False, "this kernel has no MGLRU", "")
    if not host.mglru_mask & 1:
        return Mitigation(name, False, "it is off already", "")
    return Mitigation(
        name,
        True,
        "a test, to be undone: classic LRU cut the paper's amplified reads by a factor of 2.6; "
        f"back with `echo {host.mglru_mask:#06x} > /sys/kernel/mm/lru_gen/enabled`",
        "echo 0 > /sys/kernel/mm/lru_gen/enabled",
    )
