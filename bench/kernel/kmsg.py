# SPDX-License-Identifier: Apache-2.0
"""/dev/kmsg: what the kernel logged since a mark, and the OOM kills in it.

A record is `priority,sequence,microseconds,flags;message`, followed by ` KEY=value` lines that are
no part of the message.  The log is a ring: records overwritten before they were read are counted
as lost, and with any lost "no kill found" is no proof.  Without permission (dmesg_restrict without
CAP_SYSLOG) or in a container without the device there is no log: `open_kernel_log` returns None.
"""

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.files import parse_count

__all__ = [
    "KernelLog",
    "LogRecord",
    "OomKill",
    "oom_kills",
    "open_kernel_log",
    "parse_record",
]

# devkmsg_read returns EINVAL to a buffer smaller than the record; the kernel's own limit is
# PRINTK_MESSAGE_MAX = 2048 since 6.3 and was CONSOLE_EXT_LOG_MAX = 8192 before.
_RECORD_BYTES = 8192

# "Killed process" is the act itself since 2.6; "Kill process ... or sacrifice child" (before 5.3)
# only announces it.  A command name may itself hold parentheses and blanks.
_KILLED = re.compile(r"Killed process (\d+) \((.*)\),? (?:UID|total-vm)")


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One message; at_us counts from boot on the printk clock (close to CLOCK_MONOTONIC)."""

    sequence: int
    at_us: int
    message: str


@dataclass(frozen=True, slots=True)
class OomKill:
    """A process that the kernel killed for memory."""

    pid: int
    name: str
    message: str

    @property
    def in_cgroup(self) -> bool:
        """Killed for the limit of a cgroup, not for the whole host's memory."""
        return self.message.startswith("Memory cgroup out of memory")


def parse_record(text: str, *, where: str = "/dev/kmsg") -> LogRecord:
    """One record as a single read returns it."""
    prefix, semicolon, rest = text.partition(";")
    fields = prefix.split(",")
    if not semicolon or len(fields) < 3:
        raise ParseError(where, None, f"{text[:60]!r} has no `priority,sequence,time,flags;`")
    return LogRecord(
        sequence=parse_count(fields[1], where, 1, "sequence"),
        at_us=parse_count(fields[2], where, 1, "time"),
        message=rest.split("\n", 1)[0],
    )


def oom_kills(records: list[LogRecord]) -> list[OomKill]:
    """The kills among some records, in their order."""
    found = [(record, _KILLED.search(record.message)) for record in records]
    return [
        OomKill(pid=int(match[1]), name=match[2], message=record.message)
        for record, match in found
        if match is not None
    ]


class KernelLog:
    """The log from the moment of opening on: each `read` returns what came since the last."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.lost = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> list[LogRecord]:
        """New records, none when nothing was logged; overwritten ones are added to `lost`."""
        records: list[LogRecord] = []
        while True:
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                return records
            except BrokenPipeError:  # EPIPE: the ring overtook us, the next read goes on behind
                self.lost += 1
                continue
            if not record:
                return records
            records.append(parse_record(record.decode("utf-8", errors="replace")))

    def close(self) -> None:
        """Close the device."""
        os.close(self._fd)


def open_kernel_log(path: Path = Path("/dev/kmsg")) -> KernelLog | None:
    """The log, marked at its present end; None when it is absent or not permitted."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.EPERM, errno.EACCES, errno.ENODEV, errno.ENXIO}:
            return None
        raise
    os.lseek(fd, 0, os.SEEK_END)
    return KernelLog(fd)
