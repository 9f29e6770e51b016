# SPDX-License-Identifier: Apache-2.0
"""Start time of a process, field 22 of /proc/<pid>/stat (proc(5)), in clock ticks since boot.

Together with the pid it names one process for as long as the host is up.  The command name in
field 2 may hold spaces and parentheses, so fields are counted from the last parenthesis.
"""

from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.roots import Roots

__all__ = ["parse_start_ticks", "read_start_ticks"]

_START_AFTER_NAME = 22 - 3


def parse_start_ticks(text: str, source: str = "/proc/<pid>/stat") -> int:
    """Field 22; raises ParseError when the line is too short or the field is no number."""
    fields = text.rpartition(")")[2].split()
    if len(fields) <= _START_AFTER_NAME or not fields[_START_AFTER_NAME].isdigit():
        raise ParseError(source, 1, "field 22 (starttime) is missing or no number")
    return int(fields[_START_AFTER_NAME])


def read_start_ticks(roots: Roots, pid: int) -> int:
    """The process's start; raises FileNotFoundError or ProcessLookupError when it is gone."""
    path = roots.proc / str(pid) / "stat"
    return parse_start_ticks(path.read_text(encoding="utf-8", errors="replace"), str(path))
