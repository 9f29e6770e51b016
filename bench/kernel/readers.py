# SPDX-License-Identifier: Apache-2.0
"""Who else makes the block layer read: read_bytes of every process, and how they grew.

The counts are the kernel's own (task_io_account_read in submit_bio), kernel threads included, of
all disks together.  A process that ends and is waited for hands its count to its parent
(kernel/exit.c, wait_task_zombie), so that the sum over all processes loses nothing; one that ends
unwaited for, or that is invisible from here, is missed: the sum is a lower bound.  What passes
through a loop device is counted twice, for the reader and for the loop's own thread.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagetier.bench.kernel.procio import parse_process_io
from pagetier.bench.kernel.text import read_text
from pagetier.cgroups.files import parse_count
from pagetier.cgroups.procstat import parse_stat

__all__ = ["Process", "Readers", "growth", "read_readers"]

MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Process:
    """One process that has read; `parent` is who gets its count when it ends."""

    name: str
    parent: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class Readers:
    """Processes by pid and start, those that never read left out; `hidden` may not be seen."""

    processes: Mapping[tuple[int, int], Process]
    hidden: int


def read_readers(proc: Path) -> Readers:
    """Every process of the host, one after the other: no moment, but some milliseconds."""
    processes: dict[tuple[int, int], Process] = {}
    hidden = 0
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        stat = read_text(folder / "stat")
        if not stat:  # it has ended
            continue
        text = read_text(folder / "io")
        if text is None:
            hidden += 1
        elif text:
            read_bytes = parse_process_io(text, where=str(folder / "io")).read_bytes
            if read_bytes:
                started = parse_stat(stat, str(folder / "stat")).start_ticks
                found = _process(stat, read_bytes, str(folder / "stat"))
                processes[int(folder.name), started] = found
    return Readers(processes, hidden)


def _process(stat: str, read_bytes: int, where: str) -> Process:
    head, _, tail = stat.rpartition(")")
    parent = parse_count(tail.split()[1], where, 1, "field 4 (ppid)")
    return Process(head.partition("(")[2], parent, read_bytes)


def growth(before: Readers, after: Readers, own_pid: int) -> dict[str, Any]:
    """What all others read between the two: one JSON object.

    `read_bytes` is of those that may be seen, all but `hidden`; `largest` names who read most.
    """
    old = {key: found for key, found in before.processes.items() if key[0] != own_pid}
    new = {key: found for key, found in after.processes.items() if key[0] != own_pid}
    grown = {
        key: found.read_bytes - (old[key].read_bytes if key in old else 0)
        for key, found in new.items()
    }
    pids = {key[0]: key for key in new}
    for key in old.keys() - new.keys():  # its parent has its count now
        heir = pids.get(old[key].parent)
        if heir is not None:
            grown[heir] -= old[key].read_bytes
    largest = sorted(grown, key=lambda key: -grown[key])[:MOST_NAMED]
    hidden = max(before.hidden, after.hidden)
    return {
        "read_bytes": sum(grown.values()),
        "hidden": hidden,
        "largest": [
            {"pid": key[0], "name": new[key].name, "read_bytes": grown[key]}
            for key in largest
            if grown[key] > 0
        ],
    }
