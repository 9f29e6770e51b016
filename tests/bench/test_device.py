# SPDX-License-Identifier: Apache-2.0
"""From a file to its disk on fake sysfs trees that carry the real device number of tmp_path."""

import os
from pathlib import Path

import pytest

from pagetier.analysis.errors import CapabilityError
from pagetier.bench.device import Device, Partition, UnresolvedDevice, resolve
from pagetier.cgroups.roots import Roots


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Host:
    """A fake /proc and /sys; `node` makes the entry that the pool's device number leads to."""

    def __init__(self, root: Path) -> None:
        self.roots = Roots(root / "proc", root / "sys", root / "cgroup")
        self.pool = root / "pool"
        self.pool.mkdir()
        number = self.pool.stat().st_dev
        self.number = f"{os.major(number)}:{os.minor(number)}"
        self.mount("ext4", "/dev/x", self.number)

    def mount(self, kind: str, source: str, number: str, options: str = "rw") -> None:
        line = f"1 0 {number} / / rw,relatime - {kind} {source} {options}\n"
        write(self.roots.proc / "self/mountinfo", line)

    def disk(self, name: str, number: str) -> Path:
        folder = self.roots.sys / "devices/pci0/block" / name
        write(folder / "dev", f"{number}\n")
        write(folder / "size", "17\n")
        for attribute, value in {
            "read_ahead_kb": "11",
            "max_sectors_kb": "12",
            "iostats": "1",
            "rotational": "0",
            "scheduler": "none [mq-deadline]",
            "logical_block_size": "4096",
        }.items():
            write(folder / "queue" / attribute, f"{value}\n")
        write(folder / "device/model", "Some Disk   \n")
        write(self.roots.sys / "class/bdi" / number / "read_ahead_kb", "13\n")
        return folder

    def node(self, folder: Path) -> None:
        link = self.roots.sys / "dev/block" / self.number
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)

    def resolve(self) -> Device:
        return resolve(self.pool, self.roots)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_whole_disk(host: Host) -> None:
    host.node(host.disk("vdx", host.number))
    major, minor = map(int, host.number.split(":"))
    assert host.resolve() == Device(
        name="vdx",
        major=major,
        minor=minor,
        chain=("vdx",),
        partition=None,
        file_system="ext4",
        read_ahead_kb=13,
        max_sectors_kb=12,
        iostats=True,
        rotational=False,
        model="Some Disk",
        scheduler="mq-deadline",
        logical_block_bytes=4096,
        size_bytes=17 * 512,
    )


def test_partition_resolves_to_its_disk(host: Host) -> None:
    disk = host.disk("nvme0n1", "259:1")
    write(disk / "nvme0n1p3/dev", f"{host.number}\n")
    write(disk / "nvme0n1p3/partition", "3\n")
    host.node(disk / "nvme0n1p3")
    device = host.resolve()
    major, minor = map(int, host.number.split(":"))
    assert (device.name, device.number) == ("nvme0n1", "259:1")
    assert device.partition == Partition("nvme0n1p3", major, minor)
    assert device.chain == ("nvme0n1p3", "nvme0n1")
    assert device.read_ahead_kb == 13


def test_readahead_comes_from_the_backing_device(host: Host) -> None:
    host.node(host.disk("vdx", host.number))
    device = host.resolve()
    path = device.read_ahead_path(host.roots.sys)
    assert path.read_text() == "13\n"
    path.unlink()
    assert host.resolve().read_ahead_kb == 11
    assert host.resolve().over_read_limit_bytes == 12 * 1024


def test_a_slash_in_a_name_is_an_exclamation_mark_in_sysfs(host: Host) -> None:
    host.node(host.disk("cciss!c0d0", host.number))
    assert host.resolve().name == "cciss/c0d0"


def test_accounting_that_is_off_is_seen(host: Host) -> None:
    disk = host.disk("vdx", host.number)
    host.node(disk)
    write(disk / "queue/iostats", "0\n")
    assert host.resolve().iostats is False


