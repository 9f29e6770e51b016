# SPDX-License-Identifier: Apache-2.0
"""The command line of QEMU, and where its memory lies."""

from pathlib import Path

import pytest

from pagetier.capacity.lab.qemu import Disk, Machine, command, memory_argument

GIB = 1 << 30


@pytest.mark.parametrize(
    ("usable", "memory", "argument"),
    [
        (GIB, 2 * GIB, GIB),
        (2 * GIB, 2 * GIB, 2 * GIB),
        (0xB0000000 - 1, 0xB0000000 - 1, 0xB0000000 - 1),  # all of it below 4 GiB
        (2 * GIB, 3 * GIB, 2 * GIB),
        (2 * GIB + 4096, 3 * GIB, 4 * GIB + 4096),  # the rest starts there
        (3 * GIB, 8 * GIB, 5 * GIB),
    ],
)
def test_mem_is_an_address(usable: int, memory: int, argument: int) -> None:
    assert memory_argument(usable, memory) == argument


def argv(machine: Machine) -> list[str]:
    where = {
        "vmlinuz": Path("/k/vmlinuz"),
        "initramfs": Path("/i"),
        "console": Path("/a,b/console"),
    }
    return command(machine, **where)


def value(words: list[str], option: str) -> list[str]:
    return [words[n + 1] for n, word in enumerate(words) if word == option]


def test_a_guest_writes_its_disk_and_nothing_else() -> None:
    words = argv(Machine(3 * GIB, 2, "tcg", Disk(Path("/out,x/disk.img")), ("mem=1024K", "a.b=7")))
    (share,) = value(words, "-fsdev")
    assert "readonly=on" in share.split(",")
    (drive,) = value(words, "-drive")
    assert drive.endswith("file=/out,,x/disk.img")
    assert {"werror=report", "rerror=report"} <= set(drive.split(","))
    assert "file,id=console,path=/a,,b/console" in value(words, "-chardev")
    (append,) = value(words, "-append")
    assert append.split()[-2:] == ["mem=1024K", "a.b=7"]
    assert "panic=-1" in append.split()
    assert "-no-reboot" in words
    assert value(words, "-m") == ["size=3072M"]


def test_accelerator_and_disk_are_options() -> None:
    emulated = argv(Machine(GIB, 2, "tcg", Disk(Path("/d"))))
    assert value(emulated, "-accel") == ["tcg,thread=single"]
    assert "virtio-blk-pci,drive=disk" in value(emulated, "-device")
    under_kvm = argv(Machine(GIB, 4, "kvm", Disk(Path("/d"), "nvme")))
    assert (value(under_kvm, "-accel"), value(under_kvm, "-cpu")) == (["kvm"], ["host"])
    assert any(device.startswith("nvme,") for device in value(under_kvm, "-device"))
    assert value(argv(Machine(GIB, 1, "kvm", None)), "-drive") == []
