# SPDX-License-Identifier: Apache-2.0
"""Flat keyed kernel files, `name value` per line: memory.stat, memory.events, vmstat, oom_control.

The unit of a value is the file's own (bytes or base pages); this parser passes it on as it is.
Lines are found by name because their order changes between releases (mm/vmstat.c).
"""

from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.files import parse_count

__all__ = ["parse_flat_keyed"]


def parse_flat_keyed(text: str, source: str = "flat keyed file") -> dict[str, int]:
    """Every name with its value; raises ParseError for a malformed line, a repeat or no line."""
    values: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        fields = line.split()
        if len(fields) != 2:
            raise ParseError(source, number, f"expected `name value`, found {line!r}")
        name, digits = fields
        if name in values:
            raise ParseError(source, number, f"{name} appears twice")
        values[name] = parse_count(digits, source, number, name)
    if not values:
        raise ParseError(source, None, "nothing in it")
    return values
