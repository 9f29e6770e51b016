# SPDX-License-Identifier: Apache-2.0
"""What this user and this kernel allow: cgroups, swap, locked memory, files, /proc and /sys."""

from pagetier.bench.kernel.swaps import Swap
from pagetier.bench.requirements.model import (
    CHECK,
    EVERY_MECHANISM,
    Findings,
    Judgement,
    Need,
    or_unknown,
)

__all__ = ["ACCESS"]

# Descriptors that a run holds beside its pool's files: samplers, results, the interpreter's own.
_OTHER_FILES = 256
# Mappings beside the pool's: libraries, stacks, heaps.
_OTHER_MAPPINGS = 1024


def _root(host: Findings) -> Judgement:
    return Judgement(
        ok=host.effective_user == 0,
        found=f"user id {host.effective_user}",
        remedy="run with sudo to make walls, to lock a balloon and to read the kernel log",
    )


def _real_proc(host: Findings) -> Judgement:
    faked = ", ".join(host.faked_proc)
    return Judgement(
        ok=not faked,
        found=f"answered by a program (FUSE), not the kernel: {faked}"
        if faked
        else "the kernel's own",
        remedy="run on the host itself: lxcfs shows this container's share there",
    )


def _writable_sysfs(host: Findings) -> Judgement:
    states = {True: "mounted read-write", False: "mounted read-only", None: "its mount is not seen"}
    return Judgement(
        ok=host.sysfs_writable,
        found=states[host.sysfs_writable],
        remedy="run on the host itself, or `mount -o remount,rw /sys`: nothing can be switched",
    )


def _memory_cgroup(host: Findings) -> Judgement:
    problem = host.memory_cgroup_problem
    return Judgement(
        ok=host.memory_cgroup != "none" and problem is None,
        found=f"memory controller on cgroup {host.memory_cgroup}",
        remedy=problem or "boot with the memory controller on (no cgroup_disable=memory)",
    )


def _swap_limit(host: Findings) -> Judgement:
    return Judgement(
        ok=True if not host.swaps else host.swap_limit_file,
        found=_swap_text(host.swaps),
        remedy="turn swap off (`swapoff -a`), or boot with swapaccount=1",
    )


def _swap_off(host: Findings) -> Judgement:
    return Judgement(
        ok=not host.swaps,
        found=_swap_text(host.swaps),
        remedy="turn swap off (`swapoff -a`): nothing limits it for the rest of the host",
    )


def _swap_text(swaps: tuple[Swap, ...]) -> str:
    return f"swap on {', '.join(swap.name for swap in swaps)}" if swaps else "swap is off"


def _compressed_swap(host: Findings) -> Judgement:
    in_memory = [swap.name for swap in host.swaps if swap.in_memory]
    found = [f"swap on {name}, which is memory" for name in in_memory]
    if host.zswap and host.swaps:
        found.append("zswap is on: what is swapped out stays in memory, compressed")
    return Judgement(
        ok=not found,
        found="; ".join(found) or "none in use",
        remedy="turn it off for clean numbers (`swapoff -a`): it takes memory from the page cache "
        "and its reads are no device reads",
    )


def _memlock(host: Findings) -> Judgement:
    limit = None if host.limits is None else host.limits.memlock_bytes
    known = limit is not None or host.may_lock is not None
    unlimited = bool(host.may_lock) or (limit is not None and limit.soft is None)
    soft = "unlimited" if unlimited or limit is None else f"{limit.soft} bytes"
    return Judgement(
        ok=unlimited if known else None,
        found=f"may lock {soft if known else 'an unknown amount'}",
        remedy="run as root, or raise RLIMIT_MEMLOCK: `prlimit --memlock=unlimited --pid PID`, "
        "LimitMEMLOCK=infinity in the unit file, or memlock in /etc/security/limits.conf",
    )


def _open_files(host: Findings) -> Judgement:
    limit = None if host.limits is None else host.limits.open_files
    files = host.pool.files
    ok = None
    if limit is not None and files is not None:
        ok = limit.hard is None or files + _OTHER_FILES <= limit.hard
    hard = "unknown" if limit is None else "unlimited" if limit.hard is None else limit.hard
    return Judgement(
        ok=ok,
        found=f"hard limit {hard}, pool of {or_unknown(files)} files",
        remedy="raise the hard RLIMIT_NOFILE (LimitNOFILE= in the unit file); without it the files "
        "beyond the limit are opened anew for each read, which adds time to it",
    )


def _map_count(host: Findings) -> Judgement:
    limit, files = host.max_map_count, host.pool.files
    ok = None if limit is None or files is None else files + _OTHER_MAPPINGS <= limit
    at_least = "" if files is None else f"={files + _OTHER_MAPPINGS}"
    return Judgement(
        ok=ok,
        found=f"vm.max_map_count {or_unknown(limit)}, pool of {or_unknown(files)} files",
        remedy=f"raise it (`sysctl -w vm.max_map_count{at_least}`), or read with pread",
    )


def _kernel_log(host: Findings) -> Judgement:
    return Judgement(
        ok=host.kernel_log,
        found="readable" if host.kernel_log else "not readable",
        remedy="run as root: OOM kills are then known from the cgroup's events only",
    )


ACCESS = (
    Need("root", _root),
    Need("real /proc", _real_proc, (*EVERY_MECHANISM, CHECK)),
    Need("writable /sys", _writable_sysfs, ("mglru",)),
    Need("memory cgroup", _memory_cgroup, ("wall",)),
    Need("swap limit", _swap_limit, ("wall",)),
    Need("swap off", _swap_off, ("balloon",)),
    Need("compressed swap", _compressed_swap),
    Need("locked memory", _memlock, ("balloon", "arena")),
    Need("open files", _open_files),
    Need("mappings", _map_count, ("mmap",)),
    Need("kernel log", _kernel_log),
)
