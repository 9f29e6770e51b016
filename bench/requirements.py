# SPDX-License-Identifier: Apache-2.0
"""What a run needs of the host, one function each: found or not, and what to do about it.

Pure functions of findings.  `ok` is None where the answer is unknown, which never stops a run.
`needed_for` holds the mechanisms, tiers and features that cannot do without; when it is empty the
requirement is advice, which a result carries as a label.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pagetier.bench.device import Device
from pagetier.bench.kernel.damon import ProactiveReclaim
from pagetier.bench.kernel.limits import Limits
from pagetier.bench.kernel.oomkillers import OomKiller
from pagetier.bench.kernel.swaps import Swap
from pagetier.capacity.mglru import Mglru

__all__ = ["CHECKS", "Findings", "PoolFindings", "Requirement"]

EVERY_MECHANISM = ("none", "wall", "balloon", "boot")
PRESSURE = ("wall", "balloon", "boot")

# Descriptors that a run holds beside its pool's files: samplers, results, the interpreter's own.
_OTHER_FILES = 256
# Mappings beside the pool's: libraries, stacks, heaps.
_OTHER_MAPPINGS = 1024


@dataclass(frozen=True, slots=True)
class PoolFindings:
    """A pool that is there, or the geometry of one that will be; None where nothing was said."""

    files: int | None = None
    expert_bytes: int | None = None
    layout: str | None = None
    planned_bytes: int | None = None
    present: bool = False
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that was looked at, before it is judged."""

    effective_user: int
    memory_cgroup: str
    memory_cgroup_problem: str | None
    swap_limit_file: bool | None
    swaps: tuple[Swap, ...]
    psi: str
    mglru: Mglru
    residency: bool | None
    limits: Limits | None
    may_lock: bool | None
    max_map_count: int | None
    device: Device | None
    device_problem: tuple[str, str] | None
    oom_killers: tuple[OomKiller, ...]
    proactive_reclaim: ProactiveReclaim
    kernel_log: bool
    free_bytes: int | None
    pool: PoolFindings


@dataclass(frozen=True, slots=True)
class Requirement:
    """One line of the doctor; the remedy is empty where nothing is to be done."""

    name: str
    ok: bool | None
    found: str
    remedy: str
    needed_for: tuple[str, ...] = ()


def _root(host: Findings) -> Requirement:
    return Requirement(
        name="root",
        ok=host.effective_user == 0,
        found=f"user id {host.effective_user}",
        remedy="run with sudo to make walls, to lock a balloon and to read the kernel log",
    )


def _memory_cgroup(host: Findings) -> Requirement:
    problem = host.memory_cgroup_problem
    return Requirement(
        name="memory cgroup",
        ok=host.memory_cgroup != "none" and problem is None,
        found=f"memory controller on cgroup {host.memory_cgroup}",
        remedy=problem or "boot with the memory controller on (no cgroup_disable=memory)",
        needed_for=("wall",),
    )


def _swap_limit(host: Findings) -> Requirement:
    return Requirement(
        name="swap limit",
        ok=True if not host.swaps else host.swap_limit_file,
        found=_swap_text(host.swaps),
        remedy="turn swap off (`swapoff -a`), or boot with swapaccount=1",
        needed_for=("wall",),
    )


def _swap_off(host: Findings) -> Requirement:
    return Requirement(
        name="swap off",
        ok=not host.swaps,
        found=_swap_text(host.swaps),
        remedy="turn swap off (`swapoff -a`): nothing limits it for the rest of the host",
        needed_for=("balloon",),
    )


def _swap_text(swaps: tuple[Swap, ...]) -> str:
    return f"swap on {', '.join(swap.name for swap in swaps)}" if swaps else "swap is off"


def _psi(host: Findings) -> Requirement:
    remedies = {
        "available": "",
        "disabled": "boot with psi=1",
        "absent": "use a kernel with CONFIG_PSI=y (4.20 or later)",
    }
    return Requirement(
        name="psi",
        ok=host.psi == "available",
        found=f"pressure of the host: {host.psi}",
        remedy=remedies[host.psi],
        needed_for=("psi",),
    )


