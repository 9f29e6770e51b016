# SPDX-License-Identifier: Apache-2.0
"""/proc/self/mountinfo and /proc/<pid>/cgroup: controllers, their mounts, who is in them."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.mountinfo import parse_mountinfo
from pagetier.cgroups.roots import Roots

__all__ = ["UNIFIED", "CgroupMount", "directory_of", "parse_memberships", "parse_mounts"]

UNIFIED = ""
"""Key of the v2 hierarchy in the result of parse_memberships: it has no controller list."""

_STANDARD = PurePosixPath("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class CgroupMount:
    """One mounted cgroup hierarchy; `root` is the cgroup that appears at `point`."""

    version: str
    root: str
    point: str
    read_only: bool
    controllers: frozenset[str]

    def directory(self, roots: Roots) -> Path:
        """The mount point under the injected roots; a point outside /sys/fs/cgroup stays."""
        point = PurePosixPath(self.point)
        if point.is_relative_to(_STANDARD):
            return roots.cgroup / point.relative_to(_STANDARD)
        return Path(point)


def parse_mounts(text: str, source: str = "/proc/self/mountinfo") -> list[CgroupMount]:
    """The cgroup mounts in the order of the file; other mounts are passed over."""
    return [
        CgroupMount(
            version="v2" if mount.kind == "cgroup2" else "v1",
            root=mount.root,
            point=mount.point,
            read_only="ro" in (*mount.mount_options, *mount.super_options),
            controllers=frozenset(mount.super_options),
        )
        for mount in parse_mountinfo(text, source)
        if mount.kind in ("cgroup", "cgroup2")
    ]


def parse_memberships(text: str, source: str = "/proc/<pid>/cgroup") -> dict[str, str]:
    """Cgroup path by controller name; the v2 hierarchy stands under UNIFIED."""
    paths: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split(":", 2)
        if len(fields) != 3 or not fields[2].startswith("/"):
            raise ParseError(source, number, f"expected `id:controllers:/path`, found {line!r}")
        for controller in fields[1].split(","):
            paths[controller] = fields[2]
    return paths


def directory_of(mount: CgroupMount, path: str, roots: Roots) -> Path | None:
    """The directory of a cgroup path, or None when it lies outside of what is mounted.

    A path that starts with `/..` belongs to a process outside of our cgroup namespace.
    """
    cgroup, root = PurePosixPath(path), PurePosixPath(mount.root)
    if ".." in cgroup.parts or not cgroup.is_relative_to(root):
        return None
    return mount.directory(roots) / cgroup.relative_to(root)
