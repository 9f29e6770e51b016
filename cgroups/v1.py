# SPDX-License-Identifier: Apache-2.0
"""A scope on cgroup v1 (Documentation/admin-guide/cgroup-v1/memory.rst).

The memory hierarchy limits and counts; where blkio can be written too, a child of the same name
there counts reads.  v1 has no pressure, no pgscan or pgsteal, and counts kills but not `oom`.
blkio.throttle counts only on devices where a throttle was configured since boot (6.10,
"blk-throttle: delay initialization until configuration"): where no device is listed the reads are
None, not 0.
"""

import errno
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pagetier.cgroups.base import Events, Limits, MemoryState, check_limit, check_name
from pagetier.cgroups.errors import CgroupError, ParseError
from pagetier.cgroups.files import parse_count, read_count, read_optional, read_text, write_value
from pagetier.cgroups.flatkeyed import parse_flat_keyed
from pagetier.cgroups.joining import await_member, enter_command
from pagetier.cgroups.members import kill_members, make_directory, member_pids, remove_directory
from pagetier.cgroups.psi import Pressure
from pagetier.cgroups.roots import Roots

__all__ = ["V1Scope", "parse_service_bytes", "parse_v1_limit"]

# "No limit" reads as LONG_MAX rounded down to a page (PAGE_COUNTER_MAX); no page is over 64 KiB.
_UNLIMITED_BYTES = 2**63 - 2**16
_BUSY_ATTEMPTS = 10
_BUSY_PAUSE_S = 0.05


class V1Scope:
    """A child of `base` in the memory hierarchy, and of `io_base` in blkio when that is given."""

    version = "v1"

    def __init__(
        self, name: str, base: Path, mount: Path, roots: Roots, io_base: Path | None = None
    ) -> None:
        self._name = check_name(name)
        self._base = base
        self._mount = mount
        self._roots = roots
        self._io_base = io_base

    @property
    def name(self) -> str:
        """`pagetier-<token>-<n>`."""
        return self._name

    @property
    def path(self) -> Path:
        """Directory in the memory hierarchy."""
        return self._base / self._name

    def directories(self) -> tuple[Path, ...]:
        """The memory directory, then the blkio one if there is one."""
        if self._io_base is None:
            return (self.path,)
        return (self.path, self._io_base / self._name)

    def create(self) -> None:
        """Make every directory or none."""
        made: list[Path] = []
        try:
            for directory in self.directories():
                make_directory(directory)
                made.append(directory)
        except CgroupError:
            for directory in made:
                remove_directory(directory)
            raise

    def command(self, argv: Sequence[str]) -> list[str]:
        """argv behind the script that joins each hierarchy."""
        return enter_command([path / "cgroup.procs" for path in self.directories()], argv)

    def attach(self, pid: int, timeout_s: float = 10.0) -> None:
        """Wait until /proc/<pid>/cgroup names this scope in each hierarchy."""
        await_member(self._roots, pid, "memory", self._name, timeout_s)
        if self._io_base is not None:
            await_member(self._roots, pid, "blkio", self._name, timeout_s)

    def set_limit(self, memory_bytes: int) -> None:
        """limit_in_bytes and, where swap is accounted, the same for memory plus swap; read back.

        Memory plus swap may never be under memory alone, so the order depends on the direction.
        """
        swap = read_count(self.path / "memory.memsw.limit_in_bytes")
        files = ["memory.limit_in_bytes"]
        if swap is not None:
            files.insert(0 if memory_bytes > swap else 1, "memory.memsw.limit_in_bytes")
        for file in files:
            _write_limit(self.path / file, memory_bytes)
        if (self.path / "memory.swappiness").exists():
            # memsw only bounds the sum: global reclaim could still swap this scope out.
            write_value(self.path / "memory.swappiness", "0")
        check_limit(self.path, memory_bytes, self.limits())

    def clear_limit(self) -> None:
        """Both limits back to none."""
        for file in ("memory.memsw.limit_in_bytes", "memory.limit_in_bytes"):
            if (self.path / file).exists():
                write_value(self.path / file, "-1")

    def exists(self) -> bool:
        """Whether the memory directory is there."""
        return self.path.is_dir()

    def limits(self) -> Limits:
        """limit_in_bytes, and memsw minus that as the swap limit."""
        path = self.path / "memory.limit_in_bytes"
        memory_bytes = parse_v1_limit(read_text(path), str(path))
        path = self.path / "memory.memsw.limit_in_bytes"
        text = read_optional(path)
        both_bytes = None if text is None else parse_v1_limit(text, str(path))
        if memory_bytes is None or both_bytes is None:
            return Limits(memory_bytes, None, swap_accounted=text is not None)
        return Limits(memory_bytes, both_bytes - memory_bytes, swap_accounted=True)

    def memory(self) -> MemoryState:
        """usage_in_bytes, max_usage_in_bytes and the hierarchical lines of memory.stat."""
        usage, stat = self.path / "memory.usage_in_bytes", self.path / "memory.stat"
        raw = parse_flat_keyed(read_text(stat), str(stat))
        return MemoryState(
            current_bytes=parse_count(read_text(usage), str(usage)),
            peak_bytes=read_count(self.path / "memory.max_usage_in_bytes"),
            anon_bytes=_hierarchical(raw, "rss", stat),
            file_bytes=_hierarchical(raw, "cache", stat),
            kernel_bytes=read_count(self.path / "memory.kmem.usage_in_bytes"),
            refault_file_pages=_refaults(raw),
            pgscan_pages=None,
            pgsteal_pages=None,
            raw=raw,
        )

    def events(self) -> Events:
        """oom_kill of memory.oom_control (4.13) and the failed charges."""
        path = self.path / "memory.oom_control"
        values = parse_flat_keyed(read_text(path), str(path))
        return Events(None, values.get("oom_kill"), self._failed_charges())

    def _failed_charges(self) -> int | None:
        """failcnt of both counters; None when it cannot tell `never` from `not counted`.

        A page is charged to memory plus swap first (try_charge_memcg), so with equal limits it is
        that counter which fails, and 6.18 leaves its failures uncounted (measured: memsw.failcnt
        stays 0 at a limit that is hit; page_counter.track_failcnt).
        """
        counts = [read_count(self.path / f"memory.{name}failcnt") for name in ("", "memsw.")]
        failures = [count for count in counts if count is not None]
        hidden = self.limits().swap_bytes == 0 and sum(failures) == 0
        return None if hidden or not failures else sum(failures)

    def pressure(self) -> Pressure | None:
        """None: v1 has no stall information per cgroup."""
        return None

    def io(self) -> dict[str, int] | None:
        """Reads by device from blkio.throttle, None when the kernel lists no device."""
        if self._io_base is None:
            return None
        directory = self._io_base / self._name
        # The recursive file is 4.13's; before it the plain one covers a scope without children.
        for name in ("io_service_bytes_recursive", "io_service_bytes"):
            path = directory / f"blkio.throttle.{name}"
            text = read_optional(path)
            if text is not None:
                return parse_service_bytes(text, str(path)) or None
        return None

    def pids(self) -> list[int]:
        """cgroup.procs of the memory hierarchy."""
        return member_pids(self.path)

    def remove(self) -> None:
        """Kill the members and remove every directory."""
        for directory in self.directories():
            kill_members(directory)
            remove_directory(directory)

    def ancestor_limit_bytes(self) -> int | None:
        """The smallest limit above; the parent's stat knows those above our mount point as well."""
        limits = _ancestor_limits(self._base, self._mount)
        return min((limit for limit in limits if limit is not None), default=None)


