# SPDX-License-Identifier: Apache-2.0
"""/proc/self/mountinfo: which file system a path lies on.

Columns of a line are variable in the middle (optional fields end with ` - `); blanks in names are
written as octal escapes.
"""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pagetier.bench.kernel.text import read_text
from pagetier.cgroups.errors import ParseError

__all__ = ["Mount", "mount_of", "parse_mountinfo", "read_mounts"]


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount: where it is, what it is, and its options (of the mount and of the super block)."""

    number: str
    point: str
    kind: str
    source: str
    options: tuple[str, ...]


def parse_mountinfo(text: str, *, where: str = "/proc/self/mountinfo") -> tuple[Mount, ...]:
    """All mounts in the kernel's order: a later one at the same point covers an earlier one."""
    return tuple(
        _mount(line, where, number) for number, line in enumerate(text.splitlines(), start=1)
    )


def read_mounts(proc: Path) -> tuple[Mount, ...] | None:
    """Mounts that this process sees; None when /proc does not show them."""
    path = proc / "self/mountinfo"
    text = read_text(path)
    return None if text is None else parse_mountinfo(text, where=str(path))


def mount_of(path: Path, mounts: tuple[Mount, ...]) -> Mount | None:
    """Where an absolute, resolved path lies: the longest mount point, the latest of equals."""
    found: Mount | None = None
    for mount in mounts:
        inside = PurePosixPath(path).is_relative_to(mount.point)
        if inside and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def _mount(line: str, where: str, number: int) -> Mount:
    head, dash, tail = line.partition(" - ")
    left, right = head.split(), tail.split()
    if not dash or len(left) < 6 or len(right) < 2:
        raise ParseError(where, number, f"{line[:80]!r} is not a mount")
    return Mount(
        number=left[2],
        point=_unescape(left[4]),
        kind=right[0],
        source=_unescape(right[1]),
        options=(*left[5].split(","), *(right[2].split(",") if len(right) > 2 else ())),
    )


def _unescape(name: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), name)
