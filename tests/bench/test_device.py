# SPDX-License-Identifier: Apache-2.0
"""From a file to its disk on fake sysfs trees that carry the real device number of tmp_path."""

import os
from pathlib import Path

import pytest

from pagetier.analysis.errors import CapabilityError
from pagetier.bench.device import Device, Leaf, Partition, UnresolvedDevice, resolve
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

    def mount_at(self, point: Path, kind: str, source: str, options: str, root: str = "/") -> None:
        """One more mount, on top of the first."""
        line = f"2 1 0:39 {root} {point} rw - {kind} {source} {options}\n"
        with (self.roots.proc / "self/mountinfo").open("a") as file:
            file.write(line)

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

    def partition(self, disk: Path, name: str, number: str) -> Path:
        write(disk / name / "dev", f"{number}\n")
        write(disk / name / "partition", "1\n")
        return disk / name

    def stack(self, upper: Path, *lower: Path) -> Path:
        (upper / "slaves").mkdir()
        for folder in lower:
            (upper / "slaves" / folder.name).symlink_to(folder)
        return upper

    def node(self, folder: Path, number: str | None = None) -> None:
        link = self.roots.sys / "dev/block" / (number or self.number)
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
    leaf = Leaf("vdx", major, minor, None, True, False, "Some Disk", "mq-deadline", 4096, 17 * 512)
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
        leaves=(leaf,),
        bdi=host.number,
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


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("zfs", "has a cache of its own"),
        ("nfs4", "lies on a server"),
        ("nfs", "lies on a server"),
        ("9p", "is passed in from outside of this machine"),
        ("virtiofs", "is passed in from outside of this machine"),
        ("fuse.sshfs", "is served by a program"),
        ("gfs2", "has no single block device"),
    ],
)
def test_refused_file_system_gives_its_reason_and_the_way_out(
    host: Host, kind: str, reason: str
) -> None:
    host.mount(kind, "somewhere", "0:39")
    with pytest.raises(CapabilityError) as caught:
        host.resolve()
    text = str(caught.value)
    assert f"{kind} at / (from somewhere) {reason}" in text
    assert text.endswith("or name the disk with --device")


def test_memory_file_system(host: Host) -> None:
    host.mount("tmpfs", "none", "0:23")
    with pytest.raises(CapabilityError, match="tmpfs at / lies in memory"):
        host.resolve()


def test_device_without_any_visible_mount(host: Host) -> None:
    (host.roots.proc / "self/mountinfo").unlink()
    with pytest.raises(CapabilityError, match=f"device {host.number} is unresolved"):
        host.resolve()


def test_logical_volume_on_a_partition(host: Host) -> None:
    disk = host.disk("nvme0n1", "259:0")
    dm = host.disk("dm-0", host.number)
    write(dm / "dm/name", "vg-pool\n")
    write(dm / "dm/uuid", "LVM-abc\n")
    write(dm / "queue/max_sectors_kb", "14\n")
    write(host.roots.sys / "class/bdi" / host.number / "read_ahead_kb", "15\n")
    host.node(host.stack(dm, host.partition(disk, "nvme0n1p3", "259:3")))
    device = host.resolve()
    assert device.chain == ("dm-0", "nvme0n1p3", "nvme0n1")
    assert (device.name, device.number) == ("nvme0n1", "259:0")
    assert device.partition == Partition("nvme0n1p3", 259, 3)
    assert device.layers == ("dm-0 is LVM (vg-pool)",)
    assert device.traits == ()
    # The layer that the file system reads from, not the disk, is what reads ahead.
    assert (device.read_ahead_kb, device.max_sectors_kb) == (15, 14)
    assert device.read_ahead_path(host.roots.sys).read_text() == "15\n"


