# SPDX-License-Identifier: Apache-2.0
"""What the lab lacks on this host, with a remedy for each gap.  Looks only; boots nothing."""

import platform
from dataclasses import dataclass
from pathlib import Path

from pagetier.capacity.lab.accelerator import known_accelerator
from pagetier.capacity.lab.disk import PROGRAMS
from pagetier.capacity.lab.kernels import Kernel, cached_kernels
from pagetier.capacity.lab.programs import find_program
from pagetier.capacity.lab.qemu import PROGRAM
from pagetier.cgroups.roots import Roots

__all__ = ["Need", "examine"]

SETUP = "run `pagetier lab setup`"
DEFAULT_KERNELS = ("6.12", "6.1")


@dataclass(frozen=True, slots=True)
class Need:
    """One thing the lab needs; `ok` is None where a boot would have to tell."""

    name: str
    ok: bool | None
    found: str
    remedy: str


def examine(cache: Path, roots: Roots) -> list[Need]:
    """Every need, in the order in which to see to them."""
    return [
        _machine(),
        _program(PROGRAM, "qemu-system-x86"),
        *(_program(name, "e2fsprogs") for name in PROGRAMS),
        _busybox(cache),
        *(_kernel(version, cached_kernels(cache), cache) for version in DEFAULT_KERNELS),
        _accelerator(cache, roots),
    ]


def _machine() -> Need:
    found = platform.machine()
    ok = found == "x86_64"
    return Need("x86-64", ok, found, "" if ok else "use an x86-64 host: guests are x86-64")


def _program(name: str, package: str) -> Need:
    path = find_program(name)
    remedy = f"install it (`apt-get install {package}` on Debian)"
    return Need(name, path is not None, path or "not installed", "" if path else remedy)


def _busybox(cache: Path) -> Need:
    path = cache / "busybox"
    ok = path.exists()
    return Need("busybox", ok, str(path) if ok else f"not in {cache}", "" if ok else SETUP)


def _kernel(version: str, kernels: list[Kernel], cache: Path) -> Need:
    for kernel in kernels:
        if kernel.release.startswith((f"{version}.", f"{version}-")):
            return Need(f"kernel {version}", True, kernel.release, "")
    return Need(f"kernel {version}", False, f"not in {cache}", SETUP)


def _accelerator(cache: Path, roots: Roots) -> Need:
    known = known_accelerator(cache, roots)
    if known == "kvm":
        return Need("kvm", True, "guests run under KVM", "")
    if known == "tcg":
        return Need(
            "kvm",
            None,
            "not usable here: guests are emulated, bytes and counters count, times do not",
            "give access to a /dev/kvm that works for clocks that can be compared",
        )
    return Need("kvm", None, "not probed yet", "the first `pagetier lab run` finds out")
