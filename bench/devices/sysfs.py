# SPDX-License-Identifier: Apache-2.0
"""The block devices of sysfs: from the folder of one to the whole disks below it.

A partition goes to its disk, device mapper, md and bcache to what their `slaves` name, a loop
device with direct I/O to the disks of its backing file.  A disk reached twice (two mirrors on one,
a thin pool's data and metadata) is one leaf.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pagetier.bench.devices.model import Leaf, Partition, UnresolvedDevice
from pagetier.bench.kernel.diskstats import SECTOR_BYTES
from pagetier.bench.kernel.text import read_count, read_line, read_selected

__all__ = ["Descent", "descend", "device_number", "leaf_of", "node_name"]

_MEMORY_DISKS = ("zram", "ram")
# No real stack is this deep; a loop device whose file lies on itself would be endless.
_DEEPEST = 12

_DM_KINDS = {
    "LVM": "LVM",
    "CRYPT": "dm-crypt",
    "mpath": "multipath",
    "DMRAID": "dmraid",
    "VERITY": "dm-verity",
}


@dataclass(slots=True)
class Descent:
    """What a walk found: names in order, leaves once each, remarks, traits."""

    chain: list[str] = field(default_factory=list)
    leaves: dict[tuple[int, int], Leaf] = field(default_factory=dict)
    layers: list[str] = field(default_factory=list)
    traits: list[str] = field(default_factory=list)

    def pass_by(self, name: str) -> None:
        """Note a node of the chain, once."""
        if name not in self.chain:
            self.chain.append(name)


BelowFile = Callable[[Path, Descent, int], None]


def descend(path: Path, node: Path, found: Descent, below_file: BelowFile, depth: int = 0) -> None:
    """Walk from `node`, a folder of sysfs, to the disks; CapabilityError when it is blocked.

    `below_file` goes on from the backing file of a loop device.
    """
    if depth > _DEEPEST:
        raise UnresolvedDevice(f"{path}: {node_name(node)} is stacked more than {_DEEPEST} deep")
    partition = None
    disk = node
    if (node / "partition").exists():
        partition = Partition(node_name(node), *device_number(node))
        disk = node.parent
        found.pass_by(partition.name)
    name = node_name(disk)
    found.pass_by(name)
    _refuse_memory(path, name)
    if (disk / "loop").is_dir() or name.startswith("loop"):
        _through_loop(path, disk, found, below_file, depth)
        return
    below = sorted((disk / "slaves").glob("*"), key=lambda entry: entry.name)
    if not below:
        _end(path, disk, partition, found)
        return
    _remark(disk, found)
    for entry in below:
        descend(path, entry.resolve(), found, below_file, depth + 1)


def _through_loop(
    path: Path, disk: Path, found: Descent, below_file: BelowFile, depth: int
) -> None:
    name = node_name(disk)
    backing = read_line(disk / "loop/backing_file")
    if not backing:
        raise UnresolvedDevice(f"{path}: on the loop device {name}, whose file cannot be seen")
    if read_line(disk / "loop/dio") != "1":
        raise UnresolvedDevice(
            f"{path}: on the loop device {name} over {backing}, whose pages are cached twice, so "
            "that device bytes are not what the pool's file system asked for",
            f"switch it to direct I/O (`losetup --direct-io=on /dev/{name}`), or put the pool on "
            "the disk itself",
        )
    found.layers.append(f"{name} is a loop device over {backing}, with direct I/O")
    below_file(Path(backing), found, depth + 1)


def _end(path: Path, disk: Path, partition: Partition | None, found: Descent) -> None:
    name = node_name(disk)
    if name.startswith(("dm-", "md", "bcache")):
        raise UnresolvedDevice(
            f"{path}: on {name}, and sysfs names no device below it, as in some containers"
        )
    number = device_number(disk)
    known = found.leaves.get(number)
    if known is not None and known.partition != partition:
        # Two partitions of one disk: only the disk's line holds both.
        partition = None
    found.leaves[number] = leaf_of(path, disk, partition)


def leaf_of(path: Path, node: Path, partition: Partition | None = None) -> Leaf:
    """The record of a block device that is counted as it is; a partition has its disk's queue."""
    disk = node.parent if (node / "partition").exists() else node
    _refuse_memory(path, node_name(disk))
    major, minor = device_number(node)
    queue = disk / "queue"
    sectors = read_count(node / "size")
    return Leaf(
        name=node_name(node),
        major=major,
        minor=minor,
        partition=partition,
        iostats=_switch(queue / "iostats"),
        rotational=_switch(queue / "rotational"),
        model=read_line(disk / "device/model"),
        scheduler=read_selected(queue / "scheduler"),
        logical_block_bytes=read_count(queue / "logical_block_size"),
        size_bytes=None if sectors is None else sectors * SECTOR_BYTES,
    )


def _refuse_memory(path: Path, name: str) -> None:
    if name.startswith(_MEMORY_DISKS):
        raise UnresolvedDevice(
            f"{path}: on {name}, which lies in memory, so its reads are no device reads",
            "put the pool on a local disk with ext4, xfs or btrfs",
        )


def _remark(disk: Path, found: Descent) -> None:
    name = node_name(disk)
    level, title = read_line(disk / "md/level"), read_line(disk / "dm/name")
    if level:
        found.layers.append(f"{name} is md {level}")
    if title is None:
        return
    prefix = (read_line(disk / "dm/uuid") or "").partition("-")[0]
    kind = _DM_KINDS.get(prefix, "device mapper")
    found.layers.append(f"{name} is {kind} ({title})")
    if prefix == "CRYPT" and "encrypted" not in found.traits:
        found.traits.append("encrypted")


def _switch(path: Path) -> bool | None:
    value = read_count(path)
    return None if value is None else value != 0


def node_name(folder: Path) -> str:
    """Name of a block device: sysfs writes the slash of `cciss/c0d0` as an exclamation mark."""
    return folder.name.replace("!", "/")


def device_number(folder: Path) -> tuple[int, int]:
    """(major, minor) of a block device's folder."""
    text = read_line(folder / "dev") or ""
    major, colon, minor = text.partition(":")
    if not (colon and major.isdecimal() and minor.isdecimal()):
        raise UnresolvedDevice(f"{folder / 'dev'}: {text!r} is not MAJOR:MINOR", "mount sysfs")
    return int(major), int(minor)
