# SPDX-License-Identifier: Apache-2.0
"""Ends a process that a dead harness left, once it is known to be that process and ours."""

import os
import select
import signal
from collections.abc import Iterable

from pagetier.capacity.errors import CapacityError
from pagetier.cgroups.procstat import read_process_file, read_stat
from pagetier.cgroups.roots import Roots

__all__ = ["reap_process"]

_EXIT_TIMEOUT_S = 10.0
_ENDED = ("Z", "X")  # a zombie holds no memory any more


def reap_process(pid: int, start_ticks: int, words: Iterable[str], roots: Roots) -> bool:
    """Kill it; True when it was there and is gone now.

    Only a process with this pid, this start time and one of `words` on its command line is killed;
    one whose end has begun has no command line any more, and is waited for: what it holds comes
    free only at its end.  Raises CapacityError when it outlives SIGKILL.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    # From here on the handle is of one process: a new one with its number is not killed.
    try:
        stat = read_stat(roots, pid)
        if stat is None or stat.start_ticks != start_ticks or stat.state in _ENDED:
            return False
        found = (read_process_file(roots, pid, "cmdline") or "").split("\0")
        if not stat.exiting and not set(words) & set(found):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        ended, _, _ = select.select([handle], [], [], _EXIT_TIMEOUT_S)
    finally:
        os.close(handle)
    if not ended:
        raise CapacityError(f"process {pid} outlived SIGKILL by {_EXIT_TIMEOUT_S:g} s")
    return True
