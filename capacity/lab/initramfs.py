# SPDX-License-Identifier: Apache-2.0
"""An initramfs (cpio in the `newc` format, uncompressed) made from bytes in memory.

Format: Documentation/driver-api/early-userspace/buffer-format.rst.  Made here rather than by
cpio(1), so that no program and no staging folder is needed, and device nodes need no root.
"""

import stat
from dataclasses import dataclass
from pathlib import PurePosixPath

__all__ = ["Entry", "archive", "directory", "executable", "file", "link", "node"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One member; `device` is (major, minor) of a node."""

    path: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)


def directory(path: str) -> Entry:
    """A folder."""
    return Entry(path, stat.S_IFDIR | 0o755)


def file(path: str, content: bytes) -> Entry:
    """A regular file."""
    return Entry(path, stat.S_IFREG | 0o644, content)


def executable(path: str, content: bytes) -> Entry:
    """A program or script."""
    return Entry(path, stat.S_IFREG | 0o755, content)


def link(path: str, target: str) -> Entry:
    """A symbolic link."""
    return Entry(path, stat.S_IFLNK | 0o777, target.encode())


def node(path: str, major: int, minor: int) -> Entry:
    """A character device."""
    return Entry(path, stat.S_IFCHR | 0o600, device=(major, minor))


def archive(entries: list[Entry]) -> bytes:
    """The whole archive; folders that members lie in are added before them."""
    members: dict[str, Entry] = {}
    for entry in entries:
        for parent in reversed(PurePosixPath(entry.path).parents[:-1]):
            members.setdefault(str(parent), directory(str(parent)))
        members[entry.path] = entry
    blocks = [_member(number, entry) for number, entry in enumerate(members.values(), start=1)]
    return b"".join([*blocks, _member(0, Entry("TRAILER!!!", 0))])


def _member(number: int, entry: Entry) -> bytes:
    name = entry.path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    size, (major, minor) = len(entry.content), entry.device
    fields = (number, entry.mode, 0, 0, links, 0, size, 0, 0, major, minor, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(header + name) + _padded(entry.content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