def test_what_the_kernel_does_not_say_is_none(host: Host) -> None:
    folder = host.roots.sys / "devices/block/vdx"
    write(folder / "dev", f"{host.number}\n")
    host.node(folder)
    device = host.resolve()
    assert device.read_ahead_kb is None
    assert device.over_read_limit_bytes is None
    assert (device.iostats, device.rotational, device.model) == (None, None, None)
    assert (device.scheduler, device.size_bytes) == (None, None)


@pytest.mark.parametrize("kind", ["btrfs", "overlay", "zfs", "nfs4", "9p", "fuse.sshfs"])
def test_anonymous_device_names_the_file_system_and_the_way_out(host: Host, kind: str) -> None:
    host.mount(kind, "somewhere", "0:39")
    with pytest.raises(CapabilityError) as caught:
        host.resolve()
    text = str(caught.value)
    assert f"{kind} at / (from somewhere) has no single block device" in text
    assert text.endswith("put the pool on a partition or a whole disk with ext4 or xfs")


def test_memory_file_system(host: Host) -> None:
    host.mount("tmpfs", "none", "0:23")
    with pytest.raises(CapabilityError, match="tmpfs at / lies in memory"):
        host.resolve()


def test_device_without_any_visible_mount(host: Host) -> None:
    (host.roots.proc / "self/mountinfo").unlink()
    with pytest.raises(CapabilityError, match=f"device {host.number} is unresolved"):
        host.resolve()


@pytest.mark.parametrize(
    ("name", "title"), [("dm-0", "dm/name"), ("md127", "md/level"), ("bcache0", None)]
)
def test_stacked_device_names_what_is_below(host: Host, name: str, title: str | None) -> None:
    disk = host.disk(name, host.number)
    (disk / "slaves").mkdir()
    (disk / "slaves/sdb1").mkdir()
    (disk / "slaves/sda1").mkdir()
    if title is not None:
        write(disk / title, "vg-pool\n")
    host.node(disk)
    words = f"on {name}{' .vg-pool.' if title else ''} stacked over sda1, sdb1, "
    with pytest.raises(UnresolvedDevice, match=words) as caught:
        host.resolve()
    assert caught.value.remedy.startswith("put the pool on a partition")
    assert caught.value.remedy not in caught.value.problem


def test_partition_of_a_stacked_device(host: Host) -> None:
    disk = host.disk("md0", "9:0")
    write(disk / "md0p1/dev", f"{host.number}\n")
    write(disk / "md0p1/partition", "1\n")
    host.node(disk / "md0p1")
    with pytest.raises(CapabilityError, match="on md0 stacked over other devices"):
        host.resolve()


def test_loop_device(host: Host) -> None:
    disk = host.disk("loop3", host.number)
    write(disk / "loop/backing_file", "/images/pool.img\n")
    host.node(disk)
    with pytest.raises(CapabilityError, match=r"loop device loop3 over /images/pool\.img"):
        host.resolve()


@pytest.mark.parametrize("name", ["zram0", "ram0"])
def test_disk_in_memory(host: Host, name: str) -> None:
    host.node(host.disk(name, host.number))
    with pytest.raises(CapabilityError, match=f"on {name}, which lies in memory"):
        host.resolve()


@pytest.mark.parametrize(("options", "refused"), [("rw,dax", True), ("rw,dax=never", False)])
def test_dax_has_no_page_cache(host: Host, options: str, refused: bool) -> None:
    host.node(host.disk("pmem0", host.number))
    host.mount("xfs", "/dev/pmem0", host.number, options)
    if not refused:
        assert host.resolve().name == "pmem0"
        return
    with pytest.raises(CapabilityError, match="mounted with dax"):
        host.resolve()


def test_malformed_device_number(host: Host) -> None:
    disk = host.disk("vdx", host.number)
    write(disk / "dev", "what\n")
    host.node(disk)
    with pytest.raises(CapabilityError, match="dev: 'what' is not MAJOR:MINOR"):
        host.resolve()


def test_missing_path_is_an_os_error(host: Host) -> None:
    with pytest.raises(FileNotFoundError):
        resolve(host.pool / "no", host.roots)


def test_device_as_host_fact(host: Host) -> None:
    host.node(host.disk("vdx", host.number))
    fact = host.resolve().as_dict()
    assert fact["chain"] == ["vdx"]
    assert fact["number"] == host.number
    assert fact["partition"] is None
