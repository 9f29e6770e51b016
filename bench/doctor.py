# SPDX-License-Identifier: Apache-2.0
"""What this host can do, with a remedy for each gap; also the preflight of a run.

Looks only: nothing is started, stopped, written or tuned.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pagetier.analysis.errors import InputError
from pagetier.bench.device import Device, UnresolvedDevice, resolve
from pagetier.bench.host import kernel_release, psi_state
from pagetier.bench.kernel.damon import parse_switch, read_proactive_reclaim
from pagetier.bench.kernel.faked import faked_files
from pagetier.bench.kernel.kmsg import open_kernel_log
from pagetier.bench.kernel.limits import CAP_IPC_LOCK, Limits, has_capability, read_limits
from pagetier.bench.kernel.numa import read_nodes
from pagetier.bench.kernel.oomkillers import read_oom_killers
from pagetier.bench.kernel.reclaimers import read_reclaimers
from pagetier.bench.kernel.swaps import read_swaps
from pagetier.bench.kernel.text import read_count, read_selected, read_text
from pagetier.bench.kernel.vmstat import read_vmstat
from pagetier.bench.kernel.writers import Writer, find_writers
from pagetier.bench.requirements import NEEDS, Findings, PoolFindings, Requirement
from pagetier.capacity.mglru import read_mglru
from pagetier.cgroups.detect import Support, detect
from pagetier.cgroups.mountinfo import parse_mountinfo
from pagetier.cgroups.roots import Roots
from pagetier.native.residency import page_bytes, resident_pages
from pagetier.tiers.pool import Pool, storage_problems

__all__ = ["doctor", "requirements_for", "warnings_of"]


def doctor(
    roots: Roots,
    pool: Pool | None = None,
    *,
    where: Path | None = None,
    planned: PoolFindings | None = None,
    named: Sequence[str] = (),
) -> dict[str, Any]:
    """One JSON object: capabilities as found, and every requirement judged.

    `pool` is examined where it lies; without one, `where` is the folder a pool would be made in and
    `planned` its geometry.  `named` are the user's own words for its disks.
    """
    support = detect(roots)
    place = where if pool is None else pool.root / pool.files()[0]
    device = _resolve(place, roots, named)
    examined = (planned or PoolFindings()) if pool is None else _pool(pool, roots.proc)
    findings = _examine(roots, support, _residency(pool), examined, device, _free_bytes(place))
    return {
        "kernel": kernel_release(roots.proc),
        "page_bytes": page_bytes(),
        "cgroup": {"memory": support.memory, "io": support.io, "manager": support.manager},
        "mglru": {"available": findings.mglru.available, "enabled": findings.mglru.enabled},
        "psi": findings.psi,
        "memlock": _memlock(findings.limits, findings.may_lock),
        "device": None if findings.device is None else findings.device.as_dict(),
        "requirements": [_as_dict(need.check(findings)) for need in NEEDS],
    }


def requirements_for(
    document: Mapping[str, Any], mechanism: str, tier: str, *features: str
) -> list[dict[str, Any]]:
    """What stands in the way of a cell: the failing requirements of all that it uses.

    Features are `psi`, `mglru` (to toggle it), `mmap`, `in-extent` and `check`.
    """
    used = {mechanism, tier, *features}
    return [
        item
        for item in document["requirements"]
        if item["ok"] is False and used.intersection(item["needed_for"])
    ]


def warnings_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Advice that was not met: nothing fails for it, but a result should carry it."""
    return [
        item for item in document["requirements"] if item["ok"] is False and not item["needed_for"]
    ]


def _examine(
    roots: Roots,
    support: Support,
    residency: bool | None,
    pool: PoolFindings,
    resolved: tuple[Device | None, tuple[str, str] | None],
    free_bytes: int | None,
) -> Findings:
    device, device_problem = resolved
    swaps = read_swaps(roots.proc)
    return Findings(
        effective_user=os.geteuid(),
        memory_cgroup=support.memory,
        memory_cgroup_problem=support.problem,
        swap_limit_file=_swap_limit_file(support),
        swaps=swaps or (),
        zswap=_zswap(roots.sys),
        psi=psi_state(roots.proc),
        mglru=read_mglru(roots.sys),
        thp=read_selected(roots.sys / "kernel/mm/transparent_hugepage/enabled"),
        nodes=read_nodes(roots.sys),
        residency=residency,
        limits=read_limits(roots.proc),
        may_lock=has_capability(roots.proc, CAP_IPC_LOCK),
        max_map_count=read_count(roots.proc / "sys/vm/max_map_count"),
        faked_proc=faked_files(roots.proc),
        sysfs_writable=_sysfs_writable(roots.proc),
        device=device,
        device_problem=device_problem,
        oom_killers=read_oom_killers(roots.proc),
        proactive_reclaim=read_proactive_reclaim(roots.sys),
        reclaimers=read_reclaimers(roots.proc),
        proactive_pages=(read_vmstat(roots.proc) or {}).get("pgsteal_proactive"),
        kernel_log=_kernel_log_readable(),
        free_bytes=free_bytes,
        pool=pool,
    )


