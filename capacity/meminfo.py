# SPDX-License-Identifier: Apache-2.0
"""/proc/meminfo in bytes.

The kernel prints kibibytes under the name `kB`; HugePages_* are counts and kept apart.  A line that
this kernel lacks (MemAvailable before 3.14, Mlocked without CONFIG_UNEVICTABLE_LRU) is None.
"""

import re
from dataclasses import dataclass

from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.roots import Roots

__all__ = ["Meminfo", "parse_meminfo", "read_meminfo"]

_LINE = re.compile(r"([A-Za-z0-9_()]+): +(\d+)( kB)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Meminfo:
    """Sizes in bytes by the kernel's name, and the lines without a unit as counts."""

    bytes_by_name: dict[str, int]
    counts_by_name: dict[str, int]

    @property
    def total_bytes(self) -> int:
        """MemTotal."""
        return self.bytes_by_name["MemTotal"]

    @property
    def available_bytes(self) -> int | None:
        """MemAvailable: what a new program could get without swapping."""
        return self.bytes_by_name.get("MemAvailable")

    @property
    def free_bytes(self) -> int | None:
        """MemFree."""
        return self.bytes_by_name.get("MemFree")

    @property
    def cached_bytes(self) -> int | None:
        """Cached: page cache, shared memory included."""
        return self.bytes_by_name.get("Cached")

    @property
    def mlocked_bytes(self) -> int | None:
        """Mlocked: pages really locked, host-wide."""
        return self.bytes_by_name.get("Mlocked")

    @property
    def unevictable_bytes(self) -> int | None:
        """Unevictable: locked pages and others that reclaim skips."""
        return self.bytes_by_name.get("Unevictable")

    @property
    def swap_total_bytes(self) -> int | None:
        """SwapTotal."""
        return self.bytes_by_name.get("SwapTotal")

    @property
    def swap_free_bytes(self) -> int | None:
        """SwapFree."""
        return self.bytes_by_name.get("SwapFree")


def parse_meminfo(text: str, source: str = "/proc/meminfo") -> Meminfo:
    """Every line by name; raises ParseError for an unknown shape or a missing MemTotal."""
    sizes: dict[str, int] = {}
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            raise ParseError(source, number, f"expected `Name: value [kB]`, found {line!r}")
        name, digits, unit = match.groups()
        if name in sizes or name in counts:
            raise ParseError(source, number, f"{name} appears twice")
        if unit:
            sizes[name] = int(digits) * 1024
        else:
            counts[name] = int(digits)
    if "MemTotal" not in sizes:
        raise ParseError(source, None, "no MemTotal line in it")
    return Meminfo(sizes, counts)


def read_meminfo(roots: Roots) -> Meminfo:
    """The host's memory now."""
    path = roots.proc / "meminfo"
    return parse_meminfo(path.read_text(encoding="ascii"), str(path))
