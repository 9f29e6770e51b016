# SPDX-License-Identifier: Apache-2.0
"""Numbers out of two snapshots: what is absent in either is None, and nothing is clamped at 0."""

from collections.abc import Iterator, Mapping
from typing import Any

from pagetier.analysis.results import Pass

__all__ = [
    "SECTOR_BYTES",
    "counters_backwards",
    "delta",
    "device_read_bytes",
    "number",
    "process_read_bytes",
    "scope_read_bytes",
    "series",
]

Snapshot = Mapping[str, Any]

# The kernel counts 512-byte sectors in diskstats whatever the device's own block size is.
SECTOR_BYTES = 512

_DEVICE_COUNTERS = ("reads", "reads_merged", "sectors_read")
_SCOPE_COUNTERS = ("refault_file_pages", "pgscan_pages", "pgsteal_pages")
_PROCESS_COUNTERS = ("read_bytes", "rchar", "read_calls")


def number(snapshot: Snapshot, *keys: str) -> int | None:
    """The whole number at a path of keys, None where any part of it is absent."""
    value: Any = snapshot
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value if type(value) is int else None


def delta(before: Snapshot, after: Snapshot, *keys: str) -> int | None:
    """Growth of a counter between two snapshots; None when it is absent in one of them."""
    start, end = number(before, *keys), number(after, *keys)
    return None if start is None or end is None else end - start


def device_read_bytes(replay: Pass) -> int | None:
    """Bytes that the pool's device read during the pass, for anyone."""
    sectors = delta(replay.before, replay.after, "device", "sectors_read")
    return None if sectors is None else sectors * SECTOR_BYTES


def process_read_bytes(replay: Pass) -> int | None:
    """Bytes that the replaying process caused a device to read, its readahead included."""
    return delta(replay.before, replay.after, "process", "read_bytes")


def scope_read_bytes(replay: Pass) -> int | None:
    """Bytes that the scope read from the pool's disks, by the io controller."""
    counts = [_scope_io(snapshot) for snapshot in (replay.before, replay.after)]
    disks = _disks(replay.after)
    if not disks or counts[0] is None or counts[1] is None:
        return None
    # A disk has no line before its first read by the scope: that absence is a true 0.
    return sum(int(counts[1].get(disk, 0)) - int(counts[0].get(disk, 0)) for disk in disks)


def _disks(snapshot: Snapshot) -> list[str]:
    """MAJ:MIN of the pool's disks; several stand one by one beside their sum."""
    device = snapshot.get("device")
    if not isinstance(device, Mapping):
        return []
    numbers = [
        (number(disk, "major"), number(disk, "minor")) for disk in device.get("leaves", [device])
    ]
    return [f"{major}:{minor}" for major, minor in numbers if None not in (major, minor)]


def _scope_io(snapshot: Snapshot) -> Mapping[str, int] | None:
    scope = snapshot.get("scope")
    io = scope.get("io") if isinstance(scope, Mapping) else None
    return io if isinstance(io, Mapping) else None


def series(replay: Pass) -> Iterator[Snapshot]:
    """Every snapshot of a pass in the order of time."""
    yield replay.before
    for sample in replay.samples:
        yield sample.data
    yield replay.after


def counters_backwards(before: Snapshot, after: Snapshot) -> list[str]:
    """Names of counters that fell from one snapshot to a later one."""
    start, end = _counters(before), _counters(after)
    return sorted(name for name, value in start.items() if end.get(name, value) < value)


def _counters(snapshot: Snapshot) -> dict[str, int]:
    paths: list[tuple[str, ...]] = [("device", name) for name in _DEVICE_COUNTERS]
    paths += [("process", name) for name in _PROCESS_COUNTERS]
    paths += [("scope", name) for name in _SCOPE_COUNTERS]
    paths += [("vmstat", name) for name in _names(snapshot, "vmstat") if not _is_gauge(name)]
    paths += [("scope", "events", name) for name in _names(snapshot, "scope", "events")]
    paths += [("scope", "io", name) for name in _names(snapshot, "scope", "io")]
    paths += [("scope", "pressure", name) for name in _names(snapshot, "scope", "pressure")]
    for kind in _names(snapshot, "psi"):
        paths += [("psi", kind, name) for name in _names(snapshot, "psi", kind)]
    values = {".".join(path): number(snapshot, *path) for path in paths}
    return {name: value for name, value in values.items() if value is not None}


def _names(snapshot: Snapshot, *keys: str) -> list[str]:
    value: Any = snapshot
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return list(value) if isinstance(value, Mapping) else []


def _is_gauge(name: str) -> bool:
    # mm/vmstat.c: nr_* are levels (the few that only grow are left unchecked), and so is this one.
    return name.startswith("nr_") or name == "workingset_nodes"
