# SPDX-License-Identifier: Apache-2.0
"""Small kernel text files: reading what may be absent, and the shapes that many of them share.

A file the kernel does not offer reads as None, never as an empty or a zero value; a text that is
there and is not understood raises ParseError with file, line and field.
"""

import errno
import os
from pathlib import Path
from typing import Self

from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.files import parse_count

__all__ = ["HeldFile", "parse_selected", "read_count", "read_line", "read_selected", "read_text"]

# The kernel does not offer this here and now: no such file; files of a subsystem that is compiled
# in and switched off (PSI without psi=1: EOPNOTSUPP); queue attributes a driver has no answer for
# (EINVAL, ENODEV, EIO of an ejected medium is none of these); a process that has ended (ESRCH);
# and what this user may not see.
_ABSENT = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EOPNOTSUPP,
        errno.EINVAL,
        errno.ENODEV,
        errno.ENXIO,
        errno.ESRCH,
        errno.EACCES,
        errno.EPERM,
    }
)


def read_text(path: Path) -> str | None:
    """Content of a kernel file; None when the kernel does not offer it to this user."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise


def read_count(path: Path) -> int | None:
    """The one unsigned decimal number that a file holds; None when the file is absent."""
    text = read_text(path)
    return None if text is None else parse_count(text, str(path))


def read_line(path: Path) -> str | None:
    """The text of a file of one line, without its line end; None when the file is absent."""
    text = read_text(path)
    return None if text is None else text.strip()


def read_selected(path: Path) -> str | None:
    """The choice that a file marks; None when the file is absent."""
    text = read_text(path)
    return None if text is None else parse_selected(text, str(path))


def parse_selected(text: str, where: str) -> str:
    """The chosen word of a list such as `always [madvise] never`, or the only word there is."""
    words = text.split()
    chosen = [word[1:-1] for word in words if word.startswith("[") and word.endswith("]")]
    if len(chosen) == 1:
        return chosen[0]
    if len(words) == 1 and not chosen:
        return words[0]
    raise ParseError(where, 1, f"{text.strip()[:60]!r} does not mark one choice with brackets")


class HeldFile:
    """A kernel file that is read again and again: opened once, read from its start each time.

    Holding a file below /proc/PID also pins the process it speaks of: once that one has ended the
    file reads as None, whoever gets the number next.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = _open(path)
        self._size = 16384

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> str | None:
        """The whole text now; None when the file is not offered."""
        if self._fd is None:
            return None
        try:
            return self._read(self._fd).decode("utf-8", errors="replace")
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _read(self, fd: int) -> bytes:
        # seq_file renders a text larger than one page piece by piece, so a short read is not the
        # end; only an empty one is.
        pieces: list[bytes] = []
        offset = 0
        while piece := os.pread(fd, self._size, offset):
            pieces.append(piece)
            offset += len(piece)
        return b"".join(pieces)


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise
