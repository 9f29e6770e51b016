# SPDX-License-Identifier: Apache-2.0
"""/proc/PID/io: bytes that one process moved, all of its threads together.

`read_bytes` counts what the process made the block layer fetch, readahead included; `rchar` what
its read calls returned, whether from a device or the page cache.  Unlike diskstats it sees no
foreign traffic, and it misses what a kernel thread fetches on the process's behalf.
"""

from dataclasses import dataclass
from pathlib import Path

from pagetier.bench.kernel.text import read_text
from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.files import parse_count

__all__ = ["ProcessIo", "parse_process_io", "read_process_io"]

_FIELDS = {"rchar": "rchar_bytes", "read_bytes": "read_bytes", "syscr": "read_calls"}


@dataclass(frozen=True, slots=True)
class ProcessIo:
    """What a process has read since it started."""

    rchar_bytes: int
    read_calls: int
    read_bytes: int


def parse_process_io(text: str, *, where: str = "/proc/PID/io") -> ProcessIo:
    """The three read counters; a text without one of them is an error."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        key, colon, rest = line.partition(":")
        if not colon:
            raise ParseError(where, number, f"{line[:60]!r} has no colon")
        if key in _FIELDS:
            found[_FIELDS[key]] = parse_count(rest, where, number, key)
    for key, field in _FIELDS.items():
        if field not in found:
            raise ParseError(where, None, f"no line {key!r}")
    return ProcessIo(**found)


def read_process_io(proc: Path, pid: int) -> ProcessIo | None:
    """Counters of a process; None when it has ended or may not be looked at."""
    path = proc / str(pid) / "io"
    text = read_text(path)
    # An exiting process can leave an empty file behind a successful read.
    return parse_process_io(text, where=str(path)) if text else None
