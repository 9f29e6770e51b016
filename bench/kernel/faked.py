# SPDX-License-Identifier: Apache-2.0
"""Files of /proc that a program answers instead of the kernel, as lxcfs does in containers.

They show the container's share: a MemAvailable or a sector count that is not the host's.
"""

import os
from collections.abc import Callable
from pathlib import Path

from pagetier.tiers.filesystem import file_system_magic

__all__ = ["faked_files"]

FUSE_SUPER_MAGIC = 0x65735546  # linux/magic.h

# What lxcfs offers, of what is read here.
_NAMES = ("meminfo", "diskstats", "swaps", "vmstat", "pressure/memory", "pressure/io")


def faked_files(proc: Path, magic_of: Callable[[int], int] = file_system_magic) -> tuple[str, ...]:
    """Their paths, as far as they are there and can be opened."""
    found = []
    for name in _NAMES:
        try:
            fd = os.open(proc / name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if magic_of(fd) == FUSE_SUPER_MAGIC:
                found.append(str(proc / name))
        finally:
            os.close(fd)
    return tuple(found)
