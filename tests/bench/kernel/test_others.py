# SPDX-License-Identifier: Apache-2.0
"""What other programs do to a host: fake files of /proc, write to a pool, ask for reclaim, lock."""

import os
from pathlib import Path

import pytest

from pagetier.analysis.mitigations import Locker
from pagetier.bench.kernel.faked import FUSE_SUPER_MAGIC, faked_files
from pagetier.bench.kernel.lockers import read_lockers
from pagetier.bench.kernel.reclaimers import read_reclaimers
from pagetier.bench.kernel.writers import Writer, find_writers
from pagetier.cgroups.roots import Roots


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def process(proc: Path, pid: int, name: str, opened: dict[int, tuple[Path, str]]) -> None:
    """A process with files open: by descriptor, what it leads to and the octal flags."""
    write(proc / f"{pid}/comm", f"{name}\n")
    (proc / f"{pid}/fd").mkdir()
    for number, (target, flags) in opened.items():
        (proc / f"{pid}/fd/{number}").symlink_to(target)
        write(proc / f"{pid}/fdinfo/{number}", f"pos:\t0\nflags:\t{flags}\nmnt_id:\t1\n")


def test_files_that_a_program_answers(tmp_path: Path) -> None:
    write(tmp_path / "meminfo", "")
    write(tmp_path / "diskstats", "")
    inode = (tmp_path / "meminfo").stat().st_ino

    def magic(fd: int) -> int:
        return FUSE_SUPER_MAGIC if os.fstat(fd).st_ino == inode else 0x9FA0

    assert faked_files(tmp_path, magic) == (str(tmp_path / "meminfo"),)
    assert faked_files(tmp_path, lambda fd: 0x9FA0) == ()
    assert faked_files(tmp_path / "nowhere") == ()


def test_the_running_kernel_answers_itself() -> None:
    assert faked_files(Path("/proc")) == ()


@pytest.mark.parametrize(
    ("flags", "writes"),
    [("0100000", False), ("0100001", True), ("0100002", True), ("0102001", True)],
)
def test_who_writes_to_a_file(tmp_path: Path, flags: str, writes: bool) -> None:
    shard, other = tmp_path / "shard", tmp_path / "other"
    shard.touch()
    other.touch()
    files = {(shard.stat().st_dev, shard.stat().st_ino)}
    process(tmp_path / "proc", 5, "wget", {3: (other, "0100001"), 4: (shard, flags)})
    process(tmp_path / "proc", 6, "cat", {3: (shard, "0100000"), 4: (tmp_path / "gone", "01")})
    (tmp_path / "proc/7").mkdir()
    found, closed = find_writers(tmp_path / "proc", files)
    assert found == ((Writer(5, "wget"),) if writes else ())
    assert closed == 0


def test_a_writer_of_the_running_kernel(tmp_path: Path) -> None:
    path = tmp_path / "growing"
    with path.open("wb") as file:
        files = {(os.fstat(file.fileno()).st_dev, os.fstat(file.fileno()).st_ino)}
        found, _ = find_writers(Path("/proc"), files)
        assert [writer.pid for writer in found] == [os.getpid()]
    with path.open("rb"):
        assert find_writers(Path("/proc"), files)[0] == ()


def test_programs_that_ask_for_reclaim(tmp_path: Path) -> None:
    process(tmp_path, 11, "senpai", {})
    process(tmp_path, 12, "daemon", {5: (Path("/sys/fs/cgroup/x/memory.reclaim"), "01")})
    process(tmp_path, 13, "bystander", {5: (Path("/sys/fs/cgroup/x/memory.max"), "01")})
    (tmp_path / "14").mkdir()
    assert read_reclaimers(tmp_path) == (
        "senpai (pid 11)",
        "daemon (pid 12), which has a memory.reclaim open",
    )


def test_who_has_locked_most(tmp_path: Path) -> None:
    for pid, kib in ((21, 5), (22, 7), (23, 0), (24, 6)):
        write(tmp_path / f"{pid}/status", f"Name:\tx\nPid:\t{pid}\nVmLck:\t {kib} kB\n")
        write(tmp_path / f"{pid}/comm", f"n{pid}\n")
    write(tmp_path / "25/status", "Name:\tkthread\nPid:\t25\n")
    assert read_lockers(Roots(proc=tmp_path), most=2) == (
        Locker(22, "n22", 7 * 1024),
        Locker(24, "n24", 6 * 1024),
    )
