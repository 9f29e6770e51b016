# SPDX-License-Identifier: Apache-2.0
"""Device resolution on the running kernel: what is read cold shows on the leaves, once.

Images, loop devices and mounts are of this test's own and are undone in reverse, whatever happens.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pagetier.analysis.errors import CapabilityError
from pagetier.bench.device import Device, resolve
from pagetier.bench.kernel.diskstats import SECTOR_BYTES
from pagetier.cgroups.roots import Roots
from pagetier.native.residency import resident_pages

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("live")]

FILE_BYTES = 8 << 20
ROOTS = Roots()
Tool = Callable[[str], str]


class Bench:
    """Makes loop devices and mounts that end with the test."""

    def __init__(self, folder: Path, undo: ExitStack, tool: Tool) -> None:
        self.folder, self._undo, self._tool = folder, undo, tool

    def run(self, *argv: str) -> str:
        program = self._tool(argv[0])
        done = subprocess.run([program, *argv[1:]], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def loop(self, name: str, size_bytes: int, direct: str = "on") -> str:
        image = self.folder / f"{name}.img"
        with image.open("wb") as file:
            file.truncate(size_bytes)
        device = self.run("losetup", "--find", "--show", f"--direct-io={direct}", str(image))
        self._undo.callback(self.run, "losetup", "--detach", device)
        return device

    def mount(self, *argv: str) -> Path:
        point = self.folder / f"mnt{len(list(self.folder.glob('mnt*')))}"
        point.mkdir()
        self.run("mount", *argv, str(point))
        self._undo.callback(self.run, "umount", str(point))
        return point


@pytest.fixture
def bench(tmp_path: Path, tool: Tool) -> Iterator[Bench]:
    with ExitStack() as undo:
        yield Bench(tmp_path, undo, tool)


def cold_file(folder: Path) -> Path:
    path = folder / "expert"
    with path.open("wb") as file:
        file.write(os.urandom(FILE_BYTES))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def sectors(device: Device) -> int:
    counters = device.counters(Path("/proc/diskstats").read_text())
    assert counters is not None
    return int(counters["sectors_read"])


def read_bytes_of_leaves(device: Device, path: Path) -> int:
    before = sectors(device)
    assert len(path.read_bytes()) == FILE_BYTES
    return (sectors(device) - before) * SECTOR_BYTES


def own_disk(folder: Path) -> Device:
    return resolve(folder, ROOTS)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_loop_with_direct_io(bench: Bench, kind: str) -> None:
    loop = bench.loop("one", 400 << 20)
    bench.run(f"mkfs.{kind}", "-q", loop)
    path = cold_file(bench.mount(loop))
    device = resolve(path, ROOTS)
    assert device.file_system == kind
    assert device.chain[0] == loop.removeprefix("/dev/")
    assert device.leaf_names == own_disk(bench.folder).leaf_names
    assert device.bdi is not None
    assert device.read_ahead_path(ROOTS.sys).read_text().strip() == str(device.read_ahead_kb)
    assert read_bytes_of_leaves(device, path) >= FILE_BYTES


@pytest.mark.parametrize("direct", ["on", "off"])
def test_a_loop_device_named_by_hand_tells_its_own_bytes(bench: Bench, direct: str) -> None:
    loop = bench.loop("one", 64 << 20, direct)
    bench.run("mkfs.ext4", "-q", loop)
    path = cold_file(bench.mount(loop))
    device = resolve(path, ROOTS, [loop])
    assert device.leaf_names == (loop.removeprefix("/dev/"),)
    # Nobody else reads it: the file, and at most some blocks of the file system's own.
    assert FILE_BYTES <= read_bytes_of_leaves(device, path) <= FILE_BYTES + (256 << 10)


def test_loop_that_caches_twice_is_refused(bench: Bench) -> None:
    loop = bench.loop("one", 64 << 20, direct="off")
    bench.run("mkfs.ext4", "-q", loop)
    with pytest.raises(CapabilityError, match="pages are cached twice"):
        resolve(bench.mount(loop), ROOTS)


@pytest.mark.parametrize("count", [1, 2])
def test_btrfs(bench: Bench, count: int) -> None:
    loops = [bench.loop(f"b{index}", 160 << 20) for index in range(count)]
    profile = [] if count == 1 else ["-d", "raid0", "-m", "raid0"]
    bench.run("mkfs.btrfs", "-q", "-f", *profile, *loops)
    path = cold_file(bench.mount(loops[-1]))
    device = resolve(path, ROOTS)
    assert [name for name in device.chain if name.startswith("loop")] == [
        loop.removeprefix("/dev/") for loop in loops
    ]
    # Both loop devices lie on the one disk of the temporary folder: one leaf.
    assert device.leaf_names == own_disk(bench.folder).leaf_names
    assert device.bdi is not None and device.bdi.startswith("btrfs-")
    assert device.read_ahead_kb == int(device.read_ahead_path(ROOTS.sys).read_text())
    assert device.traits == ()
    assert read_bytes_of_leaves(device, path) >= FILE_BYTES


def test_btrfs_that_compressed_a_file(bench: Bench) -> None:
    loop = bench.loop("b", 160 << 20)
    bench.run("mkfs.btrfs", "-q", "-f", loop)
    folder = bench.mount("-o", "compress=zstd", loop)
    soft, hard = folder / "soft", folder / "hard"
    soft.write_bytes(b"x" * FILE_BYTES)
    hard.write_bytes(os.urandom(FILE_BYTES))
    bench.run("sync", "-f", str(folder))
    assert resolve(soft, ROOTS).traits == ("compressed",)
    assert resolve(hard, ROOTS).traits == ()
    assert resolve(folder, ROOTS).traits == ("compressed",)


def test_overlay_and_bind_mount(bench: Bench) -> None:
    lower, upper, work = (bench.folder / name for name in ("lower", "upper", "work"))
    for folder in (lower, upper, work):
        folder.mkdir()
    path = cold_file(lower)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    merged = bench.mount("-t", "overlay", "-o", options, "overlay")
    seen = bench.mount("--bind", str(merged))
    device = resolve(seen / "expert", ROOTS)
    assert device.lower_path == str(path)
    assert device.leaf_names == own_disk(bench.folder).leaf_names
    assert read_bytes_of_leaves(device, seen / "expert") >= FILE_BYTES
    # Why a pool may not be measured through an overlay: its pages are out of sight there.
    for place, least_pages in ((path, 1), (seen / "expert", 0)):
        with place.open("rb") as file:
            pages = resident_pages(file.fileno(), 0, FILE_BYTES)
        assert pages is not None and pages >= least_pages


def test_bind_mount_of_the_disk(bench: Bench) -> None:
    (bench.folder / "real").mkdir()
    path = cold_file(bench.folder / "real")
    seen = bench.mount("--bind", str(bench.folder / "real"))
    assert resolve(seen / "expert", ROOTS) == resolve(path, ROOTS)
