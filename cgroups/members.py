# SPDX-License-Identifier: Apache-2.0
"""One cgroup's directory and processes: make it, list them, kill exactly them, remove it.

A pid is held by a pidfd while its membership is looked up again, so that a pid which was reused in
between is never signalled (pidfd_open: 5.3).
"""

import errno
import os
import signal
import time
from pathlib import Path

from pagetier.cgroups.errors import CgroupError
from pagetier.cgroups.files import parse_count, read_optional

__all__ = ["kill_members", "make_directory", "member_pids", "remove_directory"]

_POLL_S = 0.01


def member_pids(cgroup: Path) -> list[int]:
    """Processes in this cgroup itself; empty when the cgroup is gone."""
    procs = cgroup / "cgroup.procs"
    text = read_optional(procs)
    lines = enumerate((text or "").splitlines(), start=1)
    return [parse_count(line, str(procs), number, "pid") for number, line in lines]


def kill_members(cgroup: Path, timeout_s: float = 10.0) -> None:
    """SIGKILL every process of this cgroup and wait until it is empty.

    Raises CgroupError when the caller itself is inside, when a member lives in a pid namespace that
    cannot be seen from here, and when a process does not die in time.
    """
    deadline = time.monotonic() + timeout_s
    while pids := member_pids(cgroup):
        if os.getpid() in pids:
            raise CgroupError(f"{cgroup} holds this very process: leave it before removing it")
        if 0 in pids:
            raise CgroupError(f"{cgroup} holds processes of another pid namespace: end them there")
        for pid in pids:
            _kill_member(cgroup, pid)
        if time.monotonic() > deadline:
            raise CgroupError(f"processes {pids} in {cgroup} outlived SIGKILL by {timeout_s:g} s")
        time.sleep(_POLL_S)


def make_directory(cgroup: Path) -> None:
    """mkdir; raises CgroupError with what stands in the way."""
    try:
        cgroup.mkdir()
    except FileExistsError as error:
        raise CgroupError(f"{cgroup} exists already: remove what an earlier run left") from error
    except OSError as error:
        raise CgroupError(f"cannot make the cgroup {cgroup}: {error.strerror}") from error


def remove_directory(cgroup: Path, timeout_s: float = 10.0) -> None:
    """rmdir; EBUSY is retried because an exiting process keeps its cgroup busy for a moment."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            cgroup.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise CgroupError(f"cannot remove {cgroup}: {error.strerror}") from error
        else:
            return
        time.sleep(_POLL_S)


def _kill_member(cgroup: Path, pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if pid in member_pids(cgroup):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)
