# SPDX-License-Identifier: Apache-2.0
"""A booted kernel for tests: the gate, and a guest that runs any program."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pagetier.bench.lab.run import BOOT_PATIENCE_S, guest_environment
from pagetier.capacity.lab.accelerator import choose_accelerator
from pagetier.capacity.lab.cache import cache_dir
from pagetier.capacity.lab.disk import make_disk
from pagetier.capacity.lab.doctor import examine
from pagetier.capacity.lab.guest import Job, make_initramfs
from pagetier.capacity.lab.kernels import find_kernel
from pagetier.capacity.lab.machine import Ending, Guest, Patience
from pagetier.capacity.lab.qemu import Disk, Machine, command
from pagetier.cgroups.roots import Roots
from tests.conftest import require

KERNEL = "6.12"
SILENCE_S = 240.0
MEMORY_BYTES = 3 << 30  # the balloons of the live tests leave at least 2 GiB


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a guest's program ended, and its stderr."""

    ending: Ending
    lines: list[str]


RunInGuest = Callable[[Sequence[str]], Outcome]


@pytest.fixture(scope="session")
def lab() -> None:
    """QEMU, its tools and the kernels are there: `pagetier lab setup` was run."""
    missing = [need for need in examine(cache_dir(), Roots()) if need.ok is False]
    require(not missing, "; ".join(f"{need.name}: {need.remedy}" for need in missing))


@pytest.fixture
def run_in_guest(lab: None, tmp_path: Path) -> RunInGuest:
    """Boot, run one program with the harness' environment, power off."""

    def run(argv: Sequence[str]) -> Outcome:
        cache = cache_dir()
        kernel, busybox = find_kernel(KERNEL, cache), cache / "busybox"
        accelerator = choose_accelerator(kernel, busybox, cache, Roots())
        empty, image = tmp_path / "empty", tmp_path / "disk.img"
        initramfs, console = tmp_path / "initramfs", tmp_path / "console.log"
        empty.mkdir()
        make_disk(image, 1 << 30, empty)
        environment = {**guest_environment(), "PAGETIER_REQUIRE_LIVE": "1"}
        initramfs.write_bytes(make_initramfs(kernel, busybox, Job(argv, environment)))
        machine = Machine(MEMORY_BYTES, 2, accelerator, Disk(image))
        qemu = command(machine, vmlinuz=kernel.vmlinuz, initramfs=initramfs, console=console)
        lines: list[str] = []
        with Guest(qemu, console, Patience(BOOT_PATIENCE_S[accelerator], SILENCE_S)) as guest:
            return Outcome(guest.run(lines.append), lines)

    return run