def test_encrypted_mirror_counts_each_disk_once(host: Host) -> None:
    sda, sdb = host.disk("sda", "8:0"), host.disk("sdb", "8:16")
    write(sdb / "queue/iostats", "0\n")
    write(sdb / "device/model", "Other\n")
    md = host.disk("md127", "9:127")
    write(md / "md/level", "raid1\n")
    host.stack(md, host.partition(sda, "sda1", "8:1"), host.partition(sdb, "sdb1", "8:17"))
    dm = host.disk("dm-1", host.number)
    write(dm / "dm/name", "crypt-pool\n")
    write(dm / "dm/uuid", "CRYPT-LUKS2-x\n")
    host.node(host.stack(dm, md))
    device = host.resolve()
    assert device.chain == ("dm-1", "md127", "sda1", "sda", "sdb1", "sdb")
    assert device.leaf_names == ("sda", "sdb")
    assert device.leaf_numbers == ((8, 0), (8, 16))
    assert device.layers == ("dm-1 is dm-crypt (crypt-pool)", "md127 is md raid1")
    assert device.traits == ("encrypted",)
    assert (device.name, device.number, device.partition) == ("dm-1", host.number, None)
    assert device.iostats is False
    assert device.model == "Some Disk + Other"
    assert device.size_bytes == 2 * 17 * 512


def test_a_thin_pool_reaches_its_disk_twice_and_counts_it_once(host: Host) -> None:
    disk = host.disk("sda", "8:0")
    data, meta = host.disk("dm-1", "253:1"), host.disk("dm-2", "253:2")
    host.stack(data, host.partition(disk, "sda1", "8:1"))
    host.stack(meta, host.partition(disk, "sda2", "8:2"))
    host.node(host.stack(host.disk("dm-0", host.number), data, meta))
    device = host.resolve()
    assert device.leaf_names == ("sda",)
    # Neither partition alone holds what was read.
    assert device.partition is None
    assert device.chain == ("dm-0", "dm-1", "sda1", "sda", "dm-2", "sda2")


def test_partition_of_an_array(host: Host) -> None:
    md = host.stack(host.disk("md0", "9:0"), host.disk("sda", "8:0"))
    host.node(host.partition(md, "md0p1", host.number))
    device = host.resolve()
    assert device.chain == ("md0p1", "md0", "sda")
    assert (device.name, device.partition) == ("sda", None)
    assert device.bdi == "9:0"


@pytest.mark.parametrize("name", ["dm-0", "md127", "bcache0"])
def test_stacked_device_whose_disks_are_hidden(host: Host, name: str) -> None:
    host.node(host.disk(name, host.number))
    with pytest.raises(UnresolvedDevice, match=f"on {name}, and sysfs names no device") as caught:
        host.resolve()
    assert caught.value.remedy.endswith("name the disk with --device")
    assert caught.value.remedy not in caught.value.problem


def test_a_stack_without_end_is_an_error(host: Host) -> None:
    disk = host.disk("dm-0", host.number)
    host.node(host.stack(disk, disk))
    with pytest.raises(CapabilityError, match="dm-0 is stacked more than 12 deep"):
        host.resolve()


def loop_over(host: Host, backing: Path, dio: str) -> Path:
    loop = host.disk("loop3", "7:3")
    write(loop / "loop/backing_file", f"{backing}\n")
    write(loop / "loop/dio", f"{dio}\n")
    return loop


