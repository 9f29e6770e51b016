# SPDX-License-Identifier: Apache-2.0
"""/proc/self/mountinfo and /proc/<pid>/cgroup: controllers, their mounts, who is in them."""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.roots import Roots

__all__ = ["UNIFIED", "CgroupMount", "directory_of", "parse_memberships", "parse_mounts"]

UNIFIED = ""
"""Key of the v2 hierarchy in the result of parse_memberships: it has no controller list."""

_STANDARD = PurePosixPath("/sys/fs/cgroup")
_ESCAPE = re.compile(r"\\([0-7]{3})")


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
    """The cgroup mounts in the order of the file (proc(5)); other mounts are passed over."""
    mounts = []
    for number, line in enumerate(text.splitlines(), start=1):
        left, separator, right = line.partition(" - ")
        mount, filesystem = left.split(), right.split()
        if not separator or len(mount) < 6 or len(filesystem) < 3:
            raise ParseError(source, number, f"not a mountinfo line: {line!r}")
        if filesystem[0] not in ("cgroup", "cgroup2"):
            continue
        options = frozenset(filesystem[2].split(","))
        mounts.append(
            CgroupMount(
                version="v2" if filesystem[0] == "cgroup2" else "v1",
                root=_unescape(mount[3]),
                point=_unescape(mount[4]),
                read_only="ro" in mount[5].split(",") or "ro" in options,
                controllers=options,
            )
        )
    return mounts


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


def _unescape(field: str) -> str:
    """Space, tab, newline and backslash are octal in mountinfo (fs/proc_namespace.c)."""
    return _ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), field)
