# SPDX-License-Identifier: Apache-2.0
"""Memory lines of /proc/<pid>/status and smaps_rollup in bytes.

A kernel thread and a zombie have no Vm* lines: each of them is None there, never 0.  VmLck is the
size of the locked mappings, page-exact (mm->locked_vm), not a count of resident pages.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.procstat import read_process_file
from pagetier.cgroups.roots import Roots

__all__ = ["ProcessStatus", "parse_status", "read_anon_huge_bytes", "read_status"]

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
    sizes = _sizes(text, _NAMES, source)
    if "\nPid:" not in f"\n{text}":
        raise ParseError(source, None, "no Pid line in it")
    return ProcessStatus(*(sizes.get(name) for name in _NAMES))


def read_status(roots: Roots, pid: int) -> ProcessStatus | None:
    """The process now; None when it is gone."""
    text = read_process_file(roots, pid, "status")
    return None if text is None else parse_status(text, f"{roots.proc}/{pid}/status")


def read_anon_huge_bytes(roots: Roots, pid: int) -> int | None:
    """AnonHugePages of the process; None when it is gone and before 4.14 (smaps_rollup)."""
    text = read_process_file(roots, pid, "smaps_rollup") or ""
    sizes = _sizes(text, ("AnonHugePages",), f"{roots.proc}/{pid}/smaps_rollup")
    return sizes.get("AnonHugePages")


def _sizes(text: str, names: Collection[str], source: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        name, _, value = line.partition(":")
        if name not in names:
            continue
        match = _SIZE.fullmatch(value.rstrip())
        if match is None:
            raise ParseError(source, number, f"expected `{name}: <n> kB`, found {line!r}")
        sizes[name] = int(match.group(1)) * 1024
    return sizes
