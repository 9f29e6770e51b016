# SPDX-License-Identifier: Apache-2.0
"""/proc/<pid>/mountinfo (proc(5)): what is mounted where, and which mount a path lies on.

Fields are parted by exactly one blank: a source may be empty, and blanks inside of a name are octal
escapes (show_mountinfo in fs/proc_namespace.c).  A number of optional fields ends with ` - `.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

from pagetier.cgroups.errors import ParseError

__all__ = ["Mount", "mount_of", "parse_mountinfo"]

_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount; `number` is MAJ:MIN, `root` the directory of the file system seen at `point`."""

    number: str
    root: str
    point: str
    kind: str
    source: str
    mount_options: tuple[str, ...]
    super_options: tuple[str, ...]


def parse_mountinfo(text: str, source: str = "/proc/self/mountinfo") -> tuple[Mount, ...]:
    """All mounts in the kernel's order: a later one at the same point covers an earlier one."""
    lines = enumerate(text.removesuffix("\n").split("\n"), start=1)
    return tuple(_mount(line, source, number) for number, line in lines) if text else ()


def mount_of(path: PurePath, mounts: Iterable[Mount]) -> Mount | None:
    """Where an absolute, resolved path lies: the longest mount point, the latest of equals."""
    found: Mount | None = None
    for mount in mounts:
        inside = path.is_relative_to(mount.point)
        if inside and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def _mount(line: str, source: str, number: int) -> Mount:
    head, _, tail = line.partition(" - ")
    left, right = head.split(" "), tail.split(" ", 2)
    if len(left) < 6 or len(right) < 3:
        raise ParseError(source, number, f"not a mountinfo line: {line[:80]!r}")
    return Mount(
        number=left[2],
        root=_unescape(left[3]),
        point=_unescape(left[4]),
        kind=right[0],
        source=_unescape(right[1]),
        mount_options=tuple(left[5].split(",")),
        super_options=tuple(right[2].split(",")),
    )


def _unescape(name: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), name)
