# SPDX-License-Identifier: Apache-2.0
"""How many files of a pool may stay open at once."""

import contextlib
import resource
from typing import Final

__all__ = ["descriptors_at_hand"]

# Descriptors left for the rest of the process (database, sockets, counters of the kernel).
_SPARE_DESCRIPTORS: Final = 256


def descriptors_at_hand(wanted: int, threads: int) -> int:
    """What may stay open of what is wanted, after the soft limit was raised as far as it goes.

    Each thread keeps one more for a file that is opened for one read.
    """
    spare = _SPARE_DESCRIPTORS + threads
    _raise_descriptor_limit(wanted + spare)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(0, min(wanted, soft - spare))


def _raise_descriptor_limit(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    # "Unlimited" still ends at fs.nr_open; less than wanted is no error: see kept_open_files.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, reachable), hard))
