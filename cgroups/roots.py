# SPDX-License-Identifier: Apache-2.0
"""Where the kernel's file systems are mounted; a test points all three at a temporary directory."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Roots"]


@dataclass(frozen=True, slots=True)
class Roots:
    """Mount points of procfs, sysfs and the cgroup file systems."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    cgroup: Path = Path("/sys/fs/cgroup")