def test_loop_device_with_direct_io_leads_to_the_disk_of_its_file(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = host.pool / "pool.img"
    image.touch()
    host.node(host.disk("vdx", "99:7"), "99:7")
    host.node(host.stack(host.disk("dm-0", host.number), loop_over(host, image, "1")))
    numbers = {image: "99:7", host.pool: host.number}
    monkeypatch.setattr("pagetier.bench.devices.resolve._file_number", numbers.__getitem__)
    device = host.resolve()
    assert device.chain == ("dm-0", "loop3", "vdx")
    assert device.name == "vdx"
    assert f"loop3 is a loop device over {image}, with direct I/O" in device.layers


def test_loop_device_that_caches_twice(host: Host) -> None:
    host.node(loop_over(host, host.pool / "pool.img", "0"))
    with pytest.raises(CapabilityError, match=r"loop3 over .*pool\.img, whose pages are cached"):
        host.resolve()
    with pytest.raises(CapabilityError, match="losetup --direct-io=on /dev/loop3"):
        host.resolve()


def test_loop_device_whose_file_is_gone(host: Host) -> None:
    host.node(loop_over(host, host.pool / "gone.img", "1"))
    with pytest.raises(CapabilityError, match=r"gone\.img, which cannot be seen from here"):
        host.resolve()


def btrfs(host: Host, *devices: Path) -> None:
    host.mount("btrfs", f"/dev/{devices[0].name}", "0:39", "rw,compress=no,subvol=/")
    folder = host.roots.sys / "fs/btrfs/some-id"
    (folder / "devices").mkdir(parents=True)
    (host.roots.sys / "fs/btrfs/features").mkdir()
    for device in devices:
        (folder / "devices" / device.name).symlink_to(device)
    write(host.roots.sys / "devices/virtual/bdi/btrfs-1/read_ahead_kb", "4096\n")
    (host.roots.sys / "class/bdi/btrfs-1").symlink_to(
        host.roots.sys / "devices/virtual/bdi/btrfs-1"
    )
    (folder / "bdi").symlink_to(host.roots.sys / "devices/virtual/bdi/btrfs-1")


def test_btrfs_on_one_partition(host: Host) -> None:
    disk = host.disk("sda", "8:0")
    btrfs(host, host.partition(disk, "sda1", "8:1"))
    device = host.resolve()
    assert (device.name, device.number) == ("sda", "8:0")
    assert device.partition == Partition("sda1", 8, 1)
    assert (device.file_system, device.bdi, device.read_ahead_kb) == ("btrfs", "btrfs-1", 4096)
    assert device.over_read_limit_bytes == 4096 * 1024
    assert device.traits == ()


def test_btrfs_over_two_disks(host: Host) -> None:
    btrfs(host, host.disk("sdb", "8:16"), host.disk("sdc", "8:32"))
    device = host.resolve()
    assert device.leaf_names == ("sdb", "sdc")
    # No block device joins them: the number is one that diskstats lacks.
    assert (device.name, device.number) == ("sdb+sdc", host.number)
    assert device.counters(" 8 16 sdb 1 0 7 1 1 1 1 1 0 1 1\n") is None


@pytest.mark.parametrize(
    ("option", "traits"),
    [("compress=zstd:3", ("compressed",)), ("compress-force=lzo", ("compressed",)), ("ssd", ())],
)
def test_btrfs_that_compresses(host: Host, option: str, traits: tuple[str, ...]) -> None:
    btrfs(host, host.disk("sdb", "8:16"))
    host.mount("btrfs", "/dev/sdb", "0:39", f"rw,{option}")
    assert host.resolve().traits == traits


def test_btrfs_that_sysfs_does_not_show(host: Host) -> None:
    host.mount("btrfs", "/dev/sdz", "0:39")
    with pytest.raises(CapabilityError, match=r"btrfs at / \(from /dev/sdz\) has no folder"):
        host.resolve()


def overlay(host: Host, options: str, point: Path | None = None) -> Path:
    """A view of a pool that lies in the layer `upper`; the fake kernel has its disk."""
    lower = host.pool.parent / "upper"
    (lower / "models").mkdir(parents=True)
    merged = host.pool / "models"
    merged.mkdir()
    host.mount_at(point or host.pool, "overlay", "overlay", options)
    return merged


def test_overlay_leads_to_the_layer_that_holds_the_file(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    upper, empty = host.pool.parent / "upper", host.pool.parent / "none"
    merged = overlay(host, f"rw,lowerdir={empty}:{empty},upperdir={upper},workdir=/w")
    (merged / "expert").write_bytes(b"123")
    (upper / "models/expert").write_bytes(b"123")
    disk = host.disk("vdx", "99:7")
    host.node(disk, "99:7")
    real = os.stat(upper).st_dev

    def fake_number(path: Path) -> str:
        return "0:39" if path.is_relative_to(host.pool) else "99:7"

    assert real
    monkeypatch.setattr("pagetier.bench.devices.resolve._file_number", fake_number)
    device = resolve(merged / "expert", host.roots)
    assert (device.name, device.lower_path) == ("vdx", str(upper / "models/expert"))
    (upper / "models/expert").write_bytes(b"another size")
    with pytest.raises(CapabilityError, match="in a layer that cannot be seen from here"):
        resolve(merged / "expert", host.roots)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("rw,lowerdir=lower", "cannot be seen from here, as in a container"),
        ("rw,lowerdir=/no/such,metacopy=on", "keeps names and data of a file apart"),
    ],
)
def test_overlay_that_hides_its_layers(host: Host, options: str, problem: str) -> None:
    merged = overlay(host, options)
    with pytest.raises(CapabilityError, match=problem):
        resolve(merged, host.roots)


