# SPDX-License-Identifier: Apache-2.0
"""A file's way down to the disks whose counters tell what was read for it.

Through partitions, device mapper, md, bcache, loop devices with direct I/O, btrfs over any number
of devices, overlays and bind mounts.  What cannot be followed raises CapabilityError naming it and
the way out, the disk's name given by the user: an unresolved device must never look like zero
bytes read.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from pagetier.bench.devices.filesystems import find_btrfs, overlay_lower, refuse
from pagetier.bench.devices.model import Device, UnresolvedDevice
from pagetier.bench.devices.storage import stored_traits
from pagetier.bench.devices.sysfs import Descent, descend, device_number, leaf_of, node_name
from pagetier.bench.kernel.text import read_count, read_text
from pagetier.cgroups.mountinfo import Mount, mount_of, parse_mountinfo
from pagetier.cgroups.roots import Roots

__all__ = ["resolve", "resolve_named"]

# What a backing device that is no disk starts with (bdi_alloc in mm/backing-dev.c: io_pages is
# VM_READAHEAD_PAGES, 128 KiB); no file of sysfs shows it.
_IO_KB_WITHOUT_A_DISK = 128


def resolve(path: Path, roots: Roots, named: Sequence[str] = ()) -> Device:
    """The disks below an existing file or directory.

    `named` are the user's own words for them (names, paths below /dev, MAJ:MIN), which then stand
    instead of what the mounts say; CapabilityError when the disks cannot be found.
    """
    if named:
        return resolve_named(named, path, roots)
    mount = _mount(path, roots)
    number = _file_number(path)
    node = roots.sys / "dev/block" / number
    if mount is not None and mount.kind == "overlay" and not node.exists():
        lower = overlay_lower(path.resolve(), mount)
        device = resolve(lower, roots)
        return replace(device, lower_path=device.lower_path or str(lower))
    if mount is not None and mount.kind == "btrfs" and not node.exists():
        return _on_btrfs(path, number, mount, roots)
    if not node.exists():
        raise refuse(path, number, mount)
    if mount is not None and {"dax", "dax=always"} & set(mount.super_options):
        raise UnresolvedDevice(
            f"{path}: {mount.source} is mounted with dax, which has no page cache to measure",
            "put the pool on a local disk with ext4, xfs or btrfs, without that option",
        )
    top = node.resolve()
    found = _walk(path, [top], roots)
    kind = None if mount is None else mount.kind
    return _device(path, found, kind, _top_disk(top), roots)


def resolve_named(names: Sequence[str], path: Path, roots: Roots) -> Device:
    """The block devices that a user names for a file, each counted exactly as it was named.

    Nothing below them is looked for: who names a loop device wants that device's own counters.
    """
    nodes = [_named_node(name, roots) for name in names]
    found = Descent()
    for node in nodes:
        leaf = leaf_of(path, node)
        found.pass_by(leaf.name)
        found.leaves[leaf.major, leaf.minor] = leaf
        if node.parent in nodes:
            raise UnresolvedDevice(
                f"--device: {leaf.name} is a part of {node_name(node.parent)}, whose counters "
                "include it",
                "name one of the two",
            )
    mount, number = _mount(path, roots), _file_number(path)
    own = roots.sys / "class/bdi" / number
    return replace(
        _without_a_joint(_summary(found, nodes[0]), number),
        file_system=None if mount is None else mount.kind,
        bdi=number if own.exists() else None,
        read_ahead_kb=read_count(own / "read_ahead_kb"),
        max_sectors_kb=_IO_KB_WITHOUT_A_DISK if own.exists() else None,
        traits=_traits(path, found, mount),
        given=True,
    )


def _named_node(name: str, roots: Roots) -> Path:
    if ":" in name:
        node = roots.sys / "dev/block" / name
    else:
        # /dev/disk/by-id/... is a link to the node that sysfs knows by name.
        real = os.path.realpath(name) if name.startswith("/") else name
        node = roots.sys / "class/block" / real.removeprefix("/dev/").replace("/", "!")
    if not node.exists() or not (node / "dev").exists():
        raise UnresolvedDevice(
            f"--device {name}: this host has no such block device",
            "name one that `lsblk` lists, such as nvme0n1",
        )
    return node.resolve()


def _mount(path: Path, roots: Roots) -> Mount | None:
    mountinfo = roots.proc / "self/mountinfo"
    mounts = parse_mountinfo(read_text(mountinfo) or "", str(mountinfo))
    return mount_of(path.resolve(), mounts)


def _file_number(path: Path) -> str:
    number = os.stat(path).st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def _walk(path: Path, nodes: Sequence[Path], roots: Roots) -> Descent:
    found = Descent()

    def below_file(file: Path, descent: Descent, depth: int) -> None:
        for node in _nodes_of_file(path, file, roots):
            descend(path, node, descent, below_file, depth)

    for node in nodes:
        descend(path, node, found, below_file)
    return found


def _nodes_of_file(path: Path, file: Path, roots: Roots) -> Sequence[Path]:
    """Where the backing file of a loop device lies."""
    try:
        number = _file_number(file)
    except OSError as error:
        raise UnresolvedDevice(
            f"{path}: on a loop device over {file}, which cannot be seen from here "
            f"({error.strerror})"
        ) from error
    node = roots.sys / "dev/block" / number
    if node.exists():
        return [node.resolve()]
    mount = _mount(file, roots)
    if mount is not None and mount.kind == "btrfs":
        return find_btrfs(file, mount, roots.sys).devices
    if mount is not None and mount.kind == "overlay":
        return _nodes_of_file(path, overlay_lower(file.resolve(), mount), roots)
    raise refuse(file, number, mount)


def _on_btrfs(path: Path, number: str, mount: Mount, roots: Roots) -> Device:
    volume = find_btrfs(path, mount, roots.sys)
    found = _walk(path, volume.devices, roots)
    device = _without_a_joint(_summary(found, volume.devices[0]), number)
    bdi = roots.sys / "class/bdi" / (volume.bdi or number)
    return replace(
        device,
        file_system=mount.kind,
        bdi=bdi.name,
        read_ahead_kb=read_count(bdi / "read_ahead_kb"),
        max_sectors_kb=_IO_KB_WITHOUT_A_DISK,
        traits=_traits(path, found, mount),
    )


def _device(path: Path, found: Descent, kind: str | None, disk: Path, roots: Roots) -> Device:
    """On a file system with a block device: that disk's queue and backing device shape reads."""
    major, minor = device_number(disk)
    bdi = f"{major}:{minor}"
    read_ahead_kb = read_count(roots.sys / "class/bdi" / bdi / "read_ahead_kb")
    if read_ahead_kb is None:
        read_ahead_kb = read_count(disk / "queue/read_ahead_kb")
    return replace(
        _summary(found, disk),
        file_system=kind,
        bdi=bdi,
        read_ahead_kb=read_ahead_kb,
        max_sectors_kb=read_count(disk / "queue/max_sectors_kb"),
        traits=_traits(path, found, None),
    )


