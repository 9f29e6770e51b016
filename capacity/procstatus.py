# SPDX-License-Identifier: Apache-2.0
"""Memory lines of /proc/<pid>/status in bytes.

A kernel thread and a zombie have no Vm* lines: each of them is None there, never 0.  VmLck is the
size of the locked mappings, page-exact (mm->locked_vm), not a count of resident pages.
"""

import re
from dataclasses import dataclass

from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.roots import Roots

__all__ = ["ProcessStatus", "parse_status", "read_status"]

_SIZE = re.compile(r"\s*(\d+) kB", re.ASCII)
_NAMES = ("VmLck", "VmRSS", "VmHWM", "VmSwap")


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """Locked, resident, peak resident and swapped bytes of one process."""

    vm_lck_bytes: int | None
    vm_rss_bytes: int | None
    vm_hwm_bytes: int | None
    vm_swap_bytes: int | None


def parse_status(text: str, source: str = "/proc/<pid>/status") -> ProcessStatus:
    """The four sizes; raises ParseError for a malformed size and for a text that is no status."""
    sizes: dict[str, int] = {}
    names: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        name, _, value = line.partition(":")
        names.add(name)
        if name not in _NAMES:
            continue
        match = _SIZE.fullmatch(value.rstrip())
        if match is None:
            raise ParseError(source, number, f"expected `{name}: <n> kB`, found {line!r}")
        sizes[name] = int(match.group(1)) * 1024
    if "Pid" not in names:
        raise ParseError(source, None, "no Pid line in it")
    return ProcessStatus(*(sizes.get(name) for name in _NAMES))


def read_status(roots: Roots, pid: int) -> ProcessStatus:
    """The process now; raises FileNotFoundError or ProcessLookupError when it is gone."""
    path = roots.proc / str(pid) / "status"
    return parse_status(path.read_text(encoding="utf-8", errors="replace"), str(path))
