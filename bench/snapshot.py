# SPDX-License-Identifier: Apache-2.0
"""One moment of the host as a plain dict: device, reclaim, memory, pressure, scope, processes.

Sizes are bytes, vmstat values keep their own unit (pages; KiB for pgpg*), `at_ns` is
CLOCK_MONOTONIC.  What is absent or has ended is None.  Meant to be taken ten times a second: files
stay open and are read from their start, so a process is the one that was named, not a later one
with its number.  The generations of the MGLRU alone, a file as long as the host has cgroups, are
sampled once a second: a sample without them lacks the key.
"""

import time
from dataclasses import dataclass
from typing import Any, Self

from pagetier.bench.device import Device
from pagetier.bench.kernel.lru_gen import GenerationReader
from pagetier.bench.kernel.numa import node_folders, parse_node_meminfo
from pagetier.bench.kernel.procio import parse_process_io
from pagetier.bench.kernel.readers import Readers, growth, read_readers
from pagetier.bench.kernel.text import HeldFile
from pagetier.bench.kernel.vmstat import parse_vmstat, recorded
from pagetier.capacity.meminfo import parse_meminfo
from pagetier.capacity.procstatus import parse_status
from pagetier.cgroups.base import Scope
from pagetier.cgroups.errors import CgroupError
from pagetier.cgroups.psi import Pressure, parse_pressure
from pagetier.cgroups.roots import Roots

__all__ = ["Snapshots"]

_MEMINFO = (
    "MemTotal",
    "MemFree",
    "MemAvailable",
    "Buffers",
    "Cached",
    "SwapCached",
    "Active(file)",
    "Inactive(file)",
    "Unevictable",
    "Mlocked",
    "SwapTotal",
    "SwapFree",
    "Dirty",
    "Writeback",
    "AnonPages",
    "Mapped",
    "Shmem",
    "KReclaimable",
    "AnonHugePages",
)


GENERATIONS_EVERY_NS = 10**9


