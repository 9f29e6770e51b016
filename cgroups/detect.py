# SPDX-License-Identifier: Apache-2.0
"""Which cgroup version controls memory and I/O here, and where scopes may be made.

Controllers are looked up one by one: on a hybrid host both versions are mounted and `memory` may be
on either (a v2 mount alone proves nothing).  When scopes cannot be made, `problem` names the first
missing step; detection itself changes nothing.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pagetier.cgroups.files import read_optional
from pagetier.cgroups.mounts import (
    UNIFIED,
    CgroupMount,
    directory_of,
    parse_memberships,
    parse_mounts,
)
from pagetier.cgroups.roots import Roots

__all__ = ["Support", "detect"]

_DELEGATED = ("user.delegate", "trusted.delegate")


@dataclass(frozen=True, slots=True)
class Support:
    """What this host offers; scopes can be made exactly when `base` is not None."""

    memory: str
    """Version that has the memory controller: `v2`, `v1` or `none`."""
    base: Path | None
    """Parent of new scopes; with manager `systemd` the slice where systemd puts them."""
    manager: str
    """Who makes scopes: `systemd` or `cgroupfs` (we do)."""
    io: str
    """Version that counts I/O for a scope: `v2`, `v1` or `none`."""
    problem: str | None
    """Why `base` is None and what to do; None when all is well."""
    roots: Roots
    mount: Path | None = None
    """Mount point of the memory controller's hierarchy."""
    io_base: Path | None = None
    """Parent of a scope's blkio directory on v1."""
    enable: tuple[str, ...] = ()
    """Controllers that `base` must first hand to its children, which is ours to do."""
    options: tuple[str, ...] = ()
    """Options of systemd-run that choose the manager."""


@dataclass(frozen=True, slots=True)
class _Host:
    """Facts that every step of the detection looks at."""

    roots: Roots
    mounts: list[CgroupMount]
    paths: dict[str, str]
    systemd: bool
    systemd_run: bool
    euid: int

    def mount_of(self, version: str, controller: str) -> CgroupMount | None:
        for mount in self.mounts:
            if mount.version == version and (version == "v2" or controller in mount.controllers):
                return mount
        return None


def detect(
    roots: Roots,
    *,
    euid: int | None = None,
    find_program: Callable[[str], str | None] = shutil.which,
) -> Support:
    """Look at the mounts and at our own place in them; raises OSError only without procfs."""
    own = roots.proc / "self"
    host = _Host(
        roots=roots,
        mounts=parse_mounts((own / "mountinfo").read_text("utf-8", "surrogateescape")),
        paths=parse_memberships((own / "cgroup").read_text("utf-8", "surrogateescape")),
        systemd=(read_optional(roots.proc / "1" / "comm") or "").strip() == "systemd",
        systemd_run=find_program("systemd-run") is not None,
        euid=os.geteuid() if euid is None else euid,
    )
    v1 = host.mount_of("v1", "memory")
    if v1 is not None:
        return _detect_v1(host, v1)
    v2 = host.mount_of("v2", "memory")
    if v2 is None:
        return _without(host, "none", "no cgroup file system is mounted with the memory controller")
    if "memory" not in _words(v2.directory(roots) / "cgroup.controllers"):
        return _without(host, "none", _no_controller(host, v2))
    return _detect_v2(host, v2)


def _without(host: _Host, memory: str, problem: str) -> Support:
    manager = "systemd" if host.systemd and memory != "v1" else "cgroupfs"
    return Support(memory, None, manager, "none", problem, host.roots)


def _no_controller(host: _Host, mount: CgroupMount) -> str:
    point = mount.directory(host.roots)
    return (
        f"memory is not in cgroup.controllers of {point}: boot without `cgroup_disable=memory`, or "
        "have the owner of this container's parent cgroup add +memory to its subtree_control"
    )


def _detect_v1(host: _Host, mount: CgroupMount) -> Support:
    """v1 has no delegation: a child of our own cgroup takes processes and limits as it is."""
    base = directory_of(mount, host.paths.get("memory", "/"), host.roots)
    problem = _obstacle(host, mount, base)
    if problem is not None:
        return _without(host, "v1", problem)
    io_base = _blkio_parent(host)
    return Support(
        memory="v1",
        base=base,
        manager="cgroupfs",
        io="none" if io_base is None else "v1",
        problem=None,
        roots=host.roots,
        mount=mount.directory(host.roots),
        io_base=io_base,
    )


def _blkio_parent(host: _Host) -> Path | None:
    mount = host.mount_of("v1", "blkio")
    if mount is None:
        return None
    base = directory_of(mount, host.paths.get("blkio", "/"), host.roots)
    return base if _obstacle(host, mount, base) is None else None


