# SPDX-License-Identifier: Apache-2.0
"""Free memory in the lists that each CPU keeps for itself, which MemAvailable does not count.

Since Linux 6.7 these lists grow with use (mm/page_alloc.c, nr_pcp_high): on a host of 25 GB a
process of 2.4 GB that ended left 1.4 GB in them, given back at 8 MB a second.  /proc/zoneinfo has
their sizes, in pages; each look at /proc/sys/vm/stat_refresh lets every CPU give back a batch
(decay_pcp_high) and changes nothing else.  That file is root's.
"""

import mmap
import re
import time
from typing import Final

from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.roots import Roots

__all__ = ["drain_per_cpu_lists", "parse_per_cpu_pages", "read_per_cpu_bytes"]

# A list's line stands under its CPU, as in: "    cpu: 0\n              count:    395\n".
_CPU: Final = re.compile(r"^ +cpu: \d+$", re.ASCII | re.MULTILINE)
_LIST: Final = re.compile(r"^ +cpu: \d+\n +count: +(\d+)$", re.ASCII | re.MULTILINE)
_ROUND: Final = 64
# What CPUs at work take and give back meanwhile.
_SETTLED_BYTES: Final = 1 << 20


def parse_per_cpu_pages(text: str) -> int:
    """Pages in the lists of all CPUs and zones, from the text of /proc/zoneinfo."""
    counts = _LIST.findall(text)
    if not counts or len(counts) != len(_CPU.findall(text)):
        raise ParseError("/proc/zoneinfo", None, "has no `count:` under each `cpu:`")
    return sum(map(int, counts))


def read_per_cpu_bytes(roots: Roots) -> int | None:
    """Free memory in per-CPU lists; None where the kernel does not tell."""
    try:
        text = (roots.proc / "zoneinfo").read_text()
    except OSError:
        return None
    return parse_per_cpu_pages(text) * mmap.PAGESIZE


def drain_per_cpu_lists(roots: Roots, patience_s: float = 5.0) -> int | None:
    """Let the CPUs give their free memory back; what stays in their lists, None if unknown.

    Ends when a round brings next to nothing, when `patience_s` have passed, or at once where the
    lists are out of sight or out of reach.
    """
    deadline_s = time.monotonic() + patience_s
    left_bytes = read_per_cpu_bytes(roots)
    while left_bytes is not None and _refreshed(roots):
        before_bytes, left_bytes = left_bytes, read_per_cpu_bytes(roots)
        if left_bytes is None or before_bytes - left_bytes <= _SETTLED_BYTES:
            break
        if time.monotonic() > deadline_s:
            break
    return left_bytes


def _refreshed(roots: Roots) -> bool:
    path = roots.proc / "sys/vm/stat_refresh"
    try:
        for _ in range(_ROUND):
            path.read_bytes()
    except OSError:
        return False
    return True
