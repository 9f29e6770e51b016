# SPDX-License-Identifier: Apache-2.0
"""From a file to the whole disk whose counters tell what was read for it.

A file on a partition resolves to the partition's disk: the disk's line of diskstats counts once,
the partition's is kept beside it.  What is stacked (device mapper, md, bcache, loop) or has no
block device of its own (btrfs, overlay, zfs, network and memory file systems) raises
CapabilityError naming it: an unresolved device must never look like zero bytes read.
"""

import os
from dataclasses import asdict, dataclass
from pathlib import Path

from pagetier.analysis.errors import CapabilityError
from pagetier.bench.kernel.diskstats import SECTOR_BYTES
from pagetier.bench.kernel.text import read_count, read_line, read_selected, read_text
from pagetier.cgroups.mountinfo import Mount, mount_of, parse_mountinfo
from pagetier.cgroups.roots import Roots

__all__ = ["Device", "Partition", "UnresolvedDevice", "resolve"]

_WAY_OUT = "put the pool on a partition or a whole disk with ext4 or xfs"
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs", "devtmpfs"})
_MEMORY_DISKS = ("zram", "ram")


class UnresolvedDevice(CapabilityError):
    """The reads for a file cannot be counted: why, and what to do about it, apart and together."""

    def __init__(self, problem: str, remedy: str = _WAY_OUT) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Partition:
    """The part of the disk that a file lies on; its counters are included in the disk's."""

    name: str
    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class Device:
    """A whole disk and what shapes reads from it; None where the kernel does not say.

    `chain` goes from the node the file system is on to the disk.
    """

    name: str
    major: int
    minor: int
    chain: tuple[str, ...]
    partition: Partition | None
    file_system: str | None
    read_ahead_kb: int | None
    max_sectors_kb: int | None
    iostats: bool | None
    rotational: bool | None
    model: str | None
    scheduler: str | None
    logical_block_bytes: int | None
    size_bytes: int | None

    @property
    def number(self) -> str:
        """MAJ:MIN, as io.stat and sysfs write it."""
        return f"{self.major}:{self.minor}"

    @property
    def over_read_limit_bytes(self) -> int | None:
        """The longest read that is not read ahead past its end (mm/readahead.c; measured on 6.18).

        None when either figure is unknown.
        """
        if self.read_ahead_kb is None or self.max_sectors_kb is None:
            return None
        return max(self.read_ahead_kb, self.max_sectors_kb) * 1024

    def read_ahead_path(self, sys: Path) -> Path:
        """The file that sets read_ahead_kb of the backing device that files on this disk use."""
        return sys / "class/bdi" / self.number / "read_ahead_kb"

    def as_dict(self) -> dict[str, object]:
        """The record as host facts keep it."""
        return {**asdict(self), "chain": list(self.chain), "number": self.number}


def resolve(path: Path, roots: Roots) -> Device:
    """The disk below an existing file or directory; CapabilityError when there is no single one."""
    number = os.stat(path).st_dev
    mountinfo = roots.proc / "self/mountinfo"
    mounts = parse_mountinfo(read_text(mountinfo) or "", str(mountinfo))
    mount = mount_of(path.resolve(), mounts)
    major, minor = os.major(number), os.minor(number)
    node = roots.sys / "dev/block" / f"{major}:{minor}"
    if not node.exists():
        raise UnresolvedDevice(_no_block_device(path, f"{major}:{minor}", mount))
    if mount is not None and {"dax", "dax=always"} & set(mount.super_options):
        raise UnresolvedDevice(
            f"{path}: {mount.source} is mounted with dax, which has no page cache to measure",
            f"{_WAY_OUT}, without that option",
        )
    return _from_node(path, node.resolve(), None if mount is None else mount.kind, roots)


def _from_node(path: Path, node: Path, file_system: str | None, roots: Roots) -> Device:
    """`node` is the sysfs directory of a disk or, inside its disk's, of a partition."""
    partition = None
    disk = node
    if (node / "partition").exists():
        partition = Partition(_name(node), *_number(node))
        disk = node.parent
    _refuse_stacked(path, disk)
    major, minor = _number(disk)
    queue = disk / "queue"
    bdi = roots.sys / "class/bdi" / f"{major}:{minor}" / "read_ahead_kb"
    read_ahead_kb = read_count(bdi)
    iostats = read_count(queue / "iostats")
    rotational = read_count(queue / "rotational")
    sectors = read_count(disk / "size")
    return Device(
        name=_name(disk),
        major=major,
        minor=minor,
        chain=(_name(node), _name(disk)) if partition else (_name(disk),),
        partition=partition,
        file_system=file_system,
        read_ahead_kb=read_count(queue / "read_ahead_kb")
        if read_ahead_kb is None
        else read_ahead_kb,
        max_sectors_kb=read_count(queue / "max_sectors_kb"),
        iostats=None if iostats is None else iostats != 0,
        rotational=None if rotational is None else rotational != 0,
        model=read_line(disk / "device/model"),
        scheduler=read_selected(queue / "scheduler"),
        logical_block_bytes=read_count(queue / "logical_block_size"),
        size_bytes=None if sectors is None else sectors * SECTOR_BYTES,
    )


def _refuse_stacked(path: Path, disk: Path) -> None:
    name = _name(disk)
    if (disk / "loop").is_dir() or name.startswith("loop"):
        backing = read_line(disk / "loop/backing_file") or "a file"
        raise UnresolvedDevice(
            f"{path}: on the loop device {name} over {backing}, whose pages are cached twice and "
            "whose device bytes are not the disk's"
        )
    below = sorted(entry.name for entry in (disk / "slaves").glob("*"))
    if below or name.startswith(("dm-", "md", "bcache")):
        title = read_line(disk / "dm/name") or read_line(disk / "md/level")
        raise UnresolvedDevice(
            f"{path}: on {name}{f' ({title})' if title else ''} stacked over "
            f"{', '.join(below) or 'other devices'}, which is not resolved to its disks yet"
        )
    if name.startswith(_MEMORY_DISKS):
        raise UnresolvedDevice(
            f"{path}: on {name}, which lies in memory, so its reads are no device reads"
        )


def _no_block_device(path: Path, number: str, mount: Mount | None) -> str:
    if mount is None:
        return f"{path}: device {number} is unresolved, for no mount of it is visible"
    if mount.kind in _IN_MEMORY:
        return f"{path}: {mount.kind} at {mount.point} lies in memory and has no device to measure"
    return (
        f"{path}: {mount.kind} at {mount.point} (from {mount.source}) has no single block device, "
        "so reads for it cannot be counted yet"
    )


def _name(folder: Path) -> str:
    # sysfs writes the slash of names such as cciss/c0d0 as an exclamation mark.
    return folder.name.replace("!", "/")


def _number(folder: Path) -> tuple[int, int]:
    text = read_line(folder / "dev") or ""
    major, colon, minor = text.partition(":")
    if not (colon and major.isdecimal() and minor.isdecimal()):
        raise UnresolvedDevice(f"{folder / 'dev'}: {text!r} is not MAJOR:MINOR", "mount sysfs")
    return int(major), int(minor)
