# SPDX-License-Identifier: Apache-2.0
"""The balloon: lock so much memory in a process of its own that C bytes stay available.

Sizes are bytes; locked = MemAvailable - C at the moment of enforcing, rounded down to a page.
It grows in steps and looks at MemAvailable before each: a step that would cross the floor, a step
that fails, and a VmLck that is not the request all end the balloon with a CapacityError.  The
process is the first choice of the OOM killer and ends when its parent does, kill -9 included.
PR_SET_PDEATHSIG follows the starting *thread*: start a balloon from one that outlives it.
"""

import errno
import mmap
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from pagetier.capacity import balloon_process
from pagetier.capacity.base import Enforced
from pagetier.capacity.errors import CapacityError
from pagetier.capacity.meminfo import Meminfo, read_meminfo
from pagetier.capacity.percpu import drain_per_cpu_lists, read_per_cpu_bytes
from pagetier.capacity.procstatus import read_anon_huge_bytes, read_status
from pagetier.capacity.reaping import reap_process
from pagetier.cgroups.procstat import read_start_ticks
from pagetier.cgroups.roots import Roots
from pagetier.cgroups.scope import Scope

__all__ = ["Balloon", "BalloonEnforcement", "BalloonProcess", "plan_balloon", "reap"]

Order = Literal["touch-lock", "lock-touch"]
HugePages = Literal["on", "off"]

DEFAULT_FLOOR_BYTES = 2 * 1024**3
DEFAULT_STEP_BYTES = 256 * 1024**2
# Exit of a process that held gigabytes takes parts of a second, and MemAvailable grows meanwhile.
_SETTLED_BYTES = 8 * 1024**2
_SETTLE_INTERVAL_S = 0.1
_SETTLE_INTERVALS = 50
_ANSWER_TIMEOUT_S = 120.0
_EXIT_TIMEOUT_S = 10.0
_SCRIPT = str(Path(balloon_process.__file__))


