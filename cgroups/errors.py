# SPDX-License-Identifier: Apache-2.0
"""Errors of this room; every message is one sentence: what, where, what to do."""

__all__ = ["CgroupError", "ParseError"]


class CgroupError(Exception):
    """A cgroup cannot be made, limited, read or removed; `errno` is the kernel's, if it had one."""

    def __init__(self, message: str, *, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


class ParseError(ValueError):
    """A kernel file has a shape this version does not know; names the source, line and field."""

    def __init__(self, source: str, line: int | None, message: str) -> None:
        where = source if line is None else f"{source}:{line}"
        super().__init__(f"{where}: {message}")
