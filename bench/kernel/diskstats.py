# SPDX-License-Identifier: Apache-2.0
"""/proc/diskstats: what the block layer has completed, per disk and per partition.

A sector is 512 B whatever the device's block size.  Lines have 14 columns, 18 since discards are
counted (4.19), 20 since flushes are (5.5): more columns are accepted and ignored, fewer are an
error.  A partition's traffic is also in its disk's line, so the two are never added.  Times and
"in flight" are left out: milliseconds wrap at 2^32, and no result rests on them.
"""

from collections.abc import Container
from dataclasses import asdict, dataclass
from pathlib import Path

from pagetier.bench.kernel.text import read_text
from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.files import parse_count

__all__ = ["SECTOR_BYTES", "DiskCounters", "parse_diskstats", "read_diskstats"]

SECTOR_BYTES = 512

_FIELDS = {
    3: "reads",
    4: "reads_merged",
    5: "sectors_read",
    7: "writes",
    8: "writes_merged",
    9: "sectors_written",
}
_LEAST_COLUMNS = 14


@dataclass(frozen=True, slots=True)
class DiskCounters:
    """One line: cumulative counts of completed requests."""

    major: int
    minor: int
    name: str
    reads: int
    reads_merged: int
    sectors_read: int
    writes: int
    writes_merged: int
    sectors_written: int

    @property
    def number(self) -> tuple[int, int]:
        """(major, minor): what a device is looked up by, for names can be changed by udev."""
        return self.major, self.minor

    @property
    def read_bytes(self) -> int:
        """Bytes that the device's completed reads brought."""
        return self.sectors_read * SECTOR_BYTES

    def as_dict(self) -> dict[str, int | str]:
        """The record as it is stored in a snapshot."""
        return asdict(self)


def parse_diskstats(
    text: str,
    *,
    only: Container[tuple[int, int]] | None = None,
    where: str = "/proc/diskstats",
) -> dict[tuple[int, int], DiskCounters]:
    """Counters by (major, minor); `only` spares the work on lines that nobody asked for."""
    disks: dict[tuple[int, int], DiskCounters] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) < _LEAST_COLUMNS:
            raise ParseError(
                where,
                number,
                f"{len(words)} columns, but at least {_LEAST_COLUMNS} are known: "
                f"{line.strip()[:80]!r}",
            )
        key = (
            parse_count(words[0], where, number, "major"),
            parse_count(words[1], where, number, "minor"),
        )
        if only is None or key in only:
            disks[key] = _counters(key, words, where, number)
    return disks


def read_diskstats(proc: Path) -> dict[tuple[int, int], DiskCounters] | None:
    """All devices of the host; None when the kernel keeps no such file."""
    path = proc / "diskstats"
    text = read_text(path)
    return None if text is None else parse_diskstats(text, where=str(path))


def _counters(key: tuple[int, int], words: list[str], where: str, number: int) -> DiskCounters:
    counts = {
        field: parse_count(words[column], where, number, field) for column, field in _FIELDS.items()
    }
    return DiskCounters(major=key[0], minor=key[1], name=words[2], **counts)
