# SPDX-License-Identifier: Apache-2.0
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pagetier.analysis.errors import InputError
from pagetier.native.residency import page_bytes
from pagetier.tiers import evict
from pagetier.tiers.evict import Eviction, evict_pool, require_unmapped, resident_bytes
from pagetier.tiers.pool import UniformPool, open_pool

MakePool = Callable[..., UniformPool]
PROC = Path("/proc")

# Holds a file as told until its standard input ends.
HOLDER = """
import ctypes, mmap, sys
how, path = sys.argv[1:]
file = open(path, "r+b")
if how != "open":
    mapping = mmap.mmap(file.fileno(), 0)
    file.close()
    touched = sum(mapping[i] for i in range(0, len(mapping), mmap.PAGESIZE))
if how == "locked":
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(mapping))) == 0
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(path: Path, how: str) -> Iterator[int]:
    """Another process that has the file mapped, locked or open; gives its pid."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, how, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder.pid
    finally:
        holder.communicate(timeout=30)


def pages(size: int) -> int:
    return -(-size // page_bytes())


def warm(pool: UniformPool) -> None:
    for name in pool.files():
        (pool.root / name).read_bytes()


@pytest.mark.parametrize("layout", ["files", "flat"])
@pytest.mark.parametrize("expert_bytes", [1, 4095, 4096, 4097, 132_365])
def test_a_warm_pool_is_dropped_to_the_last_page(
    make: MakePool, empty_proc: Path, layout: str, expert_bytes: int
) -> None:
    pool = make(layout, expert_bytes=expert_bytes)
    warm(pool)
    whole = len(pool.files()) * pages(pool.file_bytes)
    assert resident_bytes(pool) == whole * page_bytes()
    eviction = evict_pool(pool, empty_proc)
    assert (eviction.resident_before_pages, eviction.resident_after_pages) == (whole, 0)
    assert eviction.proven
    assert eviction.reason is None
    assert eviction.attempts >= 1
    assert resident_bytes(pool) == 0


def test_a_cold_pool_is_proven_without_an_attempt(make: MakePool, empty_proc: Path) -> None:
    pool = make()
    evict_pool(pool, empty_proc)
    assert evict_pool(pool, empty_proc) == Eviction(0, 0, 0, True, None)


@pytest.mark.parametrize("layout", ["files", "flat"])
def test_dirty_pages_are_written_and_dropped(make: MakePool, empty_proc: Path, layout: str) -> None:
    pool = make(layout, expert_bytes=300_001)
    for name in pool.files():
        with open(pool.root / name, "r+b") as file:
            whole = file.read()
            file.seek(0)
            file.write(whole)
    assert evict_pool(pool, empty_proc).proven
    assert resident_bytes(pool) == 0


def test_pages_in_flight_are_waited_for(make: MakePool, empty_proc: Path) -> None:
    pool = make("flat", layers=1, experts=2, expert_bytes=16 << 20)
    fd = os.open(pool.root / "experts.bin", os.O_RDONLY)
    try:
        for offset in range(0, pool.file_bytes, 1 << 20):
            os.posix_fadvise(fd, offset, 1 << 20, os.POSIX_FADV_WILLNEED)
        eviction = evict_pool(pool, empty_proc)
    finally:
        os.close(fd)
    assert eviction.proven
    assert resident_bytes(pool) == 0


def test_what_stays_is_written_back_before_it_is_dropped_again(
    make: MakePool, empty_proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make("flat")
    calls: list[str] = []
    counts = iter([4, 4, 4, 0])
    monkeypatch.setattr(evict, "resident_pages", lambda fd, offset, length: next(counts))
    monkeypatch.setattr(os, "fdatasync", lambda fd: calls.append("sync"))
    monkeypatch.setattr(os, "posix_fadvise", lambda *arguments: calls.append("drop"))
    assert evict_pool(pool, empty_proc) == Eviction(4, 0, 3, True, None)
    assert calls == ["drop", "sync", "drop", "sync", "drop"]


def test_a_device_error_is_told_in_one_sentence(
    make: MakePool, empty_proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make()

    def failing(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(evict, "resident_pages", lambda fd, offset, length: 1)
    monkeypatch.setattr(os, "fdatasync", failing)
    with pytest.raises(InputError, match=r"could not be evicted \(Input/output error\)"):
        evict_pool(pool, empty_proc)


@pytest.mark.parametrize(
    ("how", "words"), [("mapped", "still mapped by"), ("locked", "still mapped and locked by")]
)
def test_what_another_process_maps_stays_and_is_named(make: MakePool, how: str, words: str) -> None:
    pool = make(expert_bytes=20_000)
    warm(pool)
    with held(pool.root / pool.files()[7], how) as pid:
        eviction = evict_pool(pool, PROC, max_attempts=2)
        assert eviction.resident_after_pages == pages(20_000)
        assert (eviction.attempts, eviction.proven) == (2, False)
        assert eviction.reason is not None
        assert eviction.reason.startswith(
            f"pages that stay: {pages(20_000)}, in 1 of 15 files: {words}"
        )
        assert f"pid {pid} (python" in eviction.reason
    assert evict_pool(pool, PROC).proven


def test_what_this_process_maps_is_named_as_such(make: MakePool) -> None:
    import mmap

    pool = make()
    with open(pool.root / pool.files()[0], "rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert len(bytes(mapping)) == 4097
    eviction = evict_pool(pool, PROC, max_attempts=1)
    assert eviction.reason is not None
    assert f"mapped by pid {os.getpid()}" in eviction.reason
    require_unmapped(pool, PROC)
    mapping.close()
    assert evict_pool(pool, PROC).proven


def test_an_open_file_is_no_obstacle(make: MakePool) -> None:
    pool = make()
    warm(pool)
    with held(pool.root / pool.files()[7], "open"):
        require_unmapped(pool, PROC)
        assert evict_pool(pool, PROC).proven


def test_mapped_by_another_process_can_be_refused_first(make: MakePool) -> None:
    pool = make()
    require_unmapped(pool, PROC)
    with (
        held(pool.root / pool.files()[3], "mapped") as pid,
        pytest.raises(InputError, match=rf"mapped by pid {pid} \(python.*stop that process"),
    ):
        require_unmapped(pool, PROC)


def test_pages_that_nobody_seems_to_hold_are_reported(
    make: MakePool, empty_proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make()
    monkeypatch.setattr(evict, "resident_pages", lambda fd, offset, length: 3)
    eviction = evict_pool(pool, empty_proc, max_attempts=2)
    assert (eviction.resident_before_pages, eviction.resident_after_pages) == (45, 45)
    assert not eviction.proven
    assert eviction.reason is not None
    assert "no process was found that holds it" in eviction.reason


def test_processes_that_may_not_be_looked_into_are_counted(
    make: MakePool, empty_proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make()
    monkeypatch.setattr(evict, "resident_pages", lambda fd, offset, length: 1)
    for pid in ("8", "9"):
        (empty_proc / pid).mkdir()
        (empty_proc / pid / "maps").write_text("")
    iterate = os.listdir

    def refuse_descriptors(path: Path | str | int) -> list[str]:
        if str(path).endswith("/fd"):
            raise PermissionError(13, "Permission denied")
        return iterate(path)

    monkeypatch.setattr(os, "listdir", refuse_descriptors)
    reason = evict_pool(pool, empty_proc, max_attempts=1).reason
    assert reason is not None
    assert reason.endswith("2 processes could not be looked into")


def test_unknown_residency_proves_nothing(
    make: MakePool, empty_proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make()
    monkeypatch.setattr(evict, "resident_pages", lambda fd, offset, length: None)
    eviction = evict_pool(pool, empty_proc)
    assert eviction.resident_before_pages is None
    assert eviction.resident_after_pages is None
    assert (eviction.attempts, eviction.proven) == (1, False)
    assert eviction.reason is not None
    assert eviction.reason.startswith("residency unknown")
    assert resident_bytes(pool) is None


def test_a_pool_in_memory_is_refused(make: MakePool, empty_proc: Path) -> None:
    made = make()
    copy = Path("/dev/shm") / f"pagetier-test-{os.getpid()}"
    try:
        shutil.copytree(made.root, copy)
        with pytest.raises(InputError, match="is on tmpfs, which lives in memory"):
            evict_pool(open_pool(copy), empty_proc)
    finally:
        shutil.rmtree(copy)


def test_a_file_that_is_gone_is_named(make: MakePool, empty_proc: Path) -> None:
    pool = make()
    (pool.root / pool.files()[5]).unlink()
    with pytest.raises(InputError, match=r"layer-001/expert-0000\.bin: is missing"):
        evict_pool(pool, empty_proc)


def test_leaves_no_descriptor_open(make: MakePool) -> None:
    pool = make()
    warm(pool)
    before = len(os.listdir("/proc/self/fd"))
    evict_pool(pool, PROC)
    require_unmapped(pool, PROC)
    assert len(os.listdir("/proc/self/fd")) == before
