# SPDX-License-Identifier: Apache-2.0
"""Which global reclaim counters include reclaim under a cgroup's limit: tried, not assumed.

A file of some MiB is read once inside a wall a quarter of its size.  What the counters did then is
compared with an interval of the same length without it.  The kernel answers, so the result is kept
for as long as it runs, beside the journals.  Costs one write and one read of the file, and a scope
that is on record until it is gone.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pagetier.analysis.errors import CapabilityError
from pagetier.analysis.files import replace_file
from pagetier.analysis.reclaim import limit_counters
from pagetier.bench.journal import Journal
from pagetier.bench.kernel.text import read_line, read_text
from pagetier.bench.kernel.vmstat import read_vmstat
from pagetier.cgroups.detect import Support, detect
from pagetier.cgroups.roots import Roots
from pagetier.cgroups.scope import Scope, open_scope
from pagetier.native.residency import page_bytes
from pagetier.tiers.filesystem import require_device_backed

__all__ = ["LimitCounters", "read_limit_counters", "try_limit_counters"]

FILE_BYTES = 32 << 20
WALL_BYTES = 8 << 20
_NAME = "limit-reclaim-counters"
# memory.stat is flushed lazily, every 2 s (mm/memcontrol.c, FLUSH_TIME).
_SETTLE_S = 2.5


@dataclass(frozen=True, slots=True)
class LimitCounters:
    """What the self-test of the running kernel found."""

    kernel: str | None
    boot_id: str | None
    cgroup: str
    stolen_pages: int
    counters: dict[str, bool | None]
    """By source: whether pgscan_* and pgsteal_* of /proc/vmstat include limit reclaim."""

    @property
    def includes_limits(self) -> bool | None:
        """Of the pair that a scan-to-steal ratio is made of; None when the host was too busy."""
        return self.counters.get("direct")


def read_limit_counters(directory: Path, roots: Roots) -> LimitCounters | None:
    """The result of this boot; None when nobody tested it, or not for us to see."""
    text = read_text(directory / _NAME)
    if text is None:
        return None
    found = LimitCounters(**json.loads(text))
    return found if found.boot_id == _boot_id(roots) else None


def try_limit_counters(directory: Path, place: Path, roots: Roots) -> LimitCounters:
    """Try it, with a file in the folder `place`, and keep the result in `directory`.

    CapabilityError where no scope can be made; InputError when `place` is no disk.
    """
    support = detect(roots)
    if support.base is None:
        raise CapabilityError(f"--self-test needs a memory cgroup: {support.problem}")
    before = read_vmstat(roots.proc)
    if before is None:
        raise CapabilityError(f"--self-test needs {roots.proc / 'vmstat'}, which is not there")
    with Journal(directory, roots) as journal, _cold_file(place) as path:
        before = read_vmstat(roots.proc) or before
        started_s = time.monotonic()
        stolen = _read_walled(path, support, journal)
        walled = before, read_vmstat(roots.proc) or {}
        span_s = time.monotonic() - started_s
        before = read_vmstat(roots.proc) or {}
        time.sleep(span_s)
        quiet = before, read_vmstat(roots.proc) or {}
    counters = limit_counters(quiet, walled, stolen)
    kernel = read_line(roots.proc / "sys/kernel/osrelease")
    found = LimitCounters(kernel, _boot_id(roots), support.memory, stolen, counters)
    replace_file(directory / _NAME, json.dumps(asdict(found)).encode())
    return found


@contextmanager
def _cold_file(place: Path) -> Iterator[Path]:
    descriptor, name = tempfile.mkstemp(dir=place, prefix=".pagetier-self-test-")
    try:
        with open(descriptor, "wb") as file:
            require_device_backed(file.fileno(), place)
            file.write(os.urandom(FILE_BYTES))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        yield Path(name)
    finally:
        os.unlink(name)


def _read_walled(path: Path, support: Support, journal: Journal) -> int:
    """Read the file inside a wall; the pages that the wall made reclaim steal."""
    scope = open_scope(support, journal.next_scope_name())
    with journal.entry(kind="scope", paths=[str(folder) for folder in scope.directories()]):
        scope.create()
        try:
            return _replay(path, scope)
        finally:
            scope.remove()


def _replay(path: Path, scope: Scope) -> int:
    # It waits for a word, so that the wall stands before the first page is read.
    script = 'read -r go && cat "$0" >/dev/null && echo done && read -r go'
    argv = scope.command(["sh", "-c", script, str(path)])
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        scope.attach(process.pid)
        scope.set_limit(WALL_BYTES)
        process.stdin.write(b"go\n")
        process.stdin.flush()
        if process.stdout.readline() != b"done\n":
            raise CapabilityError(
                f"--self-test could not read its {FILE_BYTES} B file under a limit of {WALL_BYTES} "
                "B: the kernel log says whether it ran out of memory"
            )
        time.sleep(_SETTLE_S)
        stolen = scope.memory().pgsteal_pages
        process.stdin.write(b"go\n")
        process.stdin.close()
    # v1 does not count it: what was read and did not fit must have been stolen.
    return (FILE_BYTES - WALL_BYTES) // page_bytes() if stolen is None else stolen


def _boot_id(roots: Roots) -> str | None:
    return read_line(roots.proc / "sys/kernel/random/boot_id")
