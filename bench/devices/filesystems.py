# SPDX-License-Identifier: Apache-2.0
"""File systems without a block device of their own number: which devices btrfs spans, where an
overlay keeps a file, and why others cannot be resolved.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pagetier.bench.devices.model import UnresolvedDevice
from pagetier.bench.devices.sysfs import device_number
from pagetier.cgroups.mountinfo import Mount

__all__ = ["Btrfs", "find_btrfs", "overlay_lower", "refuse"]

_IN_MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs", "devtmpfs"})
_OUTSIDE = "lies on a server, whose disks this kernel does not count"
_REASONS = {
    "zfs": "has a cache of its own (the ARC) beside the page cache, and sysfs does not name its "
    "disks",
    "bcachefs": "does not name its disks in sysfs in a form that is known here",
    "nfs": _OUTSIDE,
    "nfs4": _OUTSIDE,
    "cifs": _OUTSIDE,
    "smb3": _OUTSIDE,
    "ceph": _OUTSIDE,
    "9p": "is passed in from outside of this machine, whose disks this kernel does not count",
    "virtiofs": "is passed in from outside of this machine, whose disks this kernel does not count",
}


@dataclass(frozen=True, slots=True)
class Btrfs:
    """One mounted btrfs: its devices' folders, and the folder name of its backing device."""

    devices: tuple[Path, ...]
    bdi: str | None


def find_btrfs(path: Path, mount: Mount, sys: Path) -> Btrfs:
    """The devices of the btrfs that is mounted from `mount.source`.

    The source is one of its devices, whichever it was mounted by.
    """
    name, number = os.path.basename(mount.source), _number_of(mount.source)
    for folder in sorted((sys / "fs/btrfs").glob("*/devices")):
        devices = tuple(entry.resolve() for entry in sorted(folder.iterdir()))
        if any(entry.name == name or device_number(entry) == number for entry in devices):
            bdi = folder.parent / "bdi"
            return Btrfs(devices, os.path.basename(os.readlink(bdi)) if bdi.is_symlink() else None)
    raise UnresolvedDevice(
        f"{path}: btrfs at {mount.point} (from {mount.source}) has no folder with its devices in "
        f"{sys / 'fs/btrfs'}"
    )


def _number_of(source: str) -> tuple[int, int] | None:
    """A source such as /dev/mapper/x is a link to the node that sysfs knows."""
    try:
        status = os.stat(source)
    except OSError:
        return None
    if not stat.S_ISBLK(status.st_mode):
        return None
    return os.major(status.st_rdev), os.minor(status.st_rdev)


def overlay_lower(path: Path, mount: Mount) -> Path:
    """Where the file of an overlay really lies; CapabilityError when that cannot be seen."""
    problem = f"{path}: overlay at {mount.point}"
    if "metacopy=on" in mount.super_options:
        raise UnresolvedDevice(f"{problem} keeps names and data of a file apart (metacopy=on)")
    inside = PurePosixPath(mount.root, path.relative_to(mount.point)).relative_to("/")
    wanted = path.stat()
    for folder in _layers(mount):
        place = folder / inside
        if folder.is_absolute() and _is_same(place, wanted):
            return place
    raise UnresolvedDevice(
        f"{problem} keeps the file in a layer that cannot be seen from here, as in a container"
    )


def _layers(mount: Mount) -> list[Path]:
    """Upper layer first, then the lower ones from the top; `lowerdir+` is the form since 6.7."""
    upper: list[Path] = []
    lower: list[Path] = []
    for option in mount.super_options:
        key, _, value = option.partition("=")
        if key == "upperdir":
            upper.append(Path(value))
        elif key in ("lowerdir", "lowerdir+"):
            lower += [Path(part) for part in value.split(":") if part]
    return upper + lower


def _is_same(place: Path, wanted: os.stat_result) -> bool:
    try:
        found = place.lstat()
    except OSError:
        return False
    same_kind = stat.S_IFMT(found.st_mode) == stat.S_IFMT(wanted.st_mode)
    return same_kind and (stat.S_ISDIR(found.st_mode) or found.st_size == wanted.st_size)


def refuse(path: Path, number: str, mount: Mount | None) -> UnresolvedDevice:
    """Why the reads of a file without a block device cannot be counted."""
    if mount is None:
        return UnresolvedDevice(
            f"{path}: device {number} is unresolved, for no mount of it is visible"
        )
    if mount.kind in _IN_MEMORY:
        return UnresolvedDevice(
            f"{path}: {mount.kind} at {mount.point} lies in memory and has no device to measure",
            "put the pool on a local disk with ext4, xfs or btrfs",
        )
    reason = _REASONS.get(mount.kind)
    if reason is None and mount.kind.startswith("fuse"):
        reason = "is served by a program, whose reads are not the pool's"
    return UnresolvedDevice(
        f"{path}: {mount.kind} at {mount.point} (from {mount.source}) "
        + (reason or "has no single block device, so reads for it cannot be counted")
    )
