# SPDX-License-Identifier: Apache-2.0
"""Device bytes of others during a pass: counted where that is possible, else what is left.

Counted: the growth of read_bytes of all other processes.  Those counts are of all disks together,
so they are the device's only while the whole host (pgpgin) read what the device read; another disk,
or a loop device, which is counted twice, makes them say nothing.  So do processes that may not be
looked at, unless the others and we explain what the device read without them.
"""

from dataclasses import dataclass

from pagetier.analysis.counters import (
    delta,
    device_read_bytes,
    number,
    process_read_bytes,
    scope_read_bytes,
)
from pagetier.analysis.results import Pass
from pagetier.analysis.units import format_bytes

__all__ = ["Foreign", "foreign_of", "host_read_bytes", "largest_other"]

# How far counts that should be equal may lie apart: requests in flight at the two moments.
_SAME_SHARE = 0.01
_SAME_FLOOR_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Foreign:
    """Bytes of others and the residual, of which device = own + foreign + residual.

    The residual is None where foreign is a difference that would hold it.
    """

    bytes: int | None
    residual: int | None
    how: str


def host_read_bytes(replay: Pass) -> int | None:
    """Bytes that anyone submitted to any block device, by pgpgin of /proc/vmstat (KiB)."""
    kib = delta(replay.before, replay.after, "vmstat", "pgpgin")
    return None if kib is None else kib * 1024


def foreign_of(replay: Pass) -> Foreign:
    """By the counts of all other processes, else of the scope, else by subtraction."""
    device, process = device_read_bytes(replay), process_read_bytes(replay)
    scope, others = scope_read_bytes(replay), _others_on_device(replay, device)
    if device is None:
        return Foreign(None, None, "unknown: the device's counters are missing")
    if others is not None and process is not None:
        hidden = number(replay.result, "others", "hidden")
        residual = device - process - others
        if not hidden or _is_little(residual, device):
            but = f" but {hidden}, which may not be looked at" if hidden else ""
            return Foreign(others, residual, f"read_bytes of all other processes{but}")
    if scope is not None:
        rest = None if process is None else scope - process
        return Foreign(device - scope, rest, "device sectors x 512 - scope io")
    if process is None:
        return Foreign(None, None, "unknown: nothing counted our own reads")
    how = "device sectors x 512 - process read_bytes, the residual included"
    return Foreign(device - process, None, how)


def _others_on_device(replay: Pass, device: int | None) -> int | None:
    host = host_read_bytes(replay)
    if device is None or host is None:
        return None
    if not _is_little(host - device, device):
        return None
    return number(replay.result, "others", "read_bytes")


def _is_little(difference: int, device: int) -> bool:
    return abs(difference) <= max(_SAME_SHARE * device, _SAME_FLOOR_BYTES)


def largest_other(replay: Pass) -> str | None:
    """Who of the others read most, for a sentence; None where nobody is known to have read."""
    others = replay.result.get("others")
    largest = others.get("largest") if isinstance(others, dict) else None
    if not largest:
        return None
    first = largest[0]
    return f"{first['name']} (pid {first['pid']}) read {format_bytes(first['read_bytes'])}"
