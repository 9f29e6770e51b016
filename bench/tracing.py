# SPDX-License-Identifier: Apache-2.0
"""A private tracing instance that counts page-cache insertions exactly while a pass runs.

Made under tracefs/instances, with its own buffer and events, for the threads of one process; it is
on record in the journal and removed at the end.  The host's own tracing is not touched.
"""

import contextlib
import os
import select
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagetier.bench.kernel.filemap_events import INSERTION, READ, InsertionCounts
from pagetier.bench.kernel.text import read_text
from pagetier.cgroups.roots import Roots

__all__ = ["Tracing", "instance_path", "remove_instance", "traced", "tracefs"]

# Per CPU: about 80,000 events of 48 B, while the reading thread waits for its turn.
BUFFER_KIB = 4096
_POLL_S = 0.1
_CHUNK_BYTES = 1 << 18


def tracefs(roots: Roots) -> Path | None:
    """Where it is mounted, or could be looked at through debugfs; None where it is not."""
    for folder in (roots.sys / "kernel/tracing", roots.sys / "kernel/debug/tracing"):
        if (folder / "instances").is_dir():
            return folder
    return None


def instance_path(root: Path, token: str) -> Path:
    """The one instance of the harness whose journal has this token."""
    return root / "instances" / f"pagetier-{token}"


def remove_instance(path: Path, token: str) -> bool:
    """Remove what a dead harness left; whether it was there."""
    if path.name != f"pagetier-{token}" or path.parent.name != "instances":
        return False
    with contextlib.suppress(FileNotFoundError):
        path.rmdir()
        return True
    return False


@dataclass(slots=True)
class Tracing:
    """What was counted, once the block has ended; `problem` says why it is not exact."""

    counts: InsertionCounts
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The record of a pass; figures are None when there was a problem."""
        counts, known = self.counts, self.problem is None
        page_bytes = counts.page_bytes
        return {
            "in_extent_bytes": counts.in_extent_pages * page_bytes if known else None,
            "over_read_bytes": counts.over_read_pages * page_bytes if known else None,
            "problem": self.problem,
        }


@contextlib.contextmanager
def traced(instance: Path, pid: int, counts: InsertionCounts) -> Iterator[Tracing]:
    """Count what the threads of `pid` insert; OSError when the instance cannot be made.

    The caller has the instance on record before.
    """
    instance.mkdir()
    tracing = Tracing(counts)
    try:
        _prepare(instance, pid)
        stop = threading.Event()
        with ThreadPoolExecutor(1, thread_name_prefix="tracing") as executor:
            pipe = os.open(instance / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            reading = executor.submit(_read, pipe, counts, stop)
            try:
                _switch(instance, on=True)
                yield tracing
                _switch(instance, on=False)
            finally:
                tracing.problem = _end(reading, stop, pipe)
        tracing.problem = tracing.problem or _problem(instance, counts)
    finally:
        instance.rmdir()


def _prepare(instance: Path, pid: int) -> None:
    (instance / "buffer_size_kb").write_text(str(BUFFER_KIB))
    (instance / "options/event-fork").write_text("1")
    threads = " ".join(path.name for path in Path(f"/proc/{pid}/task").iterdir())
    (instance / "set_event_pid").write_text(threads)


def _switch(instance: Path, *, on: bool) -> None:
    for event in (READ, INSERTION):
        (instance / "events" / event / "enable").write_text("1" if on else "0")


def _read(pipe: int, counts: InsertionCounts, stop: threading.Event) -> None:
    rest = b""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while True:
        ending = stop.is_set()
        chunk = b""
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(pipe, _CHUNK_BYTES)
        if not chunk:
            if ending:
                return
            poll.poll(_POLL_S * 1000)
            continue
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        for line in lines:
            counts.take(line)


def _end(reading: "Future[None]", stop: threading.Event, pipe: int) -> str | None:
    """Drain and close; what went wrong in the thread is raised there."""
    stop.set()
    try:
        reading.result()
    except OSError as error:
        return f"the trace could not be read: {error.strerror}"
    finally:
        os.close(pipe)
    return None


def _problem(instance: Path, counts: InsertionCounts) -> str | None:
    lost = counts.lost_events
    for stats in (instance / "per_cpu").glob("cpu*/stats"):
        for line in (read_text(stats) or "").splitlines():
            name, _, value = line.partition(":")
            if name in ("overrun", "dropped events"):
                lost += int(value)
    if lost:
        return f"{lost} events were lost: the host was too slow to read them"
    if counts.unmatched_reads or counts.outside_reads_pages:
        return (
            f"{counts.unmatched_reads} insertions by a read of no extent, and "
            f"{counts.outside_reads_pages} pages outside any read"
        )
    return None
