# SPDX-License-Identifier: Apache-2.0
"""The balloon itself: a process that locks memory on command and dies with its parent.

    balloon_process.py PARENT_PID ORDER HUGE_PAGES

Runs as a script under `python -I -S` and imports no other module of the project, so that it holds
little beside what it locks.  Each line on stdin is a number of bytes to lock in addition; the
answer is one line on stdout: `locked TOTAL`, or `failed CALL ERRNO`.  End of stdin ends it; so does
the parent's death by any means, by PR_SET_PDEATHSIG (which follows the *thread* that started it).
Policy (floors, steps, verification) is the parent's: see pagetier.capacity.balloon.
"""

import ctypes
import errno
import mmap
import os
import signal
import sys

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
_MADVICE = {"on": mmap.MADV_HUGEPAGE, "off": mmap.MADV_NOHUGEPAGE}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


class CallError(Exception):
    """A system call failed: its name and errno."""

    def __init__(self, call: str, number: int) -> None:
        super().__init__(call, number)
        self.call = call
        self.number = number


def die_with(parent_pid: int) -> None:
    """Ask for SIGKILL at the parent's death; exit at once when it died before we asked."""
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise CallError("prctl(PR_SET_PDEATHSIG)", ctypes.get_errno())
    if os.getppid() != parent_pid:
        sys.exit(1)


def volunteer_for_oom() -> None:
    """First choice of the OOM killer: a balloon must never cost the host another process."""
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def map_pages(size_bytes: int, huge_pages: str) -> mmap.mmap:
    """Private anonymous memory with the wanted advice on huge pages."""
    try:
        pages = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise CallError("mmap", error.errno or 0) from error
    try:
        pages.madvise(_MADVICE[huge_pages])
    except OSError as error:
        # EINVAL is a kernel without transparent huge pages: `off` is then true already.
        if huge_pages == "on" or error.errno != errno.EINVAL:
            raise CallError("madvise", error.errno or 0) from error
    return pages


def lock_pages(pages: mmap.mmap, order: str) -> None:
    """Touch every page and mlock them; mlock before the touch faults the pages in by itself."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    if order == "touch-lock":
        ctypes.memset(address, 1, len(pages))
    if _libc.mlock(address, len(pages)) != 0:
        raise CallError("mlock", ctypes.get_errno())
    if order == "lock-touch":
        ctypes.memset(address, 1, len(pages))


def serve(order: str, huge_pages: str) -> None:
    """Lock what each line asks for, until stdin ends; the mappings live as long as the process."""
    held: list[mmap.mmap] = []
    total_bytes = 0
    for line in sys.stdin:
        try:
            pages = map_pages(int(line), huge_pages)
            held.append(pages)
            lock_pages(pages, order)
        except CallError as error:
            print(f"failed {error.call} {error.number}", flush=True)
            continue
        total_bytes += len(pages)
        print(f"locked {total_bytes}", flush=True)


def main(arguments: list[str]) -> None:
    """Become killable in every way first, then serve."""
    parent_pid, order, huge_pages = arguments
    die_with(int(parent_pid))
    volunteer_for_oom()
    serve(order, huge_pages)


if __name__ == "__main__":
    main(sys.argv[1:])
