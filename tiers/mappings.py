# SPDX-License-Identifier: Apache-2.0
"""Which processes hold a file mapped or open, from ``/proc/PID/{maps,smaps,fd}``.

Best effort by nature: processes come and go, and those of other users are closed to a caller who
is not root; how many those were is part of the answer.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pagetier.analysis.errors import PagetierError

__all__ = ["Holder", "Holders", "MappedFile", "MapsError", "find_holders", "parse_maps"]

# fs/proc/task_mmu.c, show_map_vma(): "start-end perms pgoff major:minor inode  path"
MAPPING = re.compile(
    r"[0-9a-f]+-[0-9a-f]+ [-r][-w][-x][-ps] [0-9a-f]+ "
    r"(?P<major>[0-9a-f]+):(?P<minor>[0-9a-f]+) (?P<inode>\d+)(?: +(?P<path>.*))?"
)
# smaps and smaps_rollup put "Name:   value" lines below each mapping.
ATTRIBUTE = re.compile(r"(?P<name>[A-Za-z_]+): *(?P<value>.*)")

FileId = tuple[int, int]  # st_dev, st_ino


class MapsError(PagetierError):
    """A maps or smaps text that the kernel can not have written."""


@dataclass(frozen=True, slots=True)
class MappedFile:
    """One file mapping; `locked` is None where the text does not say (maps, not smaps)."""

    device: int
    inode: int
    path: str
    locked: bool | None


@dataclass(frozen=True, slots=True)
class Holder:
    """A process and how it holds a file: ``mapped``, ``mapped and locked`` or ``open``."""

    pid: int
    name: str
    how: str

    def __str__(self) -> str:
        return f"{self.how} by pid {self.pid} ({self.name})"


@dataclass(frozen=True, slots=True)
class Holders:
    """The processes found, and how many could not be looked into."""

    found: tuple[Holder, ...]
    closed_processes: int


def parse_maps(text: str, source: str = "maps") -> list[MappedFile]:
    """The file mappings of a maps or smaps text; MapsError names the line it can not read."""
    mappings: list[MappedFile] = []
    current: MappedFile | None = None
    # Not splitlines(): the kernel escapes a newline in a path, but no other separator.
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else [], 1):
        if mapping := MAPPING.fullmatch(line):
            current = _mapped_file(mapping)
            if current is not None:
                mappings.append(current)
        elif attribute := ATTRIBUTE.fullmatch(line):
            if current is not None and attribute["name"] == "VmFlags":
                mappings[-1] = _with_flags(current, attribute["value"].split())
        else:
            raise MapsError(f"{source}:{number}: is not a mapping: {line!r:.80}")
    return mappings


def _mapped_file(mapping: re.Match[str]) -> MappedFile | None:
    if mapping["inode"] == "0":
        return None
    device = os.makedev(int(mapping["major"], 16), int(mapping["minor"], 16))
    path = (mapping["path"] or "").removesuffix(" (deleted)")
    return MappedFile(device, int(mapping["inode"]), path, None)


def _with_flags(mapping: MappedFile, flags: list[str]) -> MappedFile:
    return MappedFile(mapping.device, mapping.inode, mapping.path, "lo" in flags)


@dataclass(frozen=True, slots=True)
class _Wanted:
    files: frozenset[FileId]
    paths: frozenset[str]

    def maps(self, mapping: MappedFile) -> bool:
        # By path too: on btrfs and overlay maps shows another device than stat does.
        return (mapping.device, mapping.inode) in self.files or mapping.path in self.paths


def find_holders(proc: Path, files: frozenset[FileId], paths: frozenset[str]) -> Holders:
    """All processes below `proc` that have one of the files mapped, else open."""
    wanted = _Wanted(files, paths)
    found: list[Holder] = []
    closed = 0
    for pid in _process_ids(proc):
        directory = proc / str(pid)
        try:
            how = _how_held(directory, wanted)
            if how is not None:
                name = (directory / "comm").read_text(errors="replace").strip()
                found.append(Holder(pid, name, how))
        except PermissionError:
            closed += 1
        except (FileNotFoundError, ProcessLookupError):  # it ended
            continue
    return Holders(tuple(found), closed)


def _process_ids(proc: Path) -> list[int]:
    return sorted(int(name) for name in os.listdir(proc) if name.isdecimal())


def _how_held(directory: Path, wanted: _Wanted) -> str | None:
    maps = directory / "maps"
    if any(wanted.maps(mapping) for mapping in parse_maps(_read(maps), str(maps))):
        return "mapped and locked" if _is_locked(directory / "smaps", wanted) else "mapped"
    return "open" if any(file in wanted.files for file in _open_files(directory)) else None


def _is_locked(smaps: Path, wanted: _Wanted) -> bool:
    mappings = parse_maps(_read(smaps), str(smaps))
    return any(mapping.locked and wanted.maps(mapping) for mapping in mappings)


def _read(path: Path) -> str:
    return path.read_bytes().decode(errors="surrogateescape")


def _open_files(directory: Path) -> Iterator[FileId]:
    for name in os.listdir(directory / "fd"):
        try:
            status = os.stat(directory / "fd" / name)
        except FileNotFoundError:  # closed meanwhile
            continue
        yield status.st_dev, status.st_ino
