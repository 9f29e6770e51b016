# SPDX-License-Identifier: Apache-2.0
"""Single-value cgroup files: read, read if present, write; errors carry the path.

An absent file is None (the kernel lacks the feature).  A file that vanishes under an open
descriptor (ENODEV) means that the cgroup was removed, and is an error.
"""

import os
from pathlib import Path

from pagetier.cgroups.errors import CgroupError, ParseError

__all__ = ["parse_count", "parse_limit", "read_count", "read_optional", "read_text", "write_value"]


def parse_count(text: str, source: str, line: int = 1, field: str = "value") -> int:
    """An unsigned decimal number of any size; ParseError, for `max` too, names where it stood."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()):
        raise ParseError(source, line, f"{field} is {digits[:40]!r}, not an unsigned number")
    return int(digits)


def parse_limit(text: str, source: str = "cgroup limit") -> int | None:
    """A cgroup v2 limit in bytes; None means `max`, that is no limit."""
    return None if text.strip() == "max" else parse_count(text, source)


def read_text(path: Path) -> str:
    """The file's text; raises CgroupError when it cannot be read."""
    try:
        return path.read_text(encoding="ascii")
    except OSError as error:
        raise CgroupError(f"cannot read {path}: {error.strerror}") from error


def read_optional(path: Path) -> str | None:
    """The file's text, or None when this kernel has no such file in the cgroup."""
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CgroupError(f"cannot read {path}: {error.strerror}") from error


def read_count(path: Path) -> int | None:
    """The file's one number, or None when the file is absent."""
    text = read_optional(path)
    return None if text is None else parse_count(text, str(path))


def write_value(path: Path, value: str) -> None:
    """Write without creating: a cgroup file that is not there is an error, not a new file."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # cgroup.kill cannot be read
        try:
            os.write(descriptor, value.encode("ascii"))
        finally:
            os.close(descriptor)
    except OSError as error:
        message = f"cannot write {value!r} to {path}: {error.strerror}"
        raise CgroupError(message, errno=error.errno) from error