class BalloonProcess:
    """One process with exactly `lock_bytes` locked; a context manager, or start and stop."""

    def __init__(
        self,
        lock_bytes: int,
        *,
        roots: Roots,
        floor_bytes: int = DEFAULT_FLOOR_BYTES,
        order: Order = "touch-lock",
        huge_pages: HugePages = "off",
        step_bytes: int = DEFAULT_STEP_BYTES,
    ) -> None:
        _check_whole_pages(lock_bytes, "a balloon")
        _check_whole_pages(step_bytes, "a balloon's step")
        self.lock_bytes = lock_bytes
        self._roots = roots
        self._floor_bytes = floor_bytes
        self._order = order
        self._huge_pages = huge_pages
        self._step_bytes = step_bytes
        self._process: subprocess.Popen[str] | None = None
        self._start_ticks: int | None = None

    def __enter__(self) -> "BalloonProcess":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process; raises CapacityError before it is started."""
        return self._running().pid

    @property
    def start_ticks(self) -> int:
        """Start time by which `reap` knows the process again."""
        if self._start_ticks is None:
            raise CapacityError("the balloon is not started")
        return self._start_ticks

    def start(self) -> None:
        """Lock everything; raises CapacityError, with the process gone, when that fails."""
        arguments = [_SCRIPT, str(os.getpid()), self._order, self._huge_pages]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the harness, which then ends the balloon
        )
        with ExitStack() as undo:
            undo.callback(self.stop)
            self._start_ticks = read_start_ticks(self._roots, self._process.pid)
            self._grow()
            self._verify()
            undo.pop_all()

    def stop(self) -> None:
        """Close stdin, which ends the process; kill it when it does not go."""
        process = self._process
        if process is None:
            return
        self._process = None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def problems(self) -> list[str]:
        """Died, or VmLck is not the request."""
        process = self._running()
        if process.poll() is not None:
            return [f"balloon {process.pid} died ({_ending(process.returncode)}): memory came free"]
        locked_bytes = self.vm_lck_bytes()
        if locked_bytes != self.lock_bytes:
            return [f"balloon {process.pid} has VmLck {locked_bytes}, asked for {self.lock_bytes}"]
        return []

    def vm_lck_bytes(self) -> int | None:
        """VmLck now; None when the process is gone."""
        status = read_status(self._roots, self.pid)
        return None if status is None else status.vm_lck_bytes

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None:
            raise CapacityError("the balloon is not started")
        return self._process

    def _grow(self) -> None:
        locked_bytes = 0
        while locked_bytes < self.lock_bytes:
            step_bytes = min(self._step_bytes, self.lock_bytes - locked_bytes)
            self._check_floor(step_bytes, locked_bytes)
            self._lock_step(step_bytes, locked_bytes)
            locked_bytes += step_bytes

    def _check_floor(self, step_bytes: int, locked_bytes: int) -> None:
        available_bytes = _available_bytes(read_meminfo(self._roots))
        if available_bytes - step_bytes < self._floor_bytes:
            raise CapacityError(
                f"balloon stopped at {locked_bytes} of {self.lock_bytes} bytes: MemAvailable is "
                f"{available_bytes}, and {step_bytes} more would cross the floor of "
                f"{self._floor_bytes}; free memory or ask for a larger capacity"
            )

    def _lock_step(self, step_bytes: int, locked_bytes: int) -> None:
        words = self._ask(step_bytes).split()
        if words == ["locked", str(locked_bytes + step_bytes)]:
            return
        if len(words) == 3 and words[0] == "failed":
            raise CapacityError(self._failure(words[1], int(words[2]), locked_bytes))
        ending = _ending(self._running().wait(_EXIT_TIMEOUT_S)) if not words else f"said {words}"
        raise CapacityError(
            f"balloon ended at {locked_bytes} of {self.lock_bytes} bytes ({ending}): see the "
            "kernel log for an OOM kill, and ask for a larger capacity"
        )

    def _ask(self, step_bytes: int) -> str:
        """One line of answer; empty when the process ended."""
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(f"{step_bytes}\n")
            process.stdin.flush()
        except BrokenPipeError:
            return ""
        ready, _, _ = select.select([process.stdout], [], [], _ANSWER_TIMEOUT_S)
        if not ready:
            raise CapacityError(
                f"balloon did not lock {step_bytes} bytes within {_ANSWER_TIMEOUT_S:g} s: the host "
                "is short of memory, ask for a larger capacity"
            )
        return process.stdout.readline()

    def _failure(self, call: str, number: int, locked_bytes: int) -> str:
        reason = f"{call}: {os.strerror(number)}"
        message = f"balloon locked {locked_bytes} of {self.lock_bytes} bytes ({reason})"
        if call != "mlock" or number not in (errno.ENOMEM, errno.EPERM, errno.EAGAIN):
            return f"{message}: ask for a larger capacity"
        soft_bytes, _ = resource.prlimit(self.pid, resource.RLIMIT_MEMLOCK)
        limit = "unlimited" if soft_bytes == resource.RLIM_INFINITY else f"{soft_bytes} bytes"
        return (
            f"{message}: RLIMIT_MEMLOCK is {limit}; raise it with `ulimit -l unlimited`, `prlimit "
            f"--pid {os.getpid()} --memlock=unlimited` or LimitMEMLOCK=infinity in the systemd "
            "unit, or run as root"
        )

    def _verify(self) -> None:
        locked_bytes = self.vm_lck_bytes()
        if locked_bytes != self.lock_bytes:
            raise CapacityError(
                f"balloon has VmLck {locked_bytes} after {self.lock_bytes} bytes were asked for: "
                "the lock is partial, so no capacity is enforced"
            )


class BalloonEnforcement:
    """A balloon that is up."""

    def __init__(self, enforced: Enforced, process: BalloonProcess) -> None:
        self._enforced = enforced
        self._process = process

    @property
    def enforced(self) -> Enforced:
        """VmLck as read back, with MemAvailable before and after among the facts."""
        return self._enforced

    @property
    def process(self) -> BalloonProcess:
        """For samplers: its pid and VmLck."""
        return self._process

    def problems(self) -> list[str]:
        """Died, or VmLck is not the request."""
        return self._process.problems()


class Balloon:
    """Leave C bytes of MemAvailable by locking the rest."""

    name = "balloon"

    def __init__(
        self,
        roots: Roots,
        *,
        floor_bytes: int = DEFAULT_FLOOR_BYTES,
        order: Order = "touch-lock",
        huge_pages: HugePages = "off",
        step_bytes: int = DEFAULT_STEP_BYTES,
    ) -> None:
        self._roots = roots
        self._floor_bytes = floor_bytes
        self._order: Order = order
        self._huge_pages: HugePages = huge_pages
        self._step_bytes = step_bytes

    @contextmanager
    def enforce(
        self, capacity_bytes: int | None, scope: Scope | None
    ) -> Iterator[BalloonEnforcement]:
        """Blow up now, to what MemAvailable is now; the scope, if any, is not touched."""
        if capacity_bytes is None:
            raise CapacityError("a balloon needs a capacity to leave available")
        before = _settled_meminfo(self._roots)
        per_cpu_bytes = read_per_cpu_bytes(self._roots)
        process = BalloonProcess(
            plan_balloon(before, capacity_bytes, self._floor_bytes),
            roots=self._roots,
            floor_bytes=self._floor_bytes,
            order=self._order,
            huge_pages=self._huge_pages,
            step_bytes=self._step_bytes,
        )
        with process:
            enforced = self._read_back(capacity_bytes, process, before, per_cpu_bytes)
            yield BalloonEnforcement(enforced, process)

    def _read_back(
        self,
        capacity_bytes: int,
        process: BalloonProcess,
        before: Meminfo,
        per_cpu_bytes: int | None,
    ) -> Enforced:
        after = read_meminfo(self._roots)
        return Enforced(
            mechanism=self.name,
            capacity_bytes=capacity_bytes,
            headroom_bytes=None,
            limit_bytes=None,
            swap_limit_bytes=None,
            locked_bytes=process.vm_lck_bytes(),
            facts={
                "requested_bytes": process.lock_bytes,
                "floor_bytes": self._floor_bytes,
                "order": self._order,
                "huge_pages": self._huge_pages,
                "available_before_bytes": before.available_bytes,
                "available_after_bytes": after.available_bytes,
                "per_cpu_free_before_bytes": per_cpu_bytes,
                "mlocked_before_bytes": before.mlocked_bytes,
                "mlocked_after_bytes": after.mlocked_bytes,
                "anon_huge_bytes": read_anon_huge_bytes(self._roots, process.pid),
                "pid": process.pid,
                "start_ticks": process.start_ticks,
            },
        )


def plan_balloon(
    meminfo: Meminfo, capacity_bytes: int, floor_bytes: int, page_bytes: int = mmap.PAGESIZE
) -> int:
    """Bytes to lock so that `capacity_bytes` stay available; whole pages, rounded down.

    Raises CapacityError for a capacity under the floor and for one that is not available anyway.
    """
    if capacity_bytes < floor_bytes:
        raise CapacityError(
            f"a balloon that leaves {capacity_bytes} bytes would cross the floor of {floor_bytes} "
            "bytes of MemAvailable: ask for a larger capacity, a lower floor or a wall"
        )
    available_bytes = _available_bytes(meminfo)
    lock_bytes = (available_bytes - capacity_bytes) // page_bytes * page_bytes
    if lock_bytes <= 0:
        raise CapacityError(
            f"a balloon cannot leave {capacity_bytes} bytes: MemAvailable is {available_bytes} "
            f"already{_locked_by_others(meminfo)}; ask for a smaller capacity"
        )
    return lock_bytes


def reap(pid: int, start_ticks: int, roots: Roots) -> bool:
    """Kill the balloon that a dead harness left; True when it was there and is gone now."""
    return reap_process(pid, start_ticks, {_SCRIPT}, roots)


def _settled_meminfo(roots: Roots) -> Meminfo:
    """Memory of the host once processes that ended have given theirs back, and CPUs what they keep.

    A balloon sized before that would leave their memory to the cell, beside C.
    """
    drain_per_cpu_lists(roots)
    before = read_meminfo(roots)
    for _ in range(_SETTLE_INTERVALS):
        time.sleep(_SETTLE_INTERVAL_S)
        drain_per_cpu_lists(roots)
        now = read_meminfo(roots)
        if _available_bytes(now) - _available_bytes(before) <= _SETTLED_BYTES:
            return now
        before = now
    return before


def _locked_by_others(meminfo: Meminfo) -> str:
    if not meminfo.mlocked_bytes:
        return ""
    return f" ({meminfo.mlocked_bytes} bytes are locked by other processes)"


def _available_bytes(meminfo: Meminfo) -> int:
    if meminfo.available_bytes is None:
        raise CapacityError("this kernel has no MemAvailable (3.14): a balloon cannot be sized")
    return meminfo.available_bytes


def _check_whole_pages(size_bytes: int, what: str) -> None:
    if size_bytes <= 0 or size_bytes % mmap.PAGESIZE:
        raise CapacityError(f"{what} of {size_bytes} bytes is no positive multiple of a page")


def _ending(returncode: int) -> str:
    if returncode < 0:
        return signal.Signals(-returncode).name
    return f"exit status {returncode}"
