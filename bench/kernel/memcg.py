# SPDX-License-Identifier: Apache-2.0
"""A memory cgroup that others made: where it is, its counters by their v2 names, its limit.

On v1 the hierarchical `total_` lines stand for the v2 ones, which include descendants too.  Bytes
and pages are as memory.stat gives them; no limit is None.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pagetier.analysis.errors import InputError
from pagetier.bench.kernel.text import read_text
from pagetier.cgroups.files import parse_limit
from pagetier.cgroups.flatkeyed import parse_flat_keyed
from pagetier.cgroups.mounts import (
    UNIFIED,
    CgroupMount,
    directory_of,
    parse_memberships,
    parse_mounts,
)
from pagetier.cgroups.procstat import read_process_file
from pagetier.cgroups.roots import Roots

__all__ = ["MemoryCgroup", "find_cgroup", "find_hierarchy", "parse_memory_stat"]

# v1 writes PAGE_COUNTER_MAX pages for "no limit", whatever the page size.
_UNLIMITED_BYTES = 1 << 60
_TOTAL = "total_"


@dataclass(frozen=True, slots=True)
class MemoryCgroup:
    """One cgroup of the hierarchy that has the memory controller."""

    name: str
    """Its path in the hierarchy, such as `/system.slice/engine.service`."""
    folder: Path
    mount: Path
    version: str

    @property
    def unit(self) -> str | None:
        """systemd's name for it, where it has one."""
        last = PurePosixPath(self.name).name
        return last if last.endswith((".service", ".scope", ".slice")) else None

    @property
    def is_root(self) -> bool:
        """Whether this is the whole hierarchy, which is no limit and no one's own."""
        return self.folder == self.mount

    def limit_bytes(self) -> int | None:
        """The smallest limit on it, its ancestors' included; None when nothing limits it."""
        limits = (limit for folder in self._lineage() for limit in self._limits(folder))
        return min((limit for limit in limits if limit is not None), default=None)

    def _lineage(self) -> Iterator[Path]:
        folder = self.folder
        while folder != self.mount:
            yield folder
            folder = folder.parent

    def _limits(self, folder: Path) -> Iterator[int | None]:
        files = (
            ("memory.max", "memory.high") if self.version == "v2" else ("memory.limit_in_bytes",)
        )
        for file in files:
            text = read_text(folder / file)
            limit = None if text is None else parse_limit(text, str(folder / file))
            yield None if limit is None or limit >= _UNLIMITED_BYTES else limit


def parse_memory_stat(text: str, version: str, where: str = "memory.stat") -> dict[str, int]:
    """Every counter by its v2 name."""
    values = parse_flat_keyed(text, where)
    if version == "v2":
        if "workingset_refault" in values:  # not split into anon and file before 5.9
            values.setdefault("workingset_refault_file", values["workingset_refault"])
        return values
    totals = {name[len(_TOTAL) :]: value for name, value in values.items() if name[:6] == _TOTAL}
    renamed = {"cache": "file", "rss": "anon", "workingset_refault": "workingset_refault_file"}
    for old, new in renamed.items():
        if old in totals:
            totals.setdefault(new, totals[old])
    return totals


def find_hierarchy(roots: Roots) -> CgroupMount | None:
    """The mount that has the memory controller; None where there is none."""
    text = read_text(roots.proc / "self/mountinfo") or ""
    mounts = parse_mounts(text, str(roots.proc / "self/mountinfo"))
    for mount in mounts:
        if mount.version == "v1" and "memory" in mount.controllers:
            return mount
    for mount in mounts:
        controllers = read_text(mount.directory(roots) / "cgroup.controllers") or ""
        if mount.version == "v2" and "memory" in controllers.split():
            return mount
    return None


def find_cgroup(roots: Roots, *, name: str | None = None, pid: int | None = None) -> MemoryCgroup:
    """The cgroup with this path, or of this process; InputError when it cannot be found."""
    mount = find_hierarchy(roots)
    if mount is None:
        raise InputError("no memory cgroups are mounted here: leave out --cgroup, or mount cgroup2")
    point = mount.directory(roots)
    if name is None:
        assert pid is not None
        name = _name_of(roots, pid, mount)
        folder = directory_of(mount, name, roots)
    else:
        inside = PurePosixPath(name)
        if inside.is_relative_to(point):
            inside = inside.relative_to(point)
        name = f"/{str(inside).strip('/').removeprefix('.')}"
        folder = None if ".." in inside.parts else point / name.lstrip("/")
    if folder is None or not (folder / "memory.stat").exists():
        raise InputError(
            f"{point}: has no memory cgroup {name}: name one as /proc/PID/cgroup shows it, such as "
            "/system.slice/engine.service"
        )
    return MemoryCgroup(name, folder, point, mount.version)


def _name_of(roots: Roots, pid: int, mount: CgroupMount) -> str:
    text = read_process_file(roots, pid, "cgroup")
    if text is None:
        raise InputError(f"--pid {pid}: no such process: name one that runs")
    path = f"{roots.proc}/{pid}/cgroup"
    memberships = parse_memberships(text, path)
    return memberships.get(UNIFIED if mount.version == "v2" else "memory", "/")
