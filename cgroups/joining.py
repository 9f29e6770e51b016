# SPDX-License-Identifier: Apache-2.0
"""Start a program inside cgroups, and see by its /proc/<pid>/cgroup that it is there."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from pagetier.cgroups import enter
from pagetier.cgroups.errors import CgroupError
from pagetier.cgroups.mounts import parse_memberships
from pagetier.cgroups.procstat import read_process_file, read_stat
from pagetier.cgroups.roots import Roots

__all__ = ["await_member", "enter_command"]

_POLL_S = 0.005


def enter_command(procs_files: Sequence[Path], argv: Sequence[str]) -> list[str]:
    """argv behind the joining script, run by path so that no cwd or environment can shadow it."""
    files = [str(path) for path in procs_files]
    return [sys.executable, "-I", "-S", str(Path(enter.__file__)), *files, "--", *argv]


def await_member(roots: Roots, pid: int, controller: str, name: str, timeout_s: float) -> str:
    """The process's cgroup path once its last part is `name`.

    `controller` is a v1 controller's name, or "" for the v2 hierarchy.  Raises CgroupError when the
    process ends first, or is elsewhere when the time is up.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        path = _membership(roots, pid, controller)
        if path is None:
            raise CgroupError(f"process {pid} ended before it was in {name}: see its own message")
        if PurePosixPath(path).name == name:
            return path
        if time.monotonic() > deadline:
            raise CgroupError(f"process {pid} is in {path}, not in {name}, after {timeout_s:g} s")
        time.sleep(_POLL_S)


def _membership(roots: Roots, pid: int, controller: str) -> str | None:
    """None when the process is gone or a zombie: the kernel has moved that to the root already."""
    text, stat = read_process_file(roots, pid, "cgroup"), read_stat(roots, pid)
    if text is None or stat is None or stat.state in ("Z", "X"):
        return None
    return parse_memberships(text, f"{roots.proc}/{pid}/cgroup").get(controller, "")