@pytest.mark.parametrize("name", ["sdx", "/dev/sdx", "8:80"])
def test_a_disk_named_by_the_user(host: Host, name: str) -> None:
    host.mount("nfs4", "server:/pool", host.number)
    disk = host.disk("sdx", "8:80")
    host.node(disk, "8:80")
    folder = host.roots.sys / "class/block"
    folder.mkdir(parents=True)
    (folder / "sdx").symlink_to(disk)
    write(host.roots.sys / "class/bdi" / host.number / "read_ahead_kb", "16\n")
    device = resolve(host.pool, host.roots, [name])
    assert (device.name, device.given, device.file_system) == ("sdx", True, "nfs4")
    assert device.read_ahead_kb == 16
    assert device.bdi == host.number


def test_named_devices_are_counted_as_they_are(host: Host) -> None:
    disk = host.disk("sda", "8:0")
    part = host.partition(disk, "sda1", "8:1")
    write(part / "size", "5\n")
    host.node(disk, "8:0")
    host.node(part, "8:1")
    host.node(host.disk("sdb", "8:16"), "8:16")
    device = resolve(host.pool, host.roots, ["8:1"])
    assert (device.leaf_names, device.size_bytes, device.iostats) == (("sda1",), 5 * 512, True)
    both = resolve(host.pool, host.roots, ["8:1", "8:16", "8:1"])
    assert both.leaf_names == ("sda1", "sdb")
    assert both.number == host.number
    with pytest.raises(CapabilityError, match="sda1 is a part of sda, whose counters include it"):
        resolve(host.pool, host.roots, ["8:0", "8:1"])


def test_a_disk_that_is_not_there(host: Host) -> None:
    with pytest.raises(CapabilityError, match="--device sdq: this host has no such block device"):
        resolve(host.pool, host.roots, ["sdq"])


LINES = """   8  0 sda 1 2 3 4 5 6 7 8 9 10 11
   8  1 sda1 1 1 2 1 1 1 1 1 1 1 1
   8 16 sdb 100 200 300 400 500 600 700 800 900 1000 1100 1 2 3 4 5 6
"""


def test_counters_of_several_disks_are_summed(host: Host) -> None:
    md = host.disk("md0", host.number)
    host.node(host.stack(md, host.disk("sda", "8:0"), host.disk("sdb", "8:16")))
    device = host.resolve()
    counters = device.counters(LINES)
    assert counters is not None
    assert counters["name"] == "md0"
    assert [counters[name] for name in ("reads", "reads_merged", "sectors_read")] == [101, 202, 303]
    assert [counters[name] for name in ("writes", "writes_merged", "sectors_written")] == [
        505,
        606,
        707,
    ]
    assert [leaf["sectors_read"] for leaf in counters["leaves"]] == [3, 300]
    assert device.counters(LINES.partition("   8 16")[0]) is None
    assert device.scope_read_bytes({"8:0": 5, "8:16": 7, "9:0": 100}) == 12


def test_counters_of_one_disk_have_its_partition_beside_them(host: Host) -> None:
    disk = host.disk("sda", "8:0")
    host.node(host.partition(disk, "sda1", "8:1"), host.number)
    counters = host.resolve().counters(LINES)
    assert counters is not None
    assert (counters["name"], counters["sectors_read"]) == ("sda", 3)
    assert counters["partition"]["sectors_read"] == 2
    assert "leaves" not in counters


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