def _obstacle(host: _Host, mount: CgroupMount, base: Path | None) -> str | None:
    """What keeps us from making a child of `base`."""
    point = mount.directory(host.roots)
    if base is None or not base.is_dir():
        return f"our own cgroup is not visible under {point}: mount it with this cgroup namespace"
    if mount.read_only:
        remount = f"`mount -o remount,rw {point}`"
        return f"{point} is mounted read-only: do {remount}, or run outside of this container"
    if not os.access(base, os.W_OK | os.X_OK):
        return f"{base} is not writable for uid {host.euid}: run as root, or have it delegated"
    return None


def _detect_v2(host: _Host, mount: CgroupMount) -> Support:
    if host.systemd:
        return _detect_systemd(host, mount)
    own = directory_of(mount, host.paths.get(UNIFIED, "/"), host.roots)
    if own is None or mount.read_only or not own.is_dir():
        return _without(host, "v2", _obstacle(host, mount, own) or "")
    point = mount.directory(host.roots)
    problems: list[str] = []
    for parent in _up_to(own, point):
        problem = _unfit(host, parent)
        if problem is None:
            return _parent_support(host, point, parent)
        problems.append(problem)
    return _without(host, "v2", problems[0])


def _up_to(cgroup: Path, point: Path) -> Iterator[Path]:
    yield cgroup
    while cgroup != point:
        cgroup = cgroup.parent
        yield cgroup


def _unfit(host: _Host, parent: Path) -> str | None:
    """Why scopes cannot be made in this cgroup, None when they can."""
    if not all(os.access(path, os.W_OK) for path in (parent, parent / "cgroup.procs")):
        return f"{parent} is not writable for uid {host.euid}: run as root, or have it delegated"
    if "memory" in _words(parent / "cgroup.subtree_control"):
        return None
    if "memory" not in _words(parent / "cgroup.controllers"):
        above = parent.parent / "cgroup.subtree_control"
        return f"memory is not in cgroup.controllers of {parent}: `echo +memory > {above}`"
    step = f"`echo +memory > {parent}/cgroup.subtree_control`"
    if _is_true_root(parent):
        return None if host.euid == 0 else f"only root may do {step}"
    if _words(parent / "cgroup.procs"):
        return (
            f"{parent} holds processes, so its children cannot control memory: move them into a "
            f"child cgroup, then {step}"
        )
    if not _is_delegated(host, parent):
        return f"{parent} is not delegated to us: have its owner do {step}"
    return None


def _parent_support(host: _Host, point: Path, parent: Path) -> Support:
    given = _words(parent / "cgroup.subtree_control")
    ours = _is_true_root(parent) or _is_delegated(host, parent)
    offered = _words(parent / "cgroup.controllers") if ours else set()
    wanted = [name for name in ("memory", "io") if name not in given and name in offered]
    return Support(
        memory="v2",
        base=parent,
        manager="cgroupfs",
        io="v2" if "io" in given or "io" in wanted else "none",
        problem=None,
        roots=host.roots,
        mount=point,
        enable=tuple(wanted),
    )


def _is_true_root(cgroup: Path) -> bool:
    """The real root has no cgroup.type, a namespace's root has; only the real one may hold both."""
    return not (cgroup / "cgroup.type").exists()


def _is_delegated(host: _Host, cgroup: Path) -> bool:
    """systemd marks what it delegates by an attribute; else an unprivileged owner was given it."""
    if host.euid != 0 and cgroup.stat().st_uid == host.euid:
        return True
    try:
        return any(name in _DELEGATED for name in os.listxattr(cgroup))
    except OSError:
        return False  # cgroupfs has no attributes before 5.7


def _detect_systemd(host: _Host, mount: CgroupMount) -> Support:
    point = mount.directory(host.roots)
    if not host.systemd_run:
        return _without(host, "v2", "systemd is PID 1 but systemd-run is not installed")
    if mount.read_only:
        return _without(host, "v2", _obstacle(host, mount, point) or "")
    user = f"user.slice/user-{host.euid}.slice/user@{host.euid}.service"
    base = point / ("system.slice" if host.euid == 0 else user)
    support = Support("v2", base, "systemd", "none", None, host.roots, point)
    offered = _words(base / "cgroup.controllers")
    if host.euid != 0:
        support = replace(support, options=("--user",))
        if "memory" not in offered:
            return replace(support, base=None, problem=_not_delegated(host, base))
    return replace(support, io="v2" if "io" in offered else "none")


def _not_delegated(host: _Host, service: Path) -> str:
    if not service.is_dir():
        return f"uid {host.euid} has no systemd user manager: log in, or run as root"
    return (
        f"memory is not in cgroup.controllers of {service}: systemd-run --user needs Delegate=yes "
        "in user@.service (`systemctl edit user@.service`), or run as root"
    )


def _words(path: Path) -> set[str]:
    return set((read_optional(path) or "").split())
