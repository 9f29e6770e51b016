# SPDX-License-Identifier: Apache-2.0
"""/proc/iomem: where the RAM lies in the address space.

Only root sees addresses; everyone else sees zeros, which is the same as nothing.  What is reserved
inside of a range (the kernel's own image, a crash kernel) is not taken out of it.
"""

import re
from pathlib import Path

from pagetier.bench.kernel.text import read_text
from pagetier.cgroups.errors import ParseError

__all__ = ["parse_system_ram", "read_system_ram"]

_RANGE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) : (.*)")


def parse_system_ram(
    text: str, *, where: str = "/proc/iomem"
) -> tuple[tuple[int, int], ...] | None:
    """Start and end (exclusive) of each range of RAM in bytes; None without the addresses."""
    ranges: list[tuple[int, int]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(" "):  # a part of the range above
            continue
        match = _RANGE.fullmatch(line)
        if match is None:
            raise ParseError(where, number, f"{line[:60]!r} is not `start-end : name`")
        if match[3] == "System RAM":
            ranges.append((int(match[1], 16), int(match[2], 16) + 1))
    hidden = all(end == 1 for _, end in ranges)
    return None if hidden else tuple(ranges)


def read_system_ram(proc: Path) -> tuple[tuple[int, int], ...] | None:
    """What this user may see."""
    path = proc / "iomem"
    text = read_text(path)
    return None if text is None else parse_system_ram(text, where=str(path))