def _top_disk(node: Path) -> Path:
    return node.parent if (node / "partition").exists() else node


def _without_a_joint(device: Device, number: str) -> Device:
    """Several disks that no block device joins go by the file system's own number.

    diskstats has no line of it, so that nobody takes one disk's reads for all.
    """
    if len(device.leaves) == 1:
        return device
    major, minor = map(int, number.split(":"))
    return replace(device, name="+".join(device.leaf_names), major=major, minor=minor)


def _summary(found: Descent, top: Path) -> Device:
    """One record for all leaves: theirs where they agree, the sum or the worse of them else."""
    every = tuple(found.leaves.values())
    one = every[0] if len(every) == 1 else None
    top = _top_disk(top)
    major, minor = (one.major, one.minor) if one else device_number(top)
    sizes = [leaf.size_bytes for leaf in every if leaf.size_bytes is not None]
    return Device(
        name=one.name if one else node_name(top),
        major=major,
        minor=minor,
        chain=tuple(found.chain),
        partition=one.partition if one else None,
        file_system=None,
        read_ahead_kb=None,
        max_sectors_kb=None,
        iostats=_all(leaf.iostats for leaf in every),
        rotational=_any(leaf.rotational for leaf in every),
        model=_joined(leaf.model for leaf in every),
        scheduler=_joined(leaf.scheduler for leaf in every),
        logical_block_bytes=max(
            (leaf.logical_block_bytes for leaf in every if leaf.logical_block_bytes), default=None
        ),
        size_bytes=sum(sizes) if len(sizes) == len(every) else None,
        leaves=every,
        layers=tuple(found.layers),
    )


def _all(values: Iterable[bool | None]) -> bool | None:
    """False when any is, else None when any is unknown."""
    known = set(values)
    return False if False in known else None if None in known else True


def _any(values: Iterable[bool | None]) -> bool | None:
    known = set(values)
    return True if True in known else None if None in known else False


def _joined(values: Iterable[str | None]) -> str | None:
    known = list(dict.fromkeys(value for value in values if value is not None))
    return " + ".join(known) if known else None


def _traits(path: Path, found: Descent, mount: Mount | None) -> tuple[str, ...]:
    traits = [*found.traits, *stored_traits(path)]
    if mount is not None and path.is_dir() and _compresses(mount):
        traits.append("compressed")
    return tuple(dict.fromkeys(traits))


def _compresses(mount: Mount) -> bool:
    """Whether files made below get compressed; `compress=no` and the like do not."""
    for option in mount.super_options:
        key, _, value = option.partition("=")
        if key in ("compress", "compress-force") and value not in ("no", "none"):
            return True
    return False
