# SPDX-License-Identifier: Apache-2.0
"""/proc/swaps: where unlocked memory may go instead of staying; sizes in the file are KiB."""

from dataclasses import dataclass
from pathlib import Path

from pagetier.bench.kernel.text import read_text
from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.files import parse_count

__all__ = ["Swap", "parse_swaps", "read_swaps"]


@dataclass(frozen=True, slots=True)
class Swap:
    """One swap area in use."""

    name: str
    kind: str
    size_bytes: int
    used_bytes: int

    @property
    def in_memory(self) -> bool:
        """zram: what is swapped out there stays in memory, compressed, and is no disk traffic."""
        return self.name.rsplit("/", 1)[-1].startswith("zram")


def parse_swaps(text: str, *, where: str = "/proc/swaps") -> tuple[Swap, ...]:
    """The areas in use; empty when swap is off (the file then has its heading alone)."""
    lines = text.splitlines()
    if not lines or not lines[0].startswith("Filename"):
        raise ParseError(where, 1, "the heading `Filename Type Size Used Priority` is missing")
    return tuple(_swap(line, where, number) for number, line in enumerate(lines[1:], start=2))


def read_swaps(proc: Path) -> tuple[Swap, ...] | None:
    """Swap areas of the host; None when the kernel was built without swap."""
    path = proc / "swaps"
    text = read_text(path)
    return None if text is None else parse_swaps(text, where=str(path))


def _swap(line: str, where: str, number: int) -> Swap:
    words = line.split()
    if len(words) != 5:
        raise ParseError(where, number, f"{len(words)} columns instead of 5: {line[:80]!r}")
    return Swap(
        name=words[0],
        kind=words[1],
        size_bytes=parse_count(words[2], where, number, "Size") * 1024,
        used_bytes=parse_count(words[3], where, number, "Used") * 1024,
    )
