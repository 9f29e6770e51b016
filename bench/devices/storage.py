# SPDX-License-Identifier: Apache-2.0
"""How a file is stored: whether its bytes on the device are the file's own.

FIEMAP marks what a file system compressed extent by extent (btrfs, f2fs; btrfs counts blocks of
compressed files in full, so that st_blocks does not tell); statx tells of fscrypt.  What the file
system does not answer is not found.
"""

import ctypes
import fcntl
import os
import stat
import struct
import sys
from pathlib import Path

__all__ = ["stored_traits"]

# linux/fiemap.h, linux/fs.h: the request, its struct and the flags of an extent.
_FS_IOC_FIEMAP = 0xC020660B
_HEADER = struct.Struct("=QQIIII")
_EXTENT = struct.Struct("=QQQQQIIII")
_EXTENTS = 256
_EXTENT_ENCODED = 0x8
_EXTENT_ENCRYPTED = 0x80

# linux/stat.h
_AT_EMPTY_PATH = 0x1000
_STATX_BYTES = 256
_ATTRIBUTES_OFFSET = 8
_ATTR_COMPRESSED = 0x4
_ATTR_ENCRYPTED = 0x800

_libc = ctypes.CDLL(None, use_errno=True)


def stored_traits(path: Path) -> tuple[str, ...]:
    """`compressed` and `encrypted`, where the file system says so of this file or folder."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        attributes = _attributes(fd)
        regular = stat.S_ISREG(os.fstat(fd).st_mode)
        flags = _extent_flags(fd) if regular else 0
    finally:
        os.close(fd)
    encrypted = bool(attributes & _ATTR_ENCRYPTED or flags & _EXTENT_ENCRYPTED)
    # EXTENT_DATA_ENCRYPTED implies EXTENT_ENCODED (filesystems/fiemap.rst).
    encoded = bool(flags & _EXTENT_ENCODED) and not flags & _EXTENT_ENCRYPTED
    # A folder's attribute is what new files will get; a file's extents are what it is.
    compressed = encoded if regular else bool(attributes & _ATTR_COMPRESSED)
    found = {"compressed": compressed, "encrypted": encrypted}
    return tuple(name for name, there in found.items() if there)


def _extent_flags(fd: int) -> int:
    """Flags of the first extents, or-ed together; 0 where the file system has no FIEMAP."""
    buffer = bytearray(_HEADER.size + _EXTENTS * _EXTENT.size)
    _HEADER.pack_into(buffer, 0, 0, 2**64 - 1, 0, 0, _EXTENTS, 0)
    try:
        fcntl.ioctl(fd, _FS_IOC_FIEMAP, buffer)
    except OSError:
        return 0
    mapped = _HEADER.unpack_from(buffer)[3]
    flags = 0
    for index in range(min(mapped, _EXTENTS)):
        flags |= _EXTENT.unpack_from(buffer, _HEADER.size + index * _EXTENT.size)[5]
    return flags


def _attributes(fd: int) -> int:
    """stx_attributes; 0 where the C library or the kernel has no statx."""
    if not hasattr(_libc, "statx"):
        return 0
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if _libc.statx(fd, b"", _AT_EMPTY_PATH, 0, buffer) != 0:
        return 0
    return int.from_bytes(buffer.raw[_ATTRIBUTES_OFFSET : _ATTRIBUTES_OFFSET + 8], sys.byteorder)
