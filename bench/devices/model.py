# SPDX-License-Identifier: Apache-2.0
"""What a resolved device is: the leaves that count, and the layer that shapes the reads.

Sizes are in the names' units; what the kernel does not say is None.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pagetier.analysis.errors import CapabilityError
from pagetier.bench.kernel.diskstats import parse_diskstats

__all__ = ["WAY_OUT", "Device", "Leaf", "Partition", "UnresolvedDevice"]

WAY_OUT = "put the pool on a local disk with ext4, xfs or btrfs, or name the disk with --device"

_COUNTS = ("reads", "reads_merged", "sectors_read", "writes", "writes_merged", "sectors_written")


class UnresolvedDevice(CapabilityError):
    """The reads for a file cannot be counted: why, and what to do about it, apart and together."""

    def __init__(self, problem: str, remedy: str = WAY_OUT) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Partition:
    """The part of a disk that a file lies on; its counters are included in the disk's."""

    name: str
    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class Leaf:
    """A whole disk at the bottom of a chain: what diskstats counts once and for all."""

    name: str
    major: int
    minor: int
    partition: Partition | None
    iostats: bool | None
    rotational: bool | None
    model: str | None
    scheduler: str | None
    logical_block_bytes: int | None
    size_bytes: int | None

    @property
    def number(self) -> str:
        """MAJ:MIN, as io.stat and sysfs write it."""
        return f"{self.major}:{self.minor}"


@dataclass(frozen=True, slots=True)
class Device:
    """Where a file's reads end and what shapes them.

    On one disk, `name`, `major` and `minor` are the disk's.  Over several they are those of the
    layer that the file system is on (for btrfs an anonymous number that diskstats lacks), and only
    `counters` knows what was read.  `chain` goes from the node the file system is on to the disks,
    each name once.  `read_ahead_kb` and `max_sectors_kb` are those of the layer that the file
    system reads from, not of the leaves; `bdi` names its folder below /sys/class/bdi.
    """

    name: str
    major: int
    minor: int
    chain: tuple[str, ...]
    partition: Partition | None
    file_system: str | None
    read_ahead_kb: int | None
    max_sectors_kb: int | None
    iostats: bool | None
    rotational: bool | None
    model: str | None
    scheduler: str | None
    logical_block_bytes: int | None
    size_bytes: int | None
    leaves: tuple[Leaf, ...] = ()
    bdi: str | None = None
    layers: tuple[str, ...] = ()
    """What a reader of the chain should know of it, such as `dm-0 is LVM (vg-pool)`."""
    lower_path: str | None = None
    """Where the file really lies, when it was named through an overlay."""
    traits: tuple[str, ...] = ()
    """`compressed`, `encrypted`: the device's bytes are not the file's."""
    given: bool = False
    """Whether a user named the disk instead of the kernel."""

    @property
    def number(self) -> str:
        """MAJ:MIN, as io.stat and sysfs write it."""
        return f"{self.major}:{self.minor}"

    @property
    def leaf_numbers(self) -> tuple[tuple[int, int], ...]:
        """(major, minor) of every disk whose counters are summed."""
        return tuple((leaf.major, leaf.minor) for leaf in self.leaves) or (
            (self.major, self.minor),
        )

    @property
    def leaf_names(self) -> tuple[str, ...]:
        """Names of the disks, in the order of the chain."""
        return tuple(leaf.name for leaf in self.leaves) or (self.name,)

    @property
    def over_read_limit_bytes(self) -> int | None:
        """The longest read that is not read ahead past its end (mm/readahead.c; measured on 6.18).

        None when either figure is unknown.
        """
        if self.read_ahead_kb is None or self.max_sectors_kb is None:
            return None
        return max(self.read_ahead_kb, self.max_sectors_kb) * 1024

    def read_ahead_path(self, sys: Path) -> Path:
        """The file that sets read_ahead_kb of the backing device that the file system uses."""
        return sys / "class/bdi" / (self.bdi or self.number) / "read_ahead_kb"

    def counters(self, text: str, *, where: str = "/proc/diskstats") -> dict[str, Any] | None:
        """What diskstats counts for the leaves, summed; None unless every leaf has its line.

        The line of the partition, where there is one, is beside the sum; with several leaves, so
        is each of theirs.
        """
        numbers = self.leaf_numbers
        part = self.partition
        inner = None if part is None else (part.major, part.minor)
        lines = parse_diskstats(text, only={*numbers, *([inner] if inner else [])}, where=where)
        if any(number not in lines for number in numbers):
            return None
        disks = [lines[number].as_dict() for number in numbers]
        summed = disks[0] if len(disks) == 1 else self._sum(disks)
        partition = lines.get(inner) if inner else None
        return {
            **summed,
            "partition": None if partition is None else partition.as_dict(),
            **({} if len(disks) == 1 else {"leaves": disks}),
        }

    def _sum(self, disks: list[dict[str, int | str]]) -> dict[str, Any]:
        sums = {field: sum(int(disk[field]) for disk in disks) for field in _COUNTS}
        return {"major": self.major, "minor": self.minor, "name": self.name, **sums}

    def scope_read_bytes(self, io: Mapping[str, int]) -> int:
        """What the io controller counted on the leaves; `io` is bytes by MAJ:MIN.

        A leaf without a line was not read: a true 0.
        """
        return sum(io.get(f"{major}:{minor}", 0) for major, minor in self.leaf_numbers)

    def as_dict(self) -> dict[str, object]:
        """The record as host facts keep it."""
        return {
            **asdict(self),
            "chain": list(self.chain),
            "leaves": list(self.leaf_names),
            "layers": list(self.layers),
            "traits": list(self.traits),
            "number": self.number,
        }
