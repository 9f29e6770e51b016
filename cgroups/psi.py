# SPDX-License-Identifier: Apache-2.0
"""Pressure stall information: /proc/pressure/{cpu,memory,io} and the *.pressure files of a cgroup.

`avg*` are percentages, `total` is microseconds since boot (or since the cgroup was made).  A `full`
line is absent from cpu pressure before 5.13, a `some` line from irq pressure; absent is None.
Reading gives None when the kernel has no PSI: no file (CONFIG_PSI=n, cgroup v1) or EOPNOTSUPP
(CONFIG_PSI_DEFAULT_DISABLED without `psi=1`).
"""

import errno
from dataclasses import dataclass
from pathlib import Path

from pagetier.cgroups.errors import ParseError

__all__ = ["Pressure", "PsiLine", "parse_pressure", "read_pressure"]

_KEYS = ("avg10", "avg60", "avg300", "total")
_ABSENT = frozenset({errno.ENOENT, errno.EOPNOTSUPP})


@dataclass(frozen=True, slots=True)
class PsiLine:
    """One line: moving averages in percent, and the cumulative stall time."""

    avg10: float
    avg60: float
    avg300: float
    total_us: int


@dataclass(frozen=True, slots=True)
class Pressure:
    """Stalls of at least one task (`some`) and of all of them at once (`full`)."""

    some: PsiLine | None
    full: PsiLine | None


def parse_pressure(text: str, source: str = "pressure file") -> Pressure:
    """Both lines by name; raises ParseError for a missing key, a bad number or no known line."""
    lines: dict[str, PsiLine] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        kind, *fields = line.split() or [""]
        if kind in lines:
            raise ParseError(source, number, f"{kind} appears twice")
        if kind in ("some", "full"):
            lines[kind] = _parse_line(fields, source, number)
    if not lines:
        raise ParseError(source, None, "neither a `some` nor a `full` line in it")
    return Pressure(some=lines.get("some"), full=lines.get("full"))


def read_pressure(path: Path) -> Pressure | None:
    """The file's pressure, or None where this kernel keeps none."""
    try:
        text = path.read_text(encoding="ascii")
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise
    return parse_pressure(text, str(path))


def _parse_line(fields: list[str], source: str, number: int) -> PsiLine:
    values = dict(field.partition("=")[::2] for field in fields)
    for key in _KEYS:
        if key not in values:
            raise ParseError(source, number, f"{key} is missing")
    try:
        avg10, avg60, avg300 = (float(values[key]) for key in _KEYS[:3])
        total_us = int(values["total"])
    except ValueError as error:
        raise ParseError(source, number, f"bad number ({error})") from error
    return PsiLine(avg10, avg60, avg300, total_us)