def _zswap(sys: Path) -> bool | None:
    path = sys / "module/zswap/parameters/enabled"
    text = read_text(path)
    return None if text is None else parse_switch(text, where=str(path))


def _sysfs_writable(proc: Path) -> bool | None:
    """None where the mount cannot be seen; a file's own permissions may still refuse."""
    path = proc / "self/mountinfo"
    mounts = parse_mountinfo(read_text(path) or "", str(path))
    options = [
        {*mount.mount_options, *mount.super_options} for mount in mounts if mount.kind == "sysfs"
    ]
    # In a container sysfs is often mounted twice; what is mounted last is what is seen.
    return None if not options else "ro" not in options[-1]


def _resolve(
    place: Path | None, roots: Roots, named: Sequence[str]
) -> tuple[Device | None, tuple[str, str] | None]:
    if place is None:
        return None, None
    try:
        return resolve(place, roots, named), None
    except UnresolvedDevice as error:
        return None, (error.problem, error.remedy)
    except OSError as error:
        problem = f"{place}: {error.strerror}"
        return None, (problem, "name an existing pool, or make one with `pagetier pool create`")


def _swap_limit_file(support: Support) -> bool | None:
    """Whether swap of a scope can be limited; None where only making a scope would tell."""
    if support.base is None:
        return None
    if support.memory == "v1":
        # Absent without swap accounting, at every level of the hierarchy.
        return (support.base / "memory.memsw.limit_in_bytes").exists()
    # The root of a v2 hierarchy has no such file, so that its absence says nothing.
    return True if (support.base / "memory.swap.max").exists() else None


def _residency(pool: Pool | None) -> bool | None:
    """Asked of a file of the pool, for the answer depends on who owns it."""
    if pool is None:
        return None
    try:
        with pool.opened() as root_fd, pool.opened_file(root_fd, pool.files()[0]) as fd:
            return resident_pages(fd, 0, 1) is not None
    except (InputError, OSError):
        return None


def _kernel_log_readable() -> bool:
    log = open_kernel_log()
    if log is None:
        return False
    log.close()
    return True


def _free_bytes(place: Path | None) -> int | None:
    with contextlib.suppress(OSError):
        if place is not None:
            status = os.statvfs(place)
            return status.f_bavail * status.f_frsize
    return None


def _pool(pool: Pool, proc: Path) -> PoolFindings:
    try:
        problems = storage_problems(pool)
    except InputError as error:
        problems = [str(error)]
    return PoolFindings(
        files=len(pool.files()),
        expert_bytes=pool.largest_extent_bytes,  # over-read is about one read
        layout=pool.layout,
        planned_bytes=pool.total_bytes,
        present=True,
        problems=tuple(problems),
        remedy=pool.remedy,
        writers=_writers(pool, proc),
    )


def _writers(pool: Pool, proc: Path) -> tuple[Writer, ...] | None:
    try:
        statuses = [os.stat(pool.root / name) for name in pool.files()]
    except OSError:  # the pool's own problem, which is told as such
        return None
    found, closed = find_writers(proc, {(one.st_dev, one.st_ino) for one in statuses})
    return found if found or not closed else None


def _memlock(limits: Limits | None, may_lock: bool | None) -> dict[str, Any]:
    limit = None if limits is None else limits.memlock_bytes
    return {
        "soft_bytes": None if limit is None else limit.soft,
        "hard_bytes": None if limit is None else limit.hard,
        "cap_ipc_lock": may_lock,
    }


def _as_dict(requirement: Requirement) -> dict[str, Any]:
    return {**asdict(requirement), "needed_for": list(requirement.needed_for)}
