# SPDX-License-Identifier: Apache-2.0
"""A scope on cgroup v2, made directly in cgroupfs (Documentation/admin-guide/cgroup-v2.rst).

Sizes are bytes, `pgscan`, `pgsteal` and refaults are pages.  memory.peak exists since 5.19, the
`kernel` line of memory.stat since 5.18, the split refault counters since 5.9: what is absent is
looked for in its older shape, and is None when there is none.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pagetier.cgroups.base import Events, Limits, MemoryState, check_limit, check_name
from pagetier.cgroups.errors import CgroupError, ParseError
from pagetier.cgroups.files import (
    parse_count,
    parse_limit,
    read_count,
    read_optional,
    read_text,
    write_value,
)
from pagetier.cgroups.flatkeyed import parse_flat_keyed
from pagetier.cgroups.joining import await_member, enter_command
from pagetier.cgroups.members import kill_members, make_directory, member_pids, remove_directory
from pagetier.cgroups.psi import Pressure, read_pressure
from pagetier.cgroups.roots import Roots

__all__ = ["V2Scope", "parse_io_stat"]

_KERNEL_PARTS = ("kernel_stack", "pagetables", "percpu", "vmalloc", "slab")


class V2Scope:
    """A child of `base`, which `create` first makes able to hold it when `enable` says so.

    What a scope enabled it disables again in `remove`, unless another scope of ours is there.
    """

    version = "v2"

    def __init__(
        self, name: str, base: Path, mount: Path, roots: Roots, enable: Sequence[str] = ()
    ) -> None:
        self._name = check_name(name)
        self._base = base
        self._mount = mount
        self._roots = roots
        self._enable = tuple(enable)
        self._enabled: list[str] = []

    @property
    def name(self) -> str:
        """`pagetier-<token>-<n>`."""
        return self._name

    @property
    def path(self) -> Path:
        """Directory of the scope."""
        return self._base / self._name

    def directories(self) -> tuple[Path, ...]:
        """The one directory."""
        return (self.path,)

    def create(self) -> None:
        """Enable what the parent lacks, make the directory, check that memory is controlled."""
        self._enable_controllers()
        try:
            make_directory(self.path)
            if not (self.path / "memory.max").exists():
                remove_directory(self.path)
                raise CgroupError(
                    f"{self.path} had no memory.max: do `echo +memory > "
                    f"{self._base}/cgroup.subtree_control` first"
                )
        except CgroupError:
            self._disable_controllers()
            raise

    def command(self, argv: Sequence[str]) -> list[str]:
        """argv behind the script that joins this cgroup."""
        return enter_command([self.path / "cgroup.procs"], argv)

    def attach(self, pid: int, timeout_s: float = 10.0) -> None:
        """Wait until /proc/<pid>/cgroup names this scope."""
        await_member(self._roots, pid, "", self._name, timeout_s)

    def set_limit(self, memory_bytes: int) -> None:
        """memory.max, and memory.swap.max 0 where swap is accounted; both read back."""
        write_value(self.path / "memory.max", str(memory_bytes))
        if (self.path / "memory.swap.max").exists():
            write_value(self.path / "memory.swap.max", "0")
        check_limit(self.path, memory_bytes, self.limits())

    def clear_limit(self) -> None:
        """Both limits back to `max`."""
        for file in ("memory.max", "memory.swap.max"):
            if (self.path / file).exists():
                write_value(self.path / file, "max")

    def exists(self) -> bool:
        """Whether the directory is there."""
        return self.path.is_dir()

    def limits(self) -> Limits:
        """memory.max and memory.swap.max."""
        memory, swap = self.path / "memory.max", self.path / "memory.swap.max"
        text = read_optional(swap)
        return Limits(
            memory_bytes=parse_limit(read_text(memory), str(memory)),
            swap_bytes=None if text is None else parse_limit(text, str(swap)),
            swap_accounted=text is not None,
        )

    def memory(self) -> MemoryState:
        """memory.current, memory.peak and memory.stat."""
        current, stat = self.path / "memory.current", self.path / "memory.stat"
        raw = parse_flat_keyed(read_text(stat), str(stat))
        refaults = raw.get("workingset_refault_file", raw.get("workingset_refault"))
        return MemoryState(
            current_bytes=parse_count(read_text(current), str(current)),
            peak_bytes=read_count(self.path / "memory.peak"),
            anon_bytes=_required(raw, "anon", stat),
            file_bytes=_required(raw, "file", stat),
            kernel_bytes=_kernel_bytes(raw),
            refault_file_pages=refaults,
            pgscan_pages=raw.get("pgscan"),
            pgsteal_pages=raw.get("pgsteal"),
            raw=raw,
        )

    def events(self) -> Events:
        """memory.events."""
        path = self.path / "memory.events"
        values = parse_flat_keyed(read_text(path), str(path))
        return Events(values.get("oom"), values.get("oom_kill"), values.get("max"))

    def pressure(self) -> Pressure | None:
        """memory.pressure, absent before 4.20 and without PSI."""
        return read_pressure(self.path / "memory.pressure")

    def io(self) -> dict[str, int] | None:
        """rbytes of io.stat; None where the io controller is not enabled for this scope."""
        path = self.path / "io.stat"
        text = read_optional(path)
        return None if text is None else parse_io_stat(text, str(path))

    def pids(self) -> list[int]:
        """cgroup.procs."""
        return member_pids(self.path)

    def remove(self) -> None:
        """Kill the members, remove the directory, undo what `create` enabled."""
        kill_members(self.path)
        remove_directory(self.path)
        self._disable_controllers()

    def ancestor_limit_bytes(self) -> int | None:
        """The smallest memory.max or memory.high above: from `high` on reclaim sets in."""
        limits = _ancestor_limits(self.path, self._mount)
        return min((limit for limit in limits if limit is not None), default=None)

    def _enable_controllers(self) -> None:
        control = self._base / "cgroup.subtree_control"
        for controller in self._enable:
            if controller not in read_text(control).split():
                write_value(control, f"+{controller}")
                self._enabled.append(controller)

    def _disable_controllers(self) -> None:
        if self._enabled and not any(self._base.glob("pagetier-*")):
            for controller in self._enabled:
                write_value(self._base / "cgroup.subtree_control", f"-{controller}")
            self._enabled.clear()


def parse_io_stat(text: str, source: str = "io.stat") -> dict[str, int]:
    """rbytes by `MAJ:MIN`; a device without keys had no I/O yet, and is left out."""
    read_bytes: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        device, *fields = line.split() or [""]
        values = dict(field.partition("=")[::2] for field in fields)
        if "rbytes" in values:
            read_bytes[device] = parse_count(values["rbytes"], source, number, "rbytes")
    return read_bytes


def _ancestor_limits(path: Path, mount: Path) -> Iterator[int | None]:
    for ancestor in path.parents:
        for name in ("memory.max", "memory.high"):
            text = read_optional(ancestor / name)
            yield None if text is None else parse_limit(text, str(ancestor / name))
        if ancestor == mount:
            return


def _required(raw: dict[str, int], name: str, source: Path) -> int:
    if name not in raw:
        raise ParseError(str(source), None, f"no {name} line in it")
    return raw[name]


def _kernel_bytes(raw: dict[str, int]) -> int | None:
    """`kernel` is a8c49af3be5f (5.18); before it the parts that were accounted are summed."""
    if "kernel" in raw:
        return raw["kernel"]
    parts = [raw[name] for name in _KERNEL_PARTS if name in raw]
    return sum(parts) if parts else None
