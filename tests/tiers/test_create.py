# SPDX-License-Identifier: Apache-2.0
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pagetier.analysis.errors import InputError
from pagetier.native import content
from pagetier.tiers.check import check_pool
from pagetier.tiers.create import create_pool
from pagetier.tiers.evict import resident_bytes
from pagetier.tiers.pool import UniformPool, open_pool

MakePool = Callable[..., UniformPool]
ROOT = Path(__file__).resolve().parents[2]

# Makes a pool and stops for good in its first report of progress, before the pool is published.
HALTING_CREATOR = """
import signal, sys, time
from pathlib import Path
from pagetier.tiers.create import create_pool
# A shell starts its background jobs with the signal ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
def halt(done, total):
    print("filling", flush=True)
    time.sleep(600)
create_pool(Path(sys.argv[1]), 2, 3, 4097, on_progress=halt)
"""


@contextmanager
def halted_creator(path: Path) -> Iterator[subprocess.Popen[str]]:
    creator = subprocess.Popen(
        [sys.executable, "-c", HALTING_CREATOR, str(path)],
        env=os.environ | {"PYTHONPATH": str(ROOT / ".layout")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert creator.stdout is not None
        assert creator.stdout.readline() == "filling\n"
        yield creator
    finally:
        creator.kill()
        creator.communicate()


def stagings(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*pagetier-staging*"))


@pytest.mark.parametrize("layout", ["files", "flat"])
@pytest.mark.parametrize("expert_bytes", [1, 777, 4095, 4096, 4097, 65536, 132_365])
def test_content_is_the_one_of_seed_and_expert(
    make: MakePool, layout: str, expert_bytes: int
) -> None:
    pool = make(layout, layers=2, experts=3, expert_bytes=expert_bytes, seed=9)
    for expert in range(6):
        wanted = bytearray(expert_bytes)
        content.fill(wanted, 9, expert)
        name, offset = pool.locate(expert)
        found = (pool.root / name).read_bytes()[offset : offset + expert_bytes]
        assert found == wanted
    names = {str(p.relative_to(pool.root)) for p in pool.root.rglob("*") if p.is_file()}
    assert names == {*pool.files(), "pool.json"}
    assert sum((pool.root / name).stat().st_size for name in pool.files()) == pool.total_bytes


def test_an_expert_of_gpt_oss_20b(make: MakePool) -> None:
    pool = make("flat", layers=1, experts=2, expert_bytes=13_236_480)
    assert check_pool(pool) is None


@pytest.mark.parametrize("layout", ["files", "flat"])
def test_a_fresh_pool_is_not_cached(make: MakePool, layout: str) -> None:
    pool = make(layout, layers=2, experts=16, expert_bytes=500_001)
    resident = resident_bytes(pool)
    assert resident is not None
    assert resident < pool.total_bytes // 20


def test_many_small_files(make: MakePool) -> None:
    pool = make(layers=4, experts=500, expert_bytes=100)
    assert len(pool.files()) == 2000
    assert check_pool(pool) is None


@pytest.mark.parametrize("layout", ["files", "flat"])
def test_progress_ends_at_the_whole(disk: Path, layout: str) -> None:
    reports: list[tuple[int, int]] = []
    pool = create_pool(
        disk / "p", 2, 8, 300_001, layout, on_progress=lambda *both: reports.append(both)
    )
    assert reports == sorted(reports)
    assert reports[-1] == (pool.total_bytes, pool.total_bytes)


def test_leaves_no_descriptor_open(make: MakePool) -> None:
    make(name="first")
    before = len(os.listdir("/proc/self/fd"))
    make(name="second")
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("kind", ["pool", "file", "folder", "dangling link"])
def test_never_overwrites(make: MakePool, disk: Path, kind: str) -> None:
    target = disk / "pool"
    if kind == "pool":
        make()
    elif kind == "file":
        target.write_text("precious")
    elif kind == "folder":
        target.mkdir()
    else:
        target.symlink_to("nowhere")
    before = sorted(disk.rglob("*"))
    with pytest.raises(InputError, match=rf"^{target}: exists already and is never overwritten"):
        create_pool(target, 1, 1, 1)
    assert sorted(disk.rglob("*")) == before


def test_a_target_that_appears_meanwhile_is_not_replaced(disk: Path) -> None:
    target = disk / "pool"

    def appear(done_bytes: int, total_bytes: int) -> None:
        target.mkdir(exist_ok=True)

    with pytest.raises(InputError, match="appeared while it was being made"):
        create_pool(target, 2, 3, 4097, on_progress=appear)
    assert list(disk.iterdir()) == [target]
    assert list(target.iterdir()) == []


def test_the_folder_above_must_exist(disk: Path) -> None:
    with pytest.raises(InputError, match="make the folder that is to hold it first"):
        create_pool(disk / "absent" / "pool", 1, 1, 1)
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize("path", ["/", ".", "..", "/proc/.."])
def test_a_path_without_a_name_of_its_own_is_refused(path: str) -> None:
    with pytest.raises(InputError, match="exists already"):
        create_pool(Path(path), 1, 1, 1)


def test_a_relative_path(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(disk)
    assert create_pool(Path("pool"), 1, 1, 1).root == disk.resolve() / "pool"


def test_a_bad_geometry_makes_nothing(disk: Path) -> None:
    for geometry in [(0, 1, 1), (1, -1, 1), (1, 1, 0)]:
        with pytest.raises(InputError, match="pool geometry"):
            create_pool(disk / "pool", *geometry)
    assert list(disk.iterdir()) == []


def test_memory_is_no_place_for_a_pool() -> None:
    target = Path("/dev/shm") / f"pagetier-test-{os.getpid()}"
    with pytest.raises(InputError, match="is on tmpfs"):
        create_pool(target, 1, 1, 1)
    assert not target.exists()


class FakeStatvfs:
    """A statvfs with digits of its own per field; the rest is not looked at."""

    f_frsize = 4096
    f_bfree = 10**12
    f_bavail = 10**9
    f_files = 10**6
    f_ffree = 10**6
    f_favail = 10**6


@pytest.mark.parametrize(("layout", "needed_blocks"), [("files", 15 * 2 + 3 + 4), ("flat", 16 + 4)])
def test_free_space_is_checked_before_the_first_byte(
    disk: Path, monkeypatch: pytest.MonkeyPatch, layout: str, needed_blocks: int
) -> None:
    monkeypatch.setattr(FakeStatvfs, "f_bavail", needed_blocks - 1)
    monkeypatch.setattr(os, "statvfs", lambda fd: FakeStatvfs)
    with pytest.raises(InputError, match=r"needs \d+(\.\d)? KB and its file system has \d+"):
        create_pool(disk / "pool", 3, 5, 4097, layout)
    assert list(disk.iterdir()) == []
    monkeypatch.setattr(FakeStatvfs, "f_bavail", needed_blocks)
    create_pool(disk / "pool", 3, 5, 4097, layout)


def test_free_inodes_are_checked_for_one_file_per_expert(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeStatvfs, "f_favail", 20)
    monkeypatch.setattr(os, "statvfs", lambda fd: FakeStatvfs)
    with pytest.raises(InputError, match="needs 21 files and its file system has room for 20"):
        create_pool(disk / "pool", 3, 5, 4097)
    create_pool(disk / "flat", 3, 5, 4097, "flat")
    monkeypatch.setattr(FakeStatvfs, "f_files", 0)  # btrfs: no inode table, none free
    create_pool(disk / "pool", 3, 5, 4097)


@pytest.mark.parametrize("layout", ["files", "flat"])
def test_a_device_that_fills_up_leaves_nothing(
    disk: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    calls = iter(range(1000))
    allocate = os.posix_fallocate

    def full_at_the_end(fd: int, offset: int, length: int) -> None:
        if layout == "flat" or next(calls) >= 7:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(fd, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", full_at_the_end)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(InputError, match=r"\(No space left on device\) and nothing was left there"):
        create_pool(disk / "pool", 3, 5, 4097, layout)
    assert list(disk.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_device_error_at_fsync_leaves_nothing(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(InputError, match=r"\(Input/output error\)"):
        create_pool(disk / "pool", 3, 5, 4097)
    assert list(disk.iterdir()) == []


def test_cancelled_leaves_nothing(disk: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(InputError, match="cancelled"):
        create_pool(disk / "pool", 3, 5, 4097, cancel=cancel)
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_of_the_caller_leaves_nothing(disk: Path, error: Any) -> None:
    def fail(done_bytes: int, total_bytes: int) -> None:
        raise error

    with pytest.raises(error):
        create_pool(disk / "pool", 3, 5, 4097, on_progress=fail)
    assert list(disk.iterdir()) == []


def test_ctrl_c_leaves_nothing(disk: Path) -> None:
    with halted_creator(disk / "pool") as creator:
        assert len(stagings(disk)) == 1
        creator.send_signal(signal.SIGINT)
        creator.wait(30)
    assert list(disk.iterdir()) == []


def test_kill_leaves_a_staging_that_the_next_creator_removes(make: MakePool, disk: Path) -> None:
    with halted_creator(disk / "pool") as creator:
        creator.kill()
        creator.wait(30)
    assert len(stagings(disk)) == 1
    assert not (disk / "pool").exists()
    other = make(name="other")
    assert len(stagings(disk)) == 1, "only leftovers of the same target are removed"
    pool = make()
    assert stagings(disk) == []
    assert check_pool(pool) is None
    assert open_pool(other.root) == other


def test_a_living_creator_keeps_its_staging(make: MakePool, disk: Path) -> None:
    with halted_creator(disk / "pool"):
        (before,) = stagings(disk)
        make()
        assert stagings(disk) == [before]
        assert list(before.iterdir()) != []
