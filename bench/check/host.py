# SPDX-License-Identifier: Apache-2.0
"""What `pagetier check` sees of a host, once a second and cheaply: one observation at a time.

Files stay open and are read from their start.  What this user may not see is None in an
observation and a sentence in `unseen`; nothing is written, started or changed.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pagetier.analysis.check_figures import CgroupSight, Observation
from pagetier.analysis.errors import InputError
from pagetier.analysis.mitigations import Situation
from pagetier.bench.check.feed import Feed
from pagetier.bench.device import Device, UnresolvedDevice, resolve
from pagetier.bench.kernel.diskstats import SECTOR_BYTES
from pagetier.bench.kernel.faked import faked_files
from pagetier.bench.kernel.lockers import read_lockers
from pagetier.bench.kernel.memcg import (
    MemoryCgroup,
    find_cgroup,
    find_hierarchy,
    parse_memory_stat,
)
from pagetier.bench.kernel.procio import parse_process_io
from pagetier.bench.kernel.text import HeldFile, read_text
from pagetier.bench.kernel.vmstat import parse_vmstat
from pagetier.capacity.meminfo import parse_meminfo
from pagetier.capacity.mglru import read_mglru
from pagetier.cgroups.psi import parse_pressure
from pagetier.cgroups.roots import Roots
from pagetier.cgroups.v2 import parse_io_stat
from pagetier.native.residency import page_bytes
from pagetier.tiers.pool import Pool, open_pool

__all__ = ["Subject", "Watcher"]


@dataclass(frozen=True, slots=True)
class Subject:
    """What to look at; with nothing named, the host alone."""

    pool: Path | None = None
    device: Sequence[str] = ()
    cgroup: str | None = None
    pid: int | None = None
    feed: str | None = None
    capacity_bytes: int | None = None
    """Of the online LRU; None follows the file pages that are resident."""


class Watcher:
    """Takes observations; a context manager that closes its files."""

    def __init__(self, subject: Subject, roots: Roots) -> None:
        self._subject = subject
        self._roots = roots
        self.unseen: list[str] = []
        self._compressed = False
        self._files = ExitStack()
        with ExitStack() as opening:
            opening.push(self._files.__exit__)
            self._open()
            opening.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def _open(self) -> None:
        proc, subject = self._roots.proc, self._subject
        if subject.feed is not None and subject.pool is None:
            raise InputError("--feed needs the sizes of the experts: name the pool with --pool")
        self._vmstat, self._meminfo = self._hold(proc / "vmstat"), self._hold(proc / "meminfo")
        self._diskstats = self._hold(proc / "diskstats")
        self._pressures = {kind: self._hold(proc / "pressure" / kind) for kind in ("memory", "io")}
        if self._pressures["memory"].read() is None:
            self.unseen.append("pressure: this kernel keeps none (it needs CONFIG_PSI and psi=1)")
        self.cgroup = self._find_cgroup()
        if self.cgroup is not None:
            self._stat = self._hold(self.cgroup.folder / "memory.stat")
            self._cgroup_pressure = self._hold(self.cgroup.folder / "memory.pressure")
            self._io_stat = self._hold(self.cgroup.folder / "io.stat")
        self._io = None if subject.pid is None else self._hold(proc / str(subject.pid) / "io")
        pool = None if subject.pool is None else open_pool(subject.pool)
        self.device = None if pool is None else self._find_device(pool)
        self._feed = None if pool is None else self._open_feed(pool)
        self._note_unseen_reader()

    def _hold(self, path: Path) -> HeldFile:
        return self._files.enter_context(HeldFile(path))

    def _find_cgroup(self) -> MemoryCgroup | None:
        name, pid = self._subject.cgroup, self._subject.pid
        if name is None and pid is None:
            return None
        if name is None and find_hierarchy(self._roots) is None:
            self.unseen.append("the reader's cgroup: no memory cgroups are mounted here")
            return None
        found = find_cgroup(self._roots, name=name, pid=pid)
        if found.version == "v1":
            self.unseen.append("scan and steal of the reader's cgroup: cgroup v1 does not count it")
        # The root is everyone's: the host's own figures tell it better.
        return None if found.is_root and name is None else found

    def _find_device(self, pool: Pool) -> Device | None:
        path = pool.root / pool.files()[0]
        try:
            device = resolve(path, self._roots, self._subject.device)
        except UnresolvedDevice as error:
            if self._subject.device:
                raise
            self.unseen.append(f"device reads: {error}")
            return None
        return self._countable(device)

    def _countable(self, device: Device) -> Device | None:
        """A device whose counters tell the pool's bytes; a 0 of one that does not count is none."""
        problem = None
        if device.iostats is False:
            problem = f"block accounting of {' + '.join(device.leaf_names)} is off (queue/iostats)"
        elif "compressed" in device.traits:
            self._compressed = True
            problem = "the pool is stored compressed, so that they are not the experts' bytes"
        elif str(self._roots.proc / "diskstats") in faked_files(self._roots.proc):
            problem = "/proc/diskstats is answered by a program (lxcfs), not by the kernel"
        if problem is None:
            return device
        self.unseen.append(f"device reads: {problem}")
        return None

    def _open_feed(self, pool: Pool) -> Feed | None:
        if self._subject.feed is None:
            return None
        shape = pool.num_layers, pool.num_experts
        return self._files.enter_context(
            Feed(self._subject.feed, shape, pool.expert_sizes.tolist())
        )

    def _note_unseen_reader(self) -> None:
        pid = self._subject.pid
        if self._io is not None and not self._io.read():
            self.unseen.append(
                f"what pid {pid} reads: /proc/{pid}/io is its owner's and root's alone"
            )

    def _note_end_of_reader(self) -> None:
        pid = self._subject.pid
        ended = f"pid {pid}: it has ended"
        if pid is None or ended in self.unseen or (self._roots.proc / str(pid)).exists():
            return
        self.unseen.append(ended)

    def observe(self) -> Observation:
        """Everything now; the counters that are compared with each other are read first."""
        self._note_end_of_reader()
        at_ns = time.monotonic_ns()
        device_bytes, reader_bytes = self._device_bytes(), self._reader_bytes()
        vmstat, memory = self._vmstat.read(), self._meminfo.read()
        sizes = None if memory is None else parse_meminfo(memory).bytes_by_name
        cgroup = self._sight()
        if self._feed is not None:
            self._feed.lru.resize(self._capacity_bytes(sizes, cgroup))
            self._feed.poll()
        mglru = read_mglru(self._roots.sys)
        return Observation(
            at_ns=at_ns,
            page_bytes=page_bytes(),
            memory=sizes,
            vmstat=None if vmstat is None else parse_vmstat(vmstat),
            pressures={kind: _totals(held) for kind, held in self._pressures.items()},
            mglru_enabled=bool(mglru.enabled),
            device_bytes=device_bytes,
            reader_bytes=reader_bytes,
            cgroup=cgroup,
            computed=None if self._feed is None else self._feed.lru.computed(),
        )

    def _device_bytes(self) -> int | None:
        text = self._diskstats.read()
        if self.device is None or text is None:
            return None
        counters = self.device.counters(text)
        return None if counters is None else int(counters["sectors_read"]) * SECTOR_BYTES

    def _reader_bytes(self) -> int | None:
        """By the cgroup's own count on the pool's disks, else by the process's on any."""
        if self._compressed:
            return None
        if self.cgroup is not None and self.device is not None:
            text = self._io_stat.read()
            if text is not None:
                return self.device.scope_read_bytes(parse_io_stat(text))
        text = None if self._io is None else self._io.read()
        return parse_process_io(text).read_bytes if text else None

    def _sight(self) -> CgroupSight | None:
        text = None if self.cgroup is None else self._stat.read()
        if self.cgroup is None or text is None:
            return None
        return CgroupSight(
            name=self.cgroup.name,
            stat=parse_memory_stat(text, self.cgroup.version, str(self._stat.path)),
            limit_bytes=self.cgroup.limit_bytes(),
            pressure=_totals(self._cgroup_pressure),
        )

    def _capacity_bytes(self, memory: dict[str, int] | None, cgroup: CgroupSight | None) -> int:
        """What is resident now, but never less than before: a cache that fills has lost nothing."""
        assert self._feed is not None
        if self._subject.capacity_bytes is not None:
            return self._subject.capacity_bytes
        resident = 0
        if cgroup is not None:
            resident = cgroup.stat.get("file", 0)
        elif memory is not None:
            resident = memory.get("Active(file)", 0) + memory.get("Inactive(file)", 0)
        return max(resident, self._feed.lru.computed().capacity_bytes)

    def situation(self, observation: Observation) -> Situation:
        """What the commands of the mitigations depend on; looks at every process once."""
        roots, memory = self._roots, observation.memory or {}
        hierarchy = find_hierarchy(roots)
        cgroup = self.cgroup
        first = read_text(roots.proc / "1/comm")
        sight = observation.cgroup
        return Situation(
            cgroup_version="none" if hierarchy is None else hierarchy.version,
            cgroup_mount=None if hierarchy is None else str(hierarchy.directory(roots)),
            systemd=(first or "").strip() == "systemd",
            reader_pid=self._subject.pid,
            reader_unit=None if cgroup is None else cgroup.unit,
            reader_limit_bytes=None if sight is None else sight.limit_bytes,
            total_bytes=memory.get("MemTotal"),
            available_bytes=memory.get("MemAvailable"),
            unevictable_bytes=memory.get("Unevictable"),
            lockers=read_lockers(roots),
            mglru_mask=read_mglru(roots.sys).mask,
        )


def _totals(held: HeldFile) -> dict[str, int | None] | None:
    text = held.read()
    if text is None:
        return None
    pressure = parse_pressure(text, str(held.path))
    return {
        "some_total_us": None if pressure.some is None else pressure.some.total_us,
        "full_total_us": None if pressure.full is None else pressure.full.total_us,
    }
