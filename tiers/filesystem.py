# SPDX-License-Identifier: Apache-2.0
"""Files beneath a pool's folder, opened without ever following a link, and what holds them.

Every path here is a folder descriptor plus a relative name, walked one component at a time, so that
a link planted inside a pool (pagetier runs as root) is an error and never a way out.  Failures are
``OSError`` of the failing call; ``explain`` turns one into words about a pool file.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagetier.analysis.errors import InputError

__all__ = [
    "exists",
    "explain",
    "file_system_magic",
    "open_beneath",
    "open_regular",
    "opened_directory",
    "opened_regular",
    "require_device_backed",
]

# linux/magic.h.  Their files are the page cache: nothing can be evicted and nothing is ever read.
MEMORY_FILE_SYSTEMS = {0x01021994: "tmpfs", 0x858458F6: "ramfs", 0x958458F6: "hugetlbfs"}
# struct statfs is at most 120 bytes on the 64-bit ABIs; its first member, f_type, is a long on all
# of them but s390x.
STATFS_BYTES = 256
DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def opened_directory(path: Path | str, dir_fd: int | None = None) -> Iterator[int]:
    """A descriptor of a folder.  A path from the user may be a link, one inside a pool may not."""
    flags = DIRECTORY_FLAGS if dir_fd is not None else DIRECTORY_FLAGS & ~os.O_NOFOLLOW
    fd = os.open(path, flags, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


def open_beneath(root_fd: int, name: str, flags: int) -> int:
    """Opens `name` (relative, no ``..``) beneath root_fd; the caller closes it.

    A link is ELOOP as the last component and ENOTDIR before it.
    """
    *parents, last = name.split("/")
    if any(part in ("", ".", "..") for part in (*parents, last)):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
    directory_fd = root_fd
    try:
        for parent in parents:
            child_fd = os.open(parent, DIRECTORY_FLAGS | os.O_PATH, dir_fd=directory_fd)
            if directory_fd != root_fd:
                os.close(directory_fd)
            directory_fd = child_fd
        # O_NONBLOCK: a FIFO planted under the name of an expert must not hang the opening.
        return os.open(last, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644, dir_fd=directory_fd)
    finally:
        if directory_fd != root_fd:
            os.close(directory_fd)


def exists(directory_fd: int, name: str) -> bool:
    """Whether anything has this name in the folder, a dangling link included."""
    try:
        os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def open_regular(root_fd: int, name: str) -> int:
    """A read-only descriptor of a regular file beneath root_fd; the caller closes it."""
    fd = open_beneath(root_fd, name, os.O_RDONLY)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", name)
    return fd


@contextmanager
def opened_regular(root_fd: int, name: str) -> Iterator[int]:
    """``open_regular`` for the length of a block."""
    fd = open_regular(root_fd, name)
    try:
        yield fd
    finally:
        os.close(fd)


def explain(error: OSError) -> str:
    """What is wrong with a pool file that cannot be opened, and what to do."""
    match error.errno:
        case errno.ENOENT:
            return "is missing; make the pool again"
        case errno.ELOOP:
            return "is a symbolic link, which a pool may not contain; put the file itself there"
        case errno.ENOTDIR:
            return "lies beneath a symbolic link or a file, not a folder; make the pool again"
        case errno.EACCES | errno.EPERM:
            return "may not be read by this user; run as the owner of the pool or as root"
    return f"cannot be read: {error.strerror}"


def require_device_backed(fd: int, path: Path) -> None:
    """InputError when `path`, open as fd, lives in memory: such a pool can never be cold."""
    kind = memory_file_system(fd)
    if kind is not None:
        raise InputError(
            f"{path}: is on {kind}, which lives in memory, so that no read of it would reach a "
            "device; put the pool on a disk"
        )


def memory_file_system(fd: int) -> str | None:
    return MEMORY_FILE_SYSTEMS.get(file_system_magic(fd))


def file_system_magic(fd: int) -> int:
    """f_type of the file system that an open file is on (linux/magic.h)."""
    buffer = ctypes.create_string_buffer(STATFS_BYTES)
    if _libc.fstatfs(fd, buffer) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF
