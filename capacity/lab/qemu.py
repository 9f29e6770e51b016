# SPDX-License-Identifier: Apache-2.0
"""The QEMU command line of a guest: pure functions of what the guest is to be.

Sizes are bytes.  The console (first serial port) goes to a file, the control channel (second) to
QEMU's stdout.  A disk error, a full host disk among them, is reported to the guest: QEMU's default
is to stop the guest without a word.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["PROGRAM", "Accelerator", "Disk", "Machine", "command", "memory_argument"]

Accelerator = Literal["kvm", "tcg"]
DiskKind = Literal["virtio", "nvme"]

PROGRAM = "qemu-system-x86_64"

# Memory of a q35 machine below 4 GiB (pc_q35_init in hw/i386/pc_q35.c): all of it up to 2.75 GiB,
# else 2 GiB, and the rest above 4 GiB.
_LOW_LIMIT_BYTES = 0xB0000000
_SPLIT_LOW_BYTES = 0x80000000
_HIGH_START_BYTES = 1 << 32

_MIB = 1 << 20

# What keeps an emulated boot short.  Nothing here touches memory management.
_QUIET = ("nokaslr", "mitigations=off", "no_timer_check", "tsc=reliable")
_DEVICES = {"virtio": "virtio-blk-pci,drive=disk", "nvme": "nvme,drive=disk,serial=pagetier"}

_PROCESSOR: dict[Accelerator, tuple[str, ...]] = {
    "kvm": ("-accel", "kvm", "-cpu", "host"),
    # One thread for all CPUs: with a thread each, QEMU 7.2 was seen to execute a breakpoint that
    # the kernel had in its own code while patching it (`Oops: int3`), once in about 15 boots; a
    # static key of the MGLRU or the memory controller is switched in every campaign.  Fixed page
    # tables of four levels are faster to emulate than five.
    "tcg": ("-accel", "tcg,thread=single", "-cpu", "max,la57=off"),
}


@dataclass(frozen=True, slots=True)
class Disk:
    """A raw image file and how the guest sees it."""

    image: Path
    kind: DiskKind = "virtio"


@dataclass(frozen=True, slots=True)
class Machine:
    """The hardware of a guest and its kernel's own options."""

    memory_bytes: int
    cpus: int
    accelerator: Accelerator
    disk: Disk | None
    kernel_options: tuple[str, ...] = ()


def memory_argument(usable_bytes: int, memory_bytes: int) -> int:
    """The mem= that leaves `usable_bytes` of a machine: it cuts at an address, not at an amount."""
    low_bytes = memory_bytes if memory_bytes < _LOW_LIMIT_BYTES else _SPLIT_LOW_BYTES
    if usable_bytes <= low_bytes:
        return usable_bytes
    return usable_bytes - low_bytes + _HIGH_START_BYTES


def command(machine: Machine, *, vmlinuz: Path, initramfs: Path, console: Path) -> list[str]:
    """argv of QEMU."""
    return [
        *(PROGRAM, "-name", "pagetier-lab", "-nodefaults", "-no-user-config", "-display", "none"),
        *("-no-reboot", "-machine", "q35", *_PROCESSOR[machine.accelerator]),
        *("-smp", str(machine.cpus), "-m", f"size={machine.memory_bytes // _MIB}M"),
        *("-kernel", str(vmlinuz), "-initrd", str(initramfs)),
        *("-append", _kernel_command_line(machine)),
        *("-chardev", f"file,id=console,path={_escaped(console)}", "-serial", "chardev:console"),
        *("-chardev", "stdio,id=control,signal=off", "-serial", "chardev:control"),
        *("-device", "virtio-rng-pci"),
        *_host_share(),
        *([] if machine.disk is None else _disk(machine.disk)),
    ]


def _kernel_command_line(machine: Machine) -> str:
    # panic=-1 with -no-reboot ends QEMU at a panic.
    fixed = ("console=ttyS0", "panic=-1", *_QUIET)
    return " ".join((*fixed, *machine.kernel_options))


def _host_share() -> list[str]:
    share = "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"
    return ["-fsdev", share, "-device", "virtio-9p-pci,fsdev=host,mount_tag=host"]


def _disk(disk: Disk) -> list[str]:
    options = "if=none,id=disk,format=raw,cache=writeback,discard=unmap,werror=report,rerror=report"
    drive = f"{options},file={_escaped(disk.image)}"
    return ["-drive", drive, "-device", _DEVICES[disk.kind]]


def _escaped(path: Path) -> str:
    """QEMU's option parser takes a doubled comma for one."""
    return str(path).replace(",", ",,")
