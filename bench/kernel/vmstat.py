# SPDX-License-Identifier: Apache-2.0
"""/proc/vmstat by name: pages of the host's page size, except pgpgin/pgpgout, which are KiB.

Names of older kernels are brought to the present ones where that is exact: reclaim counters were
split by zone before 4.8 (summed here), allocation stalls are split by zone since 4.10 (summed
beside their parts), and working-set counters had no _anon/_file before 5.9, when only file pages
were tracked.  pgscan/pgsteal of kswapd and direct do not see reclaim under a cgroup limit
(a 2026 change makes them); pgscan_file/pgsteal_file do.
"""

from pathlib import Path

from pagetier.bench.kernel.text import read_text
from pagetier.cgroups.flatkeyed import parse_flat_keyed

__all__ = ["is_gauge", "parse_vmstat", "read_vmstat", "recorded"]

_ZONES = ("dma", "dma32", "normal", "high", "movable", "device")
_BY_ZONE = ("pgscan_kswapd", "pgscan_direct", "pgsteal_kswapd", "pgsteal_direct", "allocstall")
_FILE_ONLY_BEFORE_5_9 = ("workingset_refault", "workingset_activate", "workingset_restore")

# Named like gauges, but they only grow (mm/vmstat.c: node and vm events with an NR_ name).
_GROWING = frozenset(
    {
        "nr_vmscan_write",
        "nr_vmscan_immediate_reclaim",
        "nr_dirtied",
        "nr_written",
        "nr_throttled_written",
        "nr_foll_pin_acquired",
        "nr_foll_pin_released",
        "nr_tlb_remote_flush",
        "nr_tlb_remote_flush_received",
        "nr_tlb_local_flush_all",
        "nr_tlb_local_flush_one",
    }
)

_RECORDED_PREFIXES = (
    "nr_mlock",
    "nr_unevictable",
    "nr_inactive_",
    "nr_active_",
    "nr_file_pages",
    "nr_free_pages",
    "nr_mapped",
    "nr_dirty",
    "nr_writeback",
    "nr_shmem",
    "workingset_",
    "pgpg",
    "pswp",
    "zswp",
    "allocstall",
    "pgscan",
    "pgsteal",
    "pgrefill",
    "pgactivate",
    "pgdeactivate",
    "pgfault",
    "pgmajfault",
    "pgdemote_",
    "slabs_scanned",
    "kswapd_",
    "pageoutrun",
    "drop_",
    "oom_kill",
    "unevictable_pgs_",
    "compact_stall",
    "swpin_zero",
    "balloon_",
)


def parse_vmstat(text: str, *, where: str = "/proc/vmstat") -> dict[str, int]:
    """Every counter and gauge by its present-day name; see the module for the older names."""
    values = parse_flat_keyed(text, where)
    _add_sums_of_zones(values)
    _add_file_names(values)
    return values


def read_vmstat(proc: Path) -> dict[str, int] | None:
    """The host's counters; None when the kernel keeps no such file."""
    path = proc / "vmstat"
    text = read_text(path)
    return None if text is None else parse_vmstat(text, where=str(path))


def is_gauge(name: str) -> bool:
    """Whether a value may fall; every other one is a counter, and a fall of it voids a sample."""
    return (name.startswith("nr_") and name not in _GROWING) or name == "workingset_nodes"


def recorded(values: dict[str, int]) -> dict[str, int]:
    """The part that bears on reclaim, refaults and block reads: what snapshots keep."""
    return {name: value for name, value in values.items() if name.startswith(_RECORDED_PREFIXES)}


def _add_sums_of_zones(values: dict[str, int]) -> None:
    for name in _BY_ZONE:
        if name in values:
            continue
        parts = [values[f"{name}_{zone}"] for zone in _ZONES if f"{name}_{zone}" in values]
        if parts:
            values[name] = sum(parts)


def _add_file_names(values: dict[str, int]) -> None:
    for name in _FILE_ONLY_BEFORE_5_9:
        if name in values and f"{name}_file" not in values:
            values[f"{name}_file"] = values[name]
