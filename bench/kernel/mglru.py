# SPDX-License-Identifier: Apache-2.0
"""/sys/kernel/mm/lru_gen: is the multi-generational LRU there and on.  Read only, no knob.

`enabled` is a mask: 0x1 the main switch, 0x2 accessed bits of leaf entries cleared in batches, 0x4
the same for non-leaf ones.  No directory means CONFIG_LRU_GEN is off, or a kernel before 6.1.
"""

from dataclasses import dataclass
from pathlib import Path

from pagetier.bench.kernel.text import read_count, read_text
from pagetier.cgroups.errors import ParseError

__all__ = ["Mglru", "parse_mask", "read_mglru"]


@dataclass(frozen=True, slots=True)
class Mglru:
    """State of the multi-generational LRU; mask and min_ttl_ms are None where it is absent."""

    available: bool
    mask: int | None
    min_ttl_ms: int | None

    @property
    def enabled(self) -> bool | None:
        """Whether the main switch is on; None where there is none."""
        return None if self.mask is None else bool(self.mask & 0x1)


def parse_mask(text: str, *, where: str = "/sys/kernel/mm/lru_gen/enabled") -> int:
    """The mask as the kernel prints it: hexadecimal with a 0x in front."""
    word = text.strip()
    try:
        if word.lower().startswith("0x"):
            return int(word, 16)
    except ValueError:
        pass
    raise ParseError(where, 1, f"mask is {word[:40]!r}, not a hexadecimal number such as 0x0007")


def read_mglru(sys: Path) -> Mglru:
    """What the running kernel says."""
    folder = sys / "kernel/mm/lru_gen"
    text = read_text(folder / "enabled")
    if text is None:
        return Mglru(available=False, mask=None, min_ttl_ms=None)
    mask = parse_mask(text, where=str(folder / "enabled"))
    return Mglru(available=True, mask=mask, min_ttl_ms=read_count(folder / "min_ttl_ms"))
