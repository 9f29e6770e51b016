# SPDX-License-Identifier: Apache-2.0
"""A scope on cgroup v2 made by systemd, for hosts where it is PID 1 and owns the tree.

systemd-run(1) --scope asks the manager for a transient scope and becomes the program, so the scope
exists from the program's start to the end of its last process, and the pid is the one that was
started.  Sizes are plain bytes: systemd's suffixes are powers of 1024, its percentages are of the
installed memory.  A property whose controller is not delegated is ignored without a word (systemd
#9641), hence every limit is read back from the kernel's file.
"""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from pagetier.cgroups.base import check_limit
from pagetier.cgroups.errors import CgroupError
from pagetier.cgroups.joining import await_member
from pagetier.cgroups.members import kill_members, remove_directory
from pagetier.cgroups.mounts import UNIFIED
from pagetier.cgroups.roots import Roots
from pagetier.cgroups.v2 import V2Scope

__all__ = ["SystemdScope", "run_quietly"]


def run_quietly(argv: Sequence[str]) -> None:
    """Run a manager's command; raises CgroupError with the last line it wrote to stderr."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CgroupError(f"cannot run {argv[0]}: {error}") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise CgroupError(f"{argv[0]} failed ({done.returncode}): {lines[-1]}")


class SystemdScope(V2Scope):
    """A transient scope of the system manager, or of the user's with the `--user` option.

    Its directory is known only once `attach` has seen the started process.  A limit set before the
    start travels in the command; a later one goes through the manager, whose next reload would undo
    a direct write.
    """

    def __init__(
        self,
        name: str,
        base: Path,
        mount: Path,
        roots: Roots,
        options: Sequence[str] = (),
        run: Callable[[Sequence[str]], None] = run_quietly,
    ) -> None:
        super().__init__(name, base, mount, roots)
        self._options = tuple(options)
        self._run = run
        self._path: Path | None = None
        self._limit_bytes: int | None = None

    @property
    def path(self) -> Path:
        """Directory of the scope; raises CgroupError before the program was attached."""
        if self._path is None:
            raise CgroupError(f"{self._unit} has no directory yet: start its program first")
        return self._path

    @property
    def _unit(self) -> str:
        return f"{self.name}.scope"

    def directories(self) -> tuple[Path, ...]:
        """The one directory, once it is known."""
        return () if self._path is None else (self._path,)

    def create(self) -> None:
        """Nothing yet: systemd makes the scope together with its first process."""

    def command(self, argv: Sequence[str]) -> list[str]:
        """argv behind systemd-run; --collect frees the name even when the scope fails."""
        properties = ["MemoryAccounting=yes", "IOAccounting=yes"]
        if self._limit_bytes is not None:
            properties += _limit_properties(str(self._limit_bytes), "0")
        return [
            *("systemd-run", *self._options, "--scope", "--quiet", "--collect"),
            f"--unit={self.name}",
            *(part for value in properties for part in ("-p", value)),
            "--",
            *argv,
        ]

    def attach(self, pid: int, timeout_s: float = 10.0) -> None:
        """Learn the directory from /proc/<pid>/cgroup; read back a limit set before the start."""
        cgroup = await_member(self._roots, pid, UNIFIED, self._unit, timeout_s)
        self._path = self._mount / cgroup.lstrip("/")
        if not (self._path / "memory.max").exists():
            raise CgroupError(
                f"{self._path} has no memory.max: the memory controller is not delegated to "
                f"{self._path.parent} (Delegate=memory in its unit)"
            )
        if self._limit_bytes is not None:
            check_limit(self._path, self._limit_bytes, self.limits())

    def set_limit(self, memory_bytes: int) -> None:
        """Before the start: for the command.  After it: through the manager, then read back."""
        self._limit_bytes = memory_bytes
        if self._path is not None:
            self._set_properties(str(memory_bytes), "0")
            check_limit(self._path, memory_bytes, self.limits())

    def clear_limit(self) -> None:
        """Both limits back to infinity."""
        self._limit_bytes = None
        if self.exists():
            self._set_properties("infinity", "infinity")

    def exists(self) -> bool:
        """Whether the directory is known and there."""
        return self._path is not None and self._path.is_dir()

    def pids(self) -> list[int]:
        """cgroup.procs; empty before the start."""
        return [] if self._path is None else super().pids()

    def remove(self) -> None:
        """Kill the members; systemd removes the scope of none, and we what it leaves."""
        if self._path is not None:
            kill_members(self._path)
            remove_directory(self._path)

    def _set_properties(self, memory: str, swap: str) -> None:
        properties = _limit_properties(memory, swap)
        user = (option for option in self._options if option == "--user")
        self._run(["systemctl", *user, "set-property", "--runtime", self._unit, *properties])


def _limit_properties(memory: str, swap: str) -> list[str]:
    return [f"MemoryMax={memory}", f"MemorySwapMax={swap}"]
