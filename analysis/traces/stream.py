# SPDX-License-Identifier: Apache-2.0
"""The bytes of a trace file: hashed as they pass, unpacked by their magic bytes, cut into lines.

gzip and zstd are known by their first bytes, whatever the name says.  Memory is bounded whatever
the file holds: a line longer than any record is refused, and so is a file that unpacks to far more
than routes ever do.
"""

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import zstandard

from pagetier.analysis.errors import InputError

__all__ = ["HashingFile", "TraceFile", "blocks_of", "lines_of", "open_trace_file"]

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# A record of 896 experts with weights is about 20 KB; a "line" without end is a decompression bomb.
_MAX_LINE_BYTES = 1 << 22
_BLOCK_BYTES = 1 << 20
# Real traces unpack to 4 to 12 times their size, a trace of one route over and over to 100 times.
_MAX_RATIO = 200
_FREE_BYTES = 256 << 20
# A zstd block of 4 bytes may stand for 128 KiB: what goes in at once bounds what comes out.
_ZSTD_STEP_BYTES = 4096
_ZSTD_MAX_WINDOW_BYTES = 1 << 27


class HashingFile(io.RawIOBase):
    """Hashes the bytes that pass, so that the digest is of what was parsed, not of a later read."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._raw.read(len(buffer))
        self.digest.update(block)
        buffer[: len(block)] = block
        return len(block)


class TraceFile:
    """A file of routes, opened and unpacked; `path` is for messages only."""

    def __init__(self, path: Path, raw: IO[bytes]) -> None:
        self.path = path
        self._hashing = HashingFile(raw)
        self.stream = io.BufferedReader(self._hashing, 1 << 18)

    @property
    def sha256(self) -> str:
        """Digest of the bytes as they lie on disk; whole once the file was read to its end."""
        return self._hashing.digest.hexdigest()

    def blocks(self) -> Iterator[bytes]:
        """Whole lines, about a megabyte at a time."""
        return blocks_of(self.path, self.stream)

    def pieces(self) -> Iterator[bytes]:
        """The unpacked bytes, wherever they fall apart."""
        return iter(_unpacked(self.stream, _LineCounter(self.path)), b"")


@contextmanager
def open_trace_file(path: Path) -> Iterator[TraceFile]:
    """Open `path`; whatever goes wrong with the file itself is an InputError."""
    try:
        with open(path, "rb", buffering=0) as raw:
            yield TraceFile(path, raw)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{path}: {reason}: give the path of a readable trace file") from error


def lines_of(path: Path, stream: "io.BufferedReader[Any]") -> Iterator[bytes]:
    """The lines of a plain or packed file, each with its newline."""
    for block in blocks_of(path, stream):
        # Not splitlines: a carriage return ends no line here.
        start = 0
        while start < len(block):
            end = block.find(b"\n", start) + 1 or len(block)
            yield block[start:end]
            start = end


def blocks_of(path: Path, stream: "io.BufferedReader[Any]") -> Iterator[bytes]:
    """The bytes of a plain or packed file in pieces that end where a line ends."""
    counter = _LineCounter(path)
    source = _unpacked(stream, counter)
    tail = b""
    while piece := source():
        end = piece.rfind(b"\n") + 1
        if end:
            block = tail + piece[:end]
            tail = piece[end:]
            yield block
            counter.lines += block.count(b"\n")
        else:
            tail += piece
        if len(tail) > _MAX_LINE_BYTES:
            raise counter.error(f"the line is longer than {_MAX_LINE_BYTES} B, as no record is")
    if tail:
        yield tail


class _LineCounter:
    """Where in the file the reading is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lines = 0

    def error(self, message: str) -> InputError:
        return InputError(f"{self._path}:{self.lines + 1}: {message}")


_Source = Callable[[], bytes]


class _Packed(io.RawIOBase):
    """Counts what was read of a packed file."""

    def __init__(self, stream: "io.BufferedReader[Any]") -> None:
        self._stream = stream
        self.passed_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._stream.readinto(buffer)
        self.passed_bytes += size
        return size


def _unpacked(stream: "io.BufferedReader[Any]", counter: _LineCounter) -> _Source:
    magic = stream.peek(4)[:4]
    packed = _Packed(stream)
    if magic[:2] == _GZIP_MAGIC:
        return _limited(packed, _gzip_source(packed, counter), counter)
    if magic == _ZSTD_MAGIC:
        return _limited(packed, _zstd_source(packed, counter), counter)
    return lambda: stream.read1(_BLOCK_BYTES)


def _limited(packed: _Packed, source: _Source, counter: _LineCounter) -> _Source:
    """The same, until it has given far more than its packed bytes can hold of routes."""
    given = 0

    def read() -> bytes:
        nonlocal given
        block = source()
        given += len(block)
        if given > max(_FREE_BYTES, _MAX_RATIO * packed.passed_bytes):
            raise counter.error(
                f"the file unpacks to more than {_MAX_RATIO} times its size, as no trace does"
            )
        return block

    return read


def _gzip_source(packed: _Packed, counter: _LineCounter) -> _Source:
    unpacked = gzip.GzipFile(fileobj=packed, mode="rb")

    def read() -> bytes:
        try:
            block: bytes = unpacked.read1(_BLOCK_BYTES)
        except EOFError as error:
            raise counter.error(
                "the gzip stream ends early, the file is truncated: copy it again"
            ) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise counter.error(
                f"the gzip stream is damaged ({error}): copy the file again"
            ) from error
        return block

    return read


def _zstd_source(packed: _Packed, counter: _LineCounter) -> _Source:
    frames = _ZstdFrames(packed)

    def read() -> bytes:
        try:
            block = frames.read()
        except zstandard.ZstdError as error:
            raise counter.error(
                f"the zstd stream is damaged ({error}): copy the file again"
            ) from error
        if block or frames.complete:
            return block
        raise counter.error("the zstd stream ends early, the file is truncated: copy it again")

    return read


class _ZstdFrames:
    """One frame after another, as `zstd` and `cat` make them."""

    def __init__(self, packed: _Packed) -> None:
        self._packed = packed
        self._frame: Any = None
        self._rest = b""

    @property
    def complete(self) -> bool:
        """Whether no frame has begun and not ended."""
        return self._frame is None

    def read(self) -> bytes:
        """Some bytes; none at the end of the file."""
        while packed := self._rest or self._packed.read(_ZSTD_STEP_BYTES) or b"":
            self._rest = b""
            if self._frame is None:
                unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
                self._frame = unpacker.decompressobj()
            block: bytes = self._frame.decompress(packed)
            if self._frame.eof:
                self._rest = self._frame.unused_data
                self._frame = None
            if block:
                return block
        return b""
