# SPDX-License-Identifier: Apache-2.0
"""Files of one process; of /proc/<pid>/stat (proc(5)) state, whether it is ending, start in ticks.

Pid and start together name one process for as long as the host is up.  A process that is gone has
no files: its text, and every fact in it, is None.
"""

from dataclasses import dataclass

from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.files import parse_count
from pagetier.cgroups.roots import Roots

__all__ = ["ProcessStat", "parse_stat", "read_process_file", "read_start_ticks", "read_stat"]

_FLAGS_AFTER_NAME = 9 - 3
_START_AFTER_NAME = 22 - 3
_PF_EXITING = 0x4  # include/linux/sched.h


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """State letter (`Z` and `X` have ended), whether its end has begun, and start since boot."""

    state: str
    exiting: bool
    start_ticks: int


def parse_stat(text: str, source: str = "/proc/<pid>/stat") -> ProcessStat:
    """Fields 3, 9 and 22, counted from the last parenthesis: the name may hold anything."""
    fields = text.rpartition(")")[2].split()
    if len(fields) <= _START_AFTER_NAME:
        raise ParseError(source, 1, "field 22 (starttime) is missing")
    start_ticks = parse_count(fields[_START_AFTER_NAME], source, 1, "field 22 (starttime)")
    flags = parse_count(fields[_FLAGS_AFTER_NAME], source, 1, "field 9 (flags)")
    return ProcessStat(fields[0], bool(flags & _PF_EXITING), start_ticks)


def read_process_file(roots: Roots, pid: int, name: str) -> str | None:
    """The text of /proc/<pid>/<name>; raises OSError when we may not read it."""
    path = roots.proc / str(pid) / name
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, ProcessLookupError):
        return None


def read_stat(roots: Roots, pid: int) -> ProcessStat | None:
    """The process now."""
    text = read_process_file(roots, pid, "stat")
    return None if text is None else parse_stat(text, f"{roots.proc}/{pid}/stat")


def read_start_ticks(roots: Roots, pid: int) -> int | None:
    """When the process started."""
    stat = read_stat(roots, pid)
    return None if stat is None else stat.start_ticks
