# SPDX-License-Identifier: Apache-2.0
"""Raw read rates of a pool's device, cold and warm, each proved to be what its name says.

One sequential pass over a bounded sample of experts, without barriers, then the same again.  A rate
is None with its reason beside it when the sample was not cold (or not warm), or when the device did
not count what was read: a benchmark of the page cache is no speed of a disk.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagetier.analysis.errors import CapabilityError
from pagetier.bench.device import Device, resolve
from pagetier.bench.kernel.diskstats import SECTOR_BYTES
from pagetier.bench.kernel.procio import read_process_io
from pagetier.bench.kernel.text import read_text
from pagetier.capacity.meminfo import read_meminfo
from pagetier.cgroups.roots import Roots
from pagetier.native.reader import Reader
from pagetier.tiers.evict import evict_pool, require_unmapped, resident_bytes
from pagetier.tiers.pool import Pool

__all__ = ["SAMPLE_BYTES", "probe"]

SAMPLE_BYTES = 2 << 30

# Share of the sample that a cold pass must at least, and a warm one may at most, make the device
# read: the rest is page rounding and the odd page that other readers or reclaim took or brought.
_TOLERATED_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class _SequentialPlan:
    # Experts one after the other, as a single record of a single iteration.
    experts: NDArray[np.uint32]
    record_start: NDArray[np.uint64]
    iteration_start: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class _Pass:
    bytes: int
    wall_ns: int
    device_bytes: int
    own_bytes: int | None
    resident_before_bytes: int | None

    @property
    def brought_bytes(self) -> int:
        """What had to come from the device: our own reads, where they are known apart."""
        return self.device_bytes if self.own_bytes is None else self.own_bytes

    def rate(self, problem: str | None) -> float | None:
        """Bytes per second, unless the pass proved nothing."""
        return None if problem or not self.wall_ns else self.bytes * 1e9 / self.wall_ns


def probe(
    pool: Pool,
    roots: Roots,
    *,
    sample_bytes: int = SAMPLE_BYTES,
    threads: int = 8,
    named: Sequence[str] = (),
) -> dict[str, Any]:
    """Evict the pool, prove it cold, read a sample twice; one JSON object.

    `named` are the user's own words for its disks, where they cannot be found.

    Raises InputError when another process has the pool mapped, CapabilityError for a device that
    cannot be resolved or does not count.
    """
    device = resolve(pool.root / pool.files()[0], roots, named)
    require_unmapped(pool, roots.proc)
    plan = _plan(pool, min(sample_bytes, _affordable_bytes(roots, sample_bytes)))
    eviction = evict_pool(pool, roots.proc)
    with Reader(pool.extent_table(), threads=threads, barrier="none", residency="off") as reader:
        cold = _replay(reader, plan, pool, device, roots)
        warm = _replay(reader, plan, pool, device, roots)
    cold_problem = eviction.reason or _not_cold(cold)
    warm_problem = _not_warm(warm)
    return {
        "device": device.name,
        "threads": threads,
        "experts": len(plan.experts),
        "bytes": cold.bytes,
        "cold_bytes_per_s": cold.rate(cold_problem),
        "cold_problem": cold_problem,
        "warm_bytes_per_s": warm.rate(warm_problem),
        "warm_problem": warm_problem,
        "resident_before_bytes": cold.resident_before_bytes,
        "resident_between_bytes": warm.resident_before_bytes,
        "resident_after_bytes": resident_bytes(pool),
        "device_bytes": cold.device_bytes,
        "process_bytes": cold.own_bytes,
        "warm_device_bytes": warm.device_bytes,
        "warm_process_bytes": warm.own_bytes,
    }


def _affordable_bytes(roots: Roots, sample_bytes: int) -> int:
    """Half of what is available, so that a warm pass can be warm."""
    available_bytes = read_meminfo(roots).available_bytes
    return sample_bytes if available_bytes is None else available_bytes // 2


def _plan(pool: Pool, sample_bytes: int) -> _SequentialPlan:
    ends = np.cumsum(pool.expert_sizes)
    count = max(int(np.searchsorted(ends, sample_bytes, "right")), 1)
    return _SequentialPlan(
        experts=np.arange(count, dtype=np.uint32),
        record_start=np.array([0, count], dtype=np.uint64),
        iteration_start=np.array([0, 1], dtype=np.uint64),
    )


def _replay(
    reader: Reader, plan: _SequentialPlan, pool: Pool, device: Device, roots: Roots
) -> _Pass:
    resident = resident_bytes(pool)
    device_before, own_before = _counters(device, roots)
    result = reader.replay(plan)
    device_after, own_after = _counters(device, roots)
    own = None if own_before is None or own_after is None else own_after - own_before
    return _Pass(
        bytes=int(result.iteration_bytes.sum()),
        wall_ns=int(result.iteration_wall_ns.sum()),
        device_bytes=device_after - device_before,
        own_bytes=own,
        resident_before_bytes=resident,
    )


def _counters(device: Device, roots: Roots) -> tuple[int, int | None]:
    counters = device.counters(read_text(roots.proc / "diskstats") or "")
    if counters is None:
        raise CapabilityError(
            f"{roots.proc / 'diskstats'}: has no line for each of {', '.join(device.leaf_names)}, "
            "so their reads cannot be counted; put the pool on another disk"
        )
    own = read_process_io(roots.proc, os.getpid())
    return int(counters["sectors_read"]) * SECTOR_BYTES, None if own is None else own.read_bytes


def _not_cold(cold: _Pass) -> str | None:
    least_bytes = cold.bytes * (1 - _TOLERATED_SHARE)
    if cold.resident_before_bytes is None:
        return "unknown how much of the pool was cached before"
    if cold.resident_before_bytes:
        return f"{cold.resident_before_bytes} bytes of the pool were cached before"
    if cold.brought_bytes < least_bytes:
        return f"only {cold.brought_bytes} of {cold.bytes} bytes came from the device"
    if cold.device_bytes < least_bytes:
        return f"the device counted {cold.device_bytes} of {cold.bytes} bytes: it does not account"
    return None


def _not_warm(warm: _Pass) -> str | None:
    if warm.brought_bytes > warm.bytes * _TOLERATED_SHARE:
        return f"{warm.brought_bytes} of {warm.bytes} bytes came from the device again"
    return None