def _scope_psi(host: Findings) -> Requirement:
    ok = host.psi == "available" and host.memory_cgroup == "v2"
    found = "available" if ok else f"none (cgroup {host.memory_cgroup}, host {host.psi})"
    return Requirement(
        name="psi of a scope",
        ok=ok,
        found=f"pressure of a scope: {found}",
        remedy="boot with the memory controller on cgroup v2; the host's pressure stands in",
        needed_for=("psi",),
    )


def _mglru(host: Findings) -> Requirement:
    mask, writable = host.mglru.mask, host.mglru.writable
    refused = "" if writable is not False else ", which may not be written from here"
    remedy = "use a kernel with CONFIG_LRU_GEN (6.1 or later)"
    if mask is not None:
        remedy = "run as root where /sys is mounted read-write: on the host, in no container"
    return Requirement(
        name="mglru",
        ok=host.mglru.available and not refused,
        found="not in this kernel" if mask is None else f"enabled mask {mask:#06x}{refused}",
        remedy=f"leave `mglru: keep`, or {remedy}",
        needed_for=("mglru",),
    )


def _mglru_min_ttl(host: Findings) -> Requirement:
    ttl_ms = host.mglru.min_ttl_ms
    return Requirement(
        name="mglru min_ttl_ms",
        ok=ttl_ms in (None, 0),
        found="no such setting" if ttl_ms is None else f"{ttl_ms} ms",
        remedy="write 0 to /sys/kernel/mm/lru_gen/min_ttl_ms: it kills rather than reclaims",
        needed_for=PRESSURE,
    )


def _residency(host: Findings) -> Requirement:
    answers = {True: "the kernel tells", False: "the kernel does not tell", None: "not asked"}
    return Requirement(
        name="residency",
        ok=host.residency,
        found=f"{answers[host.residency]} which pages of a file are cached",
        remedy="run as the owner of the pool or as root; cachestat(2) needs Linux 6.5",
        needed_for=("in-extent",),
    )


def _memlock(host: Findings) -> Requirement:
    limit = None if host.limits is None else host.limits.memlock_bytes
    known = limit is not None or host.may_lock is not None
    unlimited = bool(host.may_lock) or (limit is not None and limit.soft is None)
    soft = "unlimited" if unlimited or limit is None else f"{limit.soft} bytes"
    return Requirement(
        name="locked memory",
        ok=unlimited if known else None,
        found=f"may lock {soft if known else 'an unknown amount'}",
        remedy="run as root, or raise RLIMIT_MEMLOCK: `prlimit --memlock=unlimited --pid PID`, "
        "LimitMEMLOCK=infinity in the unit file, or memlock in /etc/security/limits.conf",
        needed_for=("balloon", "arena"),
    )


def _open_files(host: Findings) -> Requirement:
    limit = None if host.limits is None else host.limits.open_files
    files = host.pool.files
    ok = None
    if limit is not None and files is not None:
        ok = limit.hard is None or files + _OTHER_FILES <= limit.hard
    hard = "unknown" if limit is None else "unlimited" if limit.hard is None else limit.hard
    return Requirement(
        name="open files",
        ok=ok,
        found=f"hard limit {hard}, pool of {_or_unknown(files)} files",
        remedy="raise the hard RLIMIT_NOFILE (LimitNOFILE= in the unit file); without it the files "
        "beyond the limit are opened anew for each read, which adds time to it",
    )


def _map_count(host: Findings) -> Requirement:
    limit, files = host.max_map_count, host.pool.files
    ok = None if limit is None or files is None else files + _OTHER_MAPPINGS <= limit
    at_least = "" if files is None else f"={files + _OTHER_MAPPINGS}"
    return Requirement(
        name="mappings",
        ok=ok,
        found=f"vm.max_map_count {_or_unknown(limit)}, pool of {_or_unknown(files)} files",
        remedy=f"raise it (`sysctl -w vm.max_map_count{at_least}`), or read with pread",
        needed_for=("mmap",),
    )


def _device(host: Findings) -> Requirement:
    if host.device_problem is not None:
        found, remedy = host.device_problem
        return Requirement("device", False, found, remedy, EVERY_MECHANISM)
    if host.device is None:
        remedy = "name a pool with --pool"
        return Requirement("device", None, "no pool was named", remedy, EVERY_MECHANISM)
    return Requirement("device", True, " on ".join(host.device.chain), "", EVERY_MECHANISM)


