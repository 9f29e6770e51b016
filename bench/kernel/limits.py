# SPDX-License-Identifier: Apache-2.0
"""/proc/self/limits and the capabilities that lift them: locked memory, open files.

None is the documented meaning of `unlimited`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from pagetier.bench.kernel.text import read_text
from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.files import parse_count

__all__ = ["CAP_IPC_LOCK", "Limit", "Limits", "has_capability", "parse_limits", "read_limits"]

CAP_IPC_LOCK = 14

_ROWS = {"memlock_bytes": "Max locked memory", "open_files": "Max open files"}


@dataclass(frozen=True, slots=True)
class Limit:
    """Soft and hard limit; None means unlimited."""

    soft: int | None
    hard: int | None


@dataclass(frozen=True, slots=True)
class Limits:
    """The two limits that a run can hit."""

    memlock_bytes: Limit
    open_files: Limit


def parse_limits(text: str, *, where: str = "/proc/self/limits") -> Limits:
    """The two rows that matter; a missing one is an error."""
    return Limits(**{field: _row(text, title, where) for field, title in _ROWS.items()})


def read_limits(proc: Path) -> Limits | None:
    """Limits of this process; None when /proc does not show them."""
    path = proc / "self/limits"
    text = read_text(path)
    return None if text is None else parse_limits(text, where=str(path))


def has_capability(proc: Path, capability: int) -> bool | None:
    """Whether this process holds a capability now; None when /proc does not tell."""
    path = proc / "self/status"
    match = re.search(r"^CapEff:\s*(\S+)$", read_text(path) or "", re.MULTILINE)
    if match is None:
        return None
    try:
        return bool(int(match[1], 16) >> capability & 1)
    except ValueError:
        raise ParseError(
            str(path), None, f"CapEff is {match[1]!r}, not a hexadecimal mask"
        ) from None


def _row(text: str, title: str, where: str) -> Limit:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith(title):
            continue
        words = line[len(title) :].split()
        if len(words) < 2:
            raise ParseError(where, number, f"{title!r} has no soft and hard limit")
        return Limit(*(_value(word, where, number, title) for word in words[:2]))
    raise ParseError(where, None, f"no line {title!r}")


def _value(word: str, where: str, number: int, title: str) -> int | None:
    return None if word == "unlimited" else parse_count(word, where, number, title)