class Snapshots:
    """Takes snapshots of the parts it was given; a context manager that closes its files."""

    def __init__(
        self,
        roots: Roots,
        *,
        device: Device | None = None,
        scope: Scope | None = None,
        worker_pid: int | None = None,
        balloon_pid: int | None = None,
    ) -> None:
        proc = self._proc = roots.proc
        self._worker_pid = worker_pid
        self._device = device
        self._scope = scope
        self._diskstats = HeldFile(proc / "diskstats")
        self._vmstat = HeldFile(proc / "vmstat")
        self._meminfo = HeldFile(proc / "meminfo")
        self._pressure = {
            kind: HeldFile(proc / "pressure" / kind) for kind in ("memory", "io", "cpu")
        }
        folders = node_folders(roots.sys)
        # A single node says nothing that vmstat does not.
        self._nodes = {
            str(index): HeldFile(folder / "meminfo")
            for index, folder in folders.items()
            if len(folders) > 1
        }
        self._worker = None if worker_pid is None else _Process.open(roots, worker_pid)
        self._balloon = None if balloon_pid is None else _Process.open(roots, balloon_pid)
        self._generations = GenerationReader(roots.sys, None if scope is None else scope.path.name)
        self._generations_due_ns = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every held file."""
        single = (self._diskstats, self._vmstat, self._meminfo)
        for held in (*single, *self._pressure.values(), *self._nodes.values()):
            held.close()
        self._generations.close()
        for process in (self._worker, self._balloon):
            if process is not None:
                process.close()

    def take(self) -> dict[str, Any]:
        """Everything now; the counters that are compared with each other are read first."""
        snapshot = self._take()
        self._generations_due_ns = snapshot["at_ns"] + GENERATIONS_EVERY_NS
        memcgs = self._generations.read()
        snapshot["lru_gen"] = None if memcgs is None else [memcg.as_dict() for memcg in memcgs]
        return snapshot

    def readers(self) -> Readers:
        """What every process of the host has read: too slow for a timeline."""
        return read_readers(self._proc)

    def others_since(self, before: Readers) -> dict[str, Any] | None:
        """What all but the worker have read since; None without a worker."""
        if self._worker_pid is None:
            return None
        return growth(before, self.readers(), self._worker_pid)

    def sample(self) -> dict[str, Any]:
        """For a timeline: everything, but the generations at most once a second."""
        if time.monotonic_ns() >= self._generations_due_ns:
            return self.take()
        return self._take()

    def _take(self) -> dict[str, Any]:
        return {
            "at_ns": time.monotonic_ns(),
            "device": self._take_device(),
            "process": None if self._worker is None else self._worker.take(),
            "scope": None if self._scope is None else _take_scope(self._scope),
            "vmstat": self._take_vmstat(),
            "meminfo": self._take_meminfo(),
            "nodes": {index: _node(held) for index, held in self._nodes.items()} or None,
            "psi": {kind: _host_pressure(held) for kind, held in self._pressure.items()},
            "balloon": None if self._balloon is None else self._balloon.take_locked(),
        }

    def _take_device(self) -> dict[str, Any] | None:
        text = self._diskstats.read()
        if self._device is None or text is None:
            return None
        return self._device.counters(text, where=str(self._diskstats.path))

    def _take_vmstat(self) -> dict[str, int] | None:
        text = self._vmstat.read()
        return None if text is None else recorded(parse_vmstat(text, where=str(self._vmstat.path)))

    def _take_meminfo(self) -> dict[str, int] | None:
        text = self._meminfo.read()
        if text is None:
            return None
        sizes = parse_meminfo(text, str(self._meminfo.path)).bytes_by_name
        return {name: sizes[name] for name in _MEMINFO if name in sizes}


@dataclass(frozen=True, slots=True)
class _Process:
    # The two files of one process, held.
    io: HeldFile
    status: HeldFile

    @classmethod
    def open(cls, roots: Roots, pid: int) -> Self:
        folder = roots.proc / str(pid)
        return cls(io=HeldFile(folder / "io"), status=HeldFile(folder / "status"))

    def take(self) -> dict[str, int | None] | None:
        io, status = self.io.read(), self.status.read()
        if not status:
            return None
        sizes = parse_status(status, str(self.status.path))
        # An unreadable io file of a live process (another user's) leaves its sizes known.
        moved = parse_process_io(io, where=str(self.io.path)) if io else None
        return {
            "read_bytes": None if moved is None else moved.read_bytes,
            "rchar": None if moved is None else moved.rchar_bytes,
            "read_calls": None if moved is None else moved.read_calls,
            "vm_lck_bytes": sizes.vm_lck_bytes,
            "vm_rss_bytes": sizes.vm_rss_bytes,
            "vm_swap_bytes": sizes.vm_swap_bytes,
        }

    def take_locked(self) -> dict[str, int | None] | None:
        status = self.status.read()
        if not status:
            return None
        return {"vm_lck_bytes": parse_status(status, str(self.status.path)).vm_lck_bytes}

    def close(self) -> None:
        self.io.close()
        self.status.close()


def _node(held: HeldFile) -> dict[str, int | None] | None:
    # The page cache stays on the node of its first reader: a cell should see where it lies.
    text = held.read()
    if text is None:
        return None
    sizes = parse_node_meminfo(text, where=str(held.path))
    return {"file_bytes": sizes.get("FilePages"), "free_bytes": sizes.get("MemFree")}


def _host_pressure(held: HeldFile) -> dict[str, int | None] | None:
    text = held.read()
    return None if text is None else _totals(parse_pressure(text, str(held.path)))


def _totals(pressure: Pressure) -> dict[str, int | None]:
    some, full = pressure.some, pressure.full
    return {
        "some_total_us": None if some is None else some.total_us,
        "full_total_us": None if full is None else full.total_us,
    }


def _take_scope(scope: Scope) -> dict[str, Any] | None:
    try:
        return _scope(scope)
    except (CgroupError, OSError):
        # systemd removes a scope with its last process, an OOM victim say: it has ended then.
        if scope.exists():
            raise
        return None


def _scope(scope: Scope) -> dict[str, Any]:
    memory, events, pressure = scope.memory(), scope.events(), scope.pressure()
    return {
        "current_bytes": memory.current_bytes,
        "peak_bytes": memory.peak_bytes,
        "anon_bytes": memory.anon_bytes,
        "file_bytes": memory.file_bytes,
        "kernel_bytes": memory.kernel_bytes,
        "refault_file_pages": memory.refault_file_pages,
        "pgscan_pages": memory.pgscan_pages,
        "pgsteal_pages": memory.pgsteal_pages,
        "events": {"oom": events.oom, "oom_kill": events.oom_kill, "max": events.max},
        "io": scope.io(),
        "pressure": None if pressure is None else _totals(pressure),
    }