def _iostats(host: Findings) -> Requirement:
    device = host.device
    ok = None if device is None else device.iostats
    state = {True: "on", False: "off", None: "unknown"}[ok]
    name = "DEVICE" if device is None else device.name
    return Requirement(
        name="block accounting",
        ok=ok,
        found=f"iostats of {name}: {state}",
        remedy=f"write 1 to /sys/block/{name}/queue/iostats: without it every read counts as 0",
        needed_for=EVERY_MECHANISM,
    )


def _oom_killers(host: Findings) -> Requirement:
    names = sorted({killer.name for killer in host.oom_killers})
    running = ", ".join(f"{killer.name} (pid {killer.pid})" for killer in host.oom_killers)
    return Requirement(
        name="user-space OOM killers",
        ok=not names,
        found=f"running: {running}" if names else "none running",
        remedy=f"stop it for the run: `systemctl stop {' '.join(names)}`" if names else "",
        needed_for=PRESSURE,
    )


def _proactive_reclaim(host: Findings) -> Requirement:
    running = host.proactive_reclaim.running
    return Requirement(
        name="proactive reclaim",
        ok=not running,
        found=f"running: {', '.join(running)}" if running else "none found",
        remedy="idle page cache is evicted without pressure, so results carry a label; it is never "
        "stopped from here: turn its kdamond or module off for clean numbers",
    )


def _kernel_log(host: Findings) -> Requirement:
    return Requirement(
        name="kernel log",
        ok=host.kernel_log,
        found="readable" if host.kernel_log else "not readable",
        remedy="run as root: OOM kills are then known from the cgroup's events only",
    )


def _pool(host: Findings) -> Requirement:
    pool = host.pool
    if not pool.present:
        return Requirement("pool", None, "no pool was named", "name one with --pool")
    return Requirement(
        name="pool",
        ok=not pool.problems,
        found="; ".join(pool.problems) or f"{pool.files} files, all allocated, on one device",
        remedy="make the pool again with `pagetier pool create`",
        needed_for=EVERY_MECHANISM,
    )


def _over_read(host: Findings) -> Requirement:
    limit_bytes = None if host.device is None else host.device.over_read_limit_bytes
    expert_bytes, layout = host.pool.expert_bytes, host.pool.layout
    ok = None
    if layout == "files":
        ok = True
    elif layout is not None and expert_bytes is not None and limit_bytes is not None:
        ok = expert_bytes <= limit_bytes
    at_least = "" if expert_bytes is None else f" to {-(-expert_bytes // 1024)}"
    return Requirement(
        name="readahead against expert size",
        ok=ok,
        found=f"layout {_or_unknown(layout)}, experts of {_or_unknown(expert_bytes)} bytes, reads "
        f"over {_or_unknown(limit_bytes)} bytes are read ahead past their end",
        remedy=f"use one file per expert or `advice: random`, or raise read_ahead_kb{at_least}: a "
        "neighbour's bytes would count as device reads",
    )


def _free_space(host: Findings) -> Requirement:
    planned, free = host.pool.planned_bytes, host.free_bytes
    ok = None if planned is None or free is None else planned <= free
    return Requirement(
        name="free space",
        ok=True if host.pool.present else ok,
        found=f"{_or_unknown(free)} bytes free, "
        + ("pool is there" if host.pool.present else f"{_or_unknown(planned)} needed"),
        remedy="free some space or put the pool on a larger file system",
        needed_for=EVERY_MECHANISM,
    )


def _or_unknown(value: object) -> object:
    return "unknown" if value is None else value


CHECKS: tuple[Callable[[Findings], Requirement], ...] = (
    _root,
    _memory_cgroup,
    _swap_limit,
    _swap_off,
    _psi,
    _scope_psi,
    _mglru,
    _mglru_min_ttl,
    _residency,
    _memlock,
    _open_files,
    _map_count,
    _device,
    _iostats,
    _oom_killers,
    _proactive_reclaim,
    _kernel_log,
    _pool,
    _over_read,
    _free_space,
)
"""Every check, in the order in which the doctor prints them."""
