# SPDX-License-Identifier: Apache-2.0
"""Who has a file open for writing: a pool that still grows, or is being replaced, is no pool yet.

/proc/PID/fdinfo tells how a file is open; the descriptors of other users' processes are root's
alone to see.
"""

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from pagetier.bench.kernel.text import read_line, read_text

__all__ = ["Writer", "find_writers"]

FileId = tuple[int, int]  # st_dev, st_ino
_FLAGS = re.compile(r"^flags:\s*([0-7]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Writer:
    """A process that has one of the files open for writing."""

    pid: int
    name: str


def find_writers(proc: Path, files: Collection[FileId]) -> tuple[tuple[Writer, ...], int]:
    """The writers, and how many processes could not be looked into."""
    found, closed = [], 0
    for folder in sorted(proc.glob("[0-9]*"), key=lambda path: path.name):
        if not folder.name.isdecimal():
            continue
        try:
            if any(_writes(folder, number) for number in _open_files(folder, files)):
                found.append(Writer(int(folder.name), read_line(folder / "comm") or "?"))
        except PermissionError:
            closed += 1
        except (FileNotFoundError, ProcessLookupError):  # it ended
            continue
    return tuple(found), closed


def _open_files(folder: Path, files: Collection[FileId]) -> Iterator[str]:
    for number in os.listdir(folder / "fd"):
        try:
            status = os.stat(folder / "fd" / number)
        except FileNotFoundError:  # closed meanwhile
            continue
        if (status.st_dev, status.st_ino) in files:
            yield number


def _writes(folder: Path, number: str) -> bool:
    match = _FLAGS.search(read_text(folder / "fdinfo" / number) or "")
    return match is not None and int(match[1], 8) & os.O_ACCMODE != os.O_RDONLY