def parse_v1_limit(text: str, source: str = "memory.limit_in_bytes") -> int | None:
    """A limit in bytes; None for the huge number that means no limit."""
    limit = parse_count(text, source)
    return None if limit >= _UNLIMITED_BYTES else limit


def parse_service_bytes(
    text: str, source: str = "blkio.throttle.io_service_bytes"
) -> dict[str, int]:
    """Bytes read by `MAJ:MIN`; the sums over operations and devices are passed over."""
    read_bytes: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split()
        if len(fields) == 2 and fields[0] == "Total":
            continue
        if len(fields) != 3:
            raise ParseError(source, number, f"expected `MAJ:MIN operation bytes`, found {line!r}")
        if fields[1] == "Read":
            read_bytes[fields[0]] = parse_count(fields[2], source, number, "Read")
    return read_bytes


def _write_limit(path: Path, limit_bytes: int) -> None:
    """EBUSY means that a round of reclaim freed nothing; pages under writeback come free later."""
    for attempt in range(_BUSY_ATTEMPTS):
        try:
            write_value(path, str(limit_bytes))
        except CgroupError as error:
            if error.errno != errno.EBUSY or attempt == _BUSY_ATTEMPTS - 1:
                raise
            time.sleep(_BUSY_PAUSE_S)
        else:
            return


def _hierarchical(raw: dict[str, int], name: str, source: Path) -> int:
    for key in (f"total_{name}", name):
        if key in raw:
            return raw[key]
    raise ParseError(str(source), None, f"no {name} line in it")


def _refaults(raw: dict[str, int]) -> int | None:
    """Split into anon and file in 5.9, before which only file pages had refaults."""
    for name in ("workingset_refault_file", "workingset_refault"):
        for key in (f"total_{name}", name):
            if key in raw:
                return raw[key]
    return None


def _ancestor_limits(base: Path, mount: Path) -> Iterator[int | None]:
    stat = base / "memory.stat"
    inherited = parse_flat_keyed(read_text(stat), str(stat)).get("hierarchical_memory_limit")
    yield None if inherited is None or inherited >= _UNLIMITED_BYTES else inherited
    for ancestor in (base, *base.parents):
        path = ancestor / "memory.limit_in_bytes"
        text = read_optional(path)
        yield None if text is None else parse_v1_limit(text, str(path))
        if ancestor == mount:
            return
