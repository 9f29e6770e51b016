# SPDX-License-Identifier: Apache-2.0
"""The check in a guest, run by test_check.py: idle, and with most memory locked behind a reader.

Not collected on the host: its name is none of a test module.  The walled reader is the live
test's, which runs in the same guest.
"""

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pagetier.bench.check.host import Subject
from pagetier.bench.check.run import Look, looks
from pagetier.bench.check.selftest import try_limit_counters
from pagetier.capacity.meminfo import read_meminfo
from pagetier.capacity.mglru import MglruKnob
from pagetier.cgroups.roots import Roots
from pagetier.tiers.create import create_pool
from tests.conftest import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("live")]

ROOTS = Roots()
LOCKED_SHARE = 0.84
LOCKER = """
import ctypes, mmap, sys
size = int(sys.argv[1])
held = mmap.mmap(-1, size)
if ctypes.CDLL(None, use_errno=True).mlockall(1):
    sys.exit("mlockall failed")
print("locked", flush=True)
sys.stdin.read()
"""
READER = """
import os, select, sys
while not select.select([sys.stdin], [], [], 0)[0]:
    for name in sys.argv[1:]:
        fd = os.open(name, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        while os.read(fd, 1 << 20):
            pass
        os.close(fd)
"""


@contextmanager
def running(program: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait(60)


def look(state: Path, interval_s: float, **subject: Any) -> dict[str, Any]:
    return next(looks(Look(Subject(**subject), interval_s, None, state), ROOTS))


def names(text: str) -> set[str]:
    bearing = (
        "pgscan",
        "pgsteal",
        "pgrefill",
        "workingset_",
        "pswp",
        "zswp",
        "pgpg",
        "unevictable",
    )
    return {line.split()[0] for line in text.splitlines() if line.startswith(bearing)}


def test_the_fixture_of_this_kernel_has_its_names() -> None:
    version = ".".join(os.uname().release.split(".")[:2])
    fixture = ROOT / "tests/bench/fixtures/kernels" / version / "vmstat"
    assert names(fixture.read_text()) == names(Path("/proc/vmstat").read_text())


def test_an_idle_host_is_healthy(tmp_path: Path) -> None:
    document = look(tmp_path / "none", 2.0)
    assert document["state"] == "healthy", document["evidence"]
    assert document["figures"]["reclaim"]["kswapd"]["ratio"] is None
    assert document["unseen"] == []


def test_limit_reclaim_shows_in_the_counters_that_the_self_test_names(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    found = try_limit_counters(tmp_path / "state", tmp_path / "place", ROOTS)
    assert found.cgroup == "v2"
    # This kernel is one of before the change of 2026.
    assert found.counters == {"kswapd": False, "direct": False, "file": True}


def test_most_memory_locked_behind_a_streaming_reader_is_at_least_suspect(tmp_path: Path) -> None:
    total = read_meminfo(ROOTS).total_bytes
    locked = int(total * LOCKED_SHARE) // mmap.PAGESIZE * mmap.PAGESIZE
    # More than what the locked region leaves, so that reclaim never rests.
    pool = tmp_path / "pool"
    create_pool(pool, layers=2, experts=16, expert_bytes=14 << 20)
    files = [str(path) for path in sorted(pool.glob("layer-*/*"))]
    with MglruKnob(ROOTS).apply("on"), running(LOCKER, str(locked)) as locker:
        assert locker.stdout is not None and locker.stdout.readline() == b"locked\n"
        with running(READER, *files) as reader:
            time.sleep(8)
            document = look(tmp_path / "none", 6.0, pool=pool, pid=reader.pid)
    text = "\n".join(document["evidence"])
    assert document["state"] in ("suspect", "amplifying"), text
    figures = document["figures"]
    assert figures["unevictable_share"] > 0.8
    assert "of memory is unevictable, above the 74%" in text
    stolen = [figures["reclaim"][source]["stolen_pages_per_s"] for source in ("kswapd", "direct")]
    assert sum(stolen) > 0
    assert figures["refault_bytes_per_s"] > 1 << 20
    assert figures["device_bytes_per_s"] > 1 << 20
    by_name = {item["name"]: item for item in document["mitigations"]}
    assert all(item["applies"] and item["command"] for item in by_name.values())
    assert f"pid {locker.pid} " in by_name["reduce the locked region"]["why"]
