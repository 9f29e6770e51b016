# SPDX-License-Identifier: Apache-2.0
"""User-space OOM killers: they kill a process for the very pressure that a measurement makes.

Their kills leave no trace in the kernel's OOM counters, so they are looked for beforehand.
"""

from dataclasses import dataclass
from pathlib import Path

from pagetier.bench.kernel.text import read_line

__all__ = ["OomKiller", "read_oom_killers"]

# Command names as /proc/PID/comm shows them: cut at 15 bytes.
_NAMES = frozenset(
    {"systemd-oomd", "earlyoom", "nohang", "nohang-desktop", "oomd", "low-memory-moni"}
)


@dataclass(frozen=True, slots=True)
class OomKiller:
    """A running process that kills others under memory pressure."""

    pid: int
    name: str


def read_oom_killers(proc: Path) -> tuple[OomKiller, ...]:
    """All that run now, by process id."""
    found = []
    for folder in proc.glob("[0-9]*"):
        name = read_line(folder / "comm")
        if name in _NAMES and folder.name.isdecimal():
            found.append(OomKiller(pid=int(folder.name), name=name))
    return tuple(sorted(found, key=lambda killer: killer.pid))
