# SPDX-License-Identifier: Apache-2.0
"""Who has locked memory: VmLck of every process, the largest first.

/proc/PID/status is open to everyone, unless /proc is mounted with hidepid.
"""

from pagetier.analysis.mitigations import Locker
from pagetier.bench.kernel.text import read_line
from pagetier.capacity.procstatus import read_status
from pagetier.cgroups.roots import Roots

__all__ = ["read_lockers"]


def read_lockers(roots: Roots, most: int = 5) -> tuple[Locker, ...]:
    """Up to `most` processes that have locked anything."""
    found = []
    for folder in roots.proc.glob("[0-9]*"):
        if not folder.name.isdecimal():
            continue
        status = read_status(roots, int(folder.name))
        if status is not None and status.vm_lck_bytes:
            name = read_line(folder / "comm") or "?"
            found.append(Locker(int(folder.name), name, status.vm_lck_bytes))
    return tuple(sorted(found, key=lambda one: -one.locked_bytes)[:most])
