# SPDX-License-Identifier: Apache-2.0
"""The check on the running kernel: the self-test, a reader behind a wall, another user's eyes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pagetier.analysis.check import assess
from pagetier.analysis.check_figures import figures_between
from pagetier.bench.check.host import Subject, Watcher
from pagetier.bench.check.selftest import (
    FILE_BYTES,
    WALL_BYTES,
    read_limit_counters,
    try_limit_counters,
)
from pagetier.bench.journal import Journal
from pagetier.cgroups.detect import detect
from pagetier.cgroups.roots import Roots
from pagetier.cgroups.scope import Scope, open_scope
from pagetier.tiers.create import create_pool

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("live")]

ROOTS = Roots()
LAYERS, EXPERTS, EXPERT_BYTES = 2, 16, 1 << 20
# Reads every file of the pool again and again, telling each read, until its stdin ends.
READER = """
import json, os, select, sys
files, feed = sys.argv[2:], open(sys.argv[1], "a", buffering=1)
step = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    for number, name in enumerate(files):
        fd = os.open(name, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        while os.read(fd, 1 << 20):
            pass
        os.close(fd)
        layer, expert = divmod(number, 16)
        print(json.dumps({"layer": layer, "experts": [expert]}), file=feed)
"""


def header() -> str:
    shape = {"num_layers": LAYERS, "num_experts": EXPERTS, "top_k": 1}
    return json.dumps({"format": "moe-route-trace", "version": 1, "model": "m", **shape}) + "\n"


@contextmanager
def walled_reader(folder: Path, limit_bytes: int, state: Path) -> Iterator[tuple[Scope, int]]:
    """A reader of a pool of 32 MiB in a scope of its own, with a feed beside it."""
    files = [str(path) for path in sorted((folder / "pool").glob("layer-*/*"))]
    assert len(files) == LAYERS * EXPERTS
    (folder / "feed").write_text(header())
    with Journal(state, ROOTS) as journal:
        scope = open_scope(detect(ROOTS), journal.next_scope_name())
        paths = [str(path) for path in scope.directories()]
        with journal.entry(kind="scope", paths=paths):
            scope.create()
            try:
                program = [sys.executable, "-c", READER, str(folder / "feed"), *files]
                command = scope.command(["sh", "-c", 'read -r go; exec "$@"', "sh", *program])
                with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
                    assert process.stdin is not None
                    scope.attach(process.pid)
                    scope.set_limit(limit_bytes)
                    process.stdin.write(b"go\n")
                    process.stdin.flush()
                    yield scope, process.pid
                    process.stdin.close()
                    assert process.wait(30) == 0
            finally:
                scope.remove()


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    create_pool(tmp_path / "pool", layers=LAYERS, experts=EXPERTS, expert_bytes=EXPERT_BYTES)
    return tmp_path / "pool"


def test_self_test_of_this_kernel(tmp_path: Path) -> None:
    place, state = tmp_path / "place", tmp_path / "state"
    place.mkdir()
    found = try_limit_counters(state, place, ROOTS)
    assert found.kernel == os.uname().release
    assert found.cgroup == detect(ROOTS).memory
    least_pages = (FILE_BYTES - WALL_BYTES) // os.sysconf("SC_PAGE_SIZE")
    assert found.stolen_pages >= least_pages * 0.9
    # kswapd never works for a limit, and the count by kind of page always has it.
    assert found.counters["kswapd"] is not True
    assert found.counters["file"] is not False
    assert read_limit_counters(state, ROOTS) == found
    assert list(place.iterdir()) == []
    assert [path.name for path in state.glob("*.json")] == []


def await_reads(feed: Path, count: int) -> int:
    """Wait until the reader has told of so many reads; how many it is by then."""
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        told = feed.read_text().count("\n") - 1
        if told >= count:
            return told
        time.sleep(0.05)
    raise AssertionError(f"the reader told of {told} reads in two minutes")


def test_a_reader_behind_a_wall_is_healthy_and_its_misses_are_explained(
    pool: Path, tmp_path: Path
) -> None:
    """16 MiB for a cycle of 32: an LRU misses every read, and so must the device."""
    with walled_reader(tmp_path, 24 << 20, tmp_path / "state") as (scope, pid):
        subject = Subject(pool=pool, pid=pid, feed=str(tmp_path / "feed"), capacity_bytes=16 << 20)
        with Watcher(subject, ROOTS) as watcher:
            assert watcher.cgroup is not None
            assert watcher.cgroup.folder == scope.path
            # Two rounds first, so that no read is an expert's first; then two that are watched.
            # The scope's statistics must have been flushed once: until then the kernel drops the
            # shadow entries that refaults are told by (mm/workingset.c, count_shadow_nodes).
            await_reads(tmp_path / "feed", 2 * LAYERS * EXPERTS)
            time.sleep(2.5)
            await_reads(tmp_path / "feed", 4 * LAYERS * EXPERTS)
            before = watcher.observe()
            told = await_reads(tmp_path / "feed", 0)  # no fewer than have just been observed
            await_reads(tmp_path / "feed", told + 2 * LAYERS * EXPERTS)
            figures = figures_between(before, watcher.observe(), includes_limits=False)
    assert figures.cgroup_limit_bytes == 24 << 20
    assert figures.miss_bytes is not None and figures.miss_bytes >= 64 << 20
    assert figures.first_touch_bytes == 0
    assert figures.refault_bytes is not None and figures.refault_bytes > 16 << 20
    assert figures.amplification is not None
    assert 0.5 < figures.amplification < 1.5
    assert assess(figures).state == "healthy"
    # The wall's reclaim is none of the host's: nothing to make a ratio of.
    assert figures.kswapd is not None and figures.kswapd.ratio is None


# The interpreter may lie below a folder of root's own: everything is imported by a first look, then
# it becomes somebody else.
AS_NOBODY = """
import json, os, sys
from pathlib import Path
from pagetier.bench.check.host import Subject
from pagetier.bench.check.run import Look, looks
from pagetier.cgroups.roots import Roots
look = Look(Subject(pid=int(sys.argv[1])), 0.2, None, Path("/run/pagetier"))
next(looks(look, Roots()))
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
print(json.dumps(next(looks(look, Roots()))))
"""


def test_without_root_it_works_and_says_what_it_cannot_see() -> None:
    shown = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(os.getpid())],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    document: dict[str, Any] = json.loads(shown.stdout)
    assert document["state"] in ("healthy", "suspect")
    assert document["figures"]["reclaim"]["kswapd"] is not None
    assert document["figures"]["unevictable_share"] is not None
    assert any("/io is its owner's and root's alone" in text for text in document["unseen"])
