# SPDX-License-Identifier: Apache-2.0
"""One file to import: its first bytes to know it by, its lines, its arrays.

Packed files are unpacked as they are read.  Whatever has to be in memory as a whole is bounded.
"""

import io
import json
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.stream import open_trace_file

__all__ = ["Source"]

_HEAD_BYTES = 1 << 16
_MAX_DOCUMENT_BYTES = 256 << 20


class Source:
    """A file of routes; `head` are the first bytes of its content."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def error(self, message: str, line: int | None = None) -> InputError:
        """What to raise for something wrong in this file."""
        return InputError(
            f"{self.path}: {message}" if line is None else f"{self.path}:{line}: {message}"
        )

    @cached_property
    def head(self) -> bytes:
        with open_trace_file(self.path) as file:
            return next(file.pieces(), b"")[:_HEAD_BYTES]

    @cached_property
    def first_line(self) -> bytes:
        """The first line that says something."""
        return next((line for line in self.head.splitlines() if line.strip()), b"")

    @cached_property
    def first_object(self) -> dict[str, Any]:
        """The object on the first line; empty when there is none."""
        return self.objects(1)[0]

    def objects(self, count: int) -> list[dict[str, Any]]:
        """The objects on the first lines; an empty one where there is none."""
        lines = [line for line in self.head.splitlines() if line.strip()][:count]
        return [_object_on(line) for line in lines] + [{}] * (count - len(lines))

    @property
    def is_zip(self) -> bool:
        return self.head.startswith(b"PK\x03\x04")

    @property
    def is_npy(self) -> bool:
        return self.head.startswith(b"\x93NUMPY")

    @cached_property
    def members(self) -> tuple[str, ...]:
        """Names in a zip archive; empty when it is none."""
        if not self.is_zip:
            return ()
        with self.archive() as archive:
            return tuple(archive.namelist())

    def blocks(self) -> Iterator[bytes]:
        """Whole lines, about a megabyte at a time."""
        with open_trace_file(self.path) as file:
            yield from file.blocks()

    def lines(self) -> Iterator[tuple[int, str]]:
        """Numbered lines of text, without their ends."""
        number = 0
        for block in self.blocks():
            for line in block.removesuffix(b"\n").split(b"\n"):
                number += 1
                try:
                    yield number, line.decode().removesuffix("\r")
                except UnicodeDecodeError as error:
                    raise self.error(
                        "the line is no text: not a format that is known", number
                    ) from error

    def whole(self, limit_bytes: int = _MAX_DOCUMENT_BYTES) -> bytearray:
        """The whole content, unpacked."""
        content = bytearray()
        with open_trace_file(self.path) as file:
            for piece in file.pieces():
                content += piece
                if len(content) > limit_bytes:
                    raise self.error(
                        f"the document is larger than {limit_bytes} B: split it by request"
                    )
        return content

    @contextmanager
    def archive(self) -> Iterator[zipfile.ZipFile]:
        """The file as a zip archive."""
        try:
            with self._seekable() as file, self._opened(file) as archive:
                yield archive
        except OSError as error:
            raise self.error(f"{error.strerror or error}: give a readable file") from error

    def _opened(self, file: IO[bytes]) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(file)
        # ValueError: a name that is no text; struct.error: a directory that ends early.
        except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
            raise self.error(f"the archive is damaged ({error}): copy or save it again") from error

    @contextmanager
    def _seekable(self) -> Iterator[IO[bytes]]:
        with open(self.path, "rb") as file:
            packed = file.read(4) != self.head[:4]
            file.seek(0)
            yield io.BytesIO(self.whole()) if packed else file


def _object_on(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
