# SPDX-License-Identifier: Apache-2.0
"""Whether guests can run under KVM here, by booting one.

/dev/kvm can exist and hang at boot (nested hosts), so its presence proves nothing: a kernel that
has only to say that it is up gets a short time, else guests are emulated.  The answer is kept in
the cache for as long as host boot, QEMU and the device's owner stay the same.
"""

import json
import os
import tempfile
from pathlib import Path

from pagetier.capacity.lab.guest import PROBE, Job, make_initramfs
from pagetier.capacity.lab.kernels import Kernel
from pagetier.capacity.lab.machine import Guest, GuestFailure, Patience
from pagetier.capacity.lab.qemu import Accelerator, Machine, command
from pagetier.cgroups.roots import Roots

__all__ = ["choose_accelerator", "known_accelerator"]

_DEVICE = "/dev/kvm"
_PROBE_TIMEOUT_S = 15.0
_PROBE_MEMORY_BYTES = 256 << 20


def known_accelerator(cache: Path, roots: Roots) -> Accelerator | None:
    """The answer of an earlier probe on this boot; None when there was none."""
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        return "tcg"
    try:
        answer = json.loads((cache / "accelerator.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    if answer.get("boot_id") != _boot_id(roots) or answer.get("accelerator") not in ("kvm", "tcg"):
        return None
    known: Accelerator = answer["accelerator"]
    return known


def choose_accelerator(kernel: Kernel, busybox: Path, cache: Path, roots: Roots) -> Accelerator:
    """KVM when a probe guest comes up under it, emulation otherwise."""
    known = known_accelerator(cache, roots)
    if known is not None:
        return known
    found: Accelerator = "kvm" if _comes_up(kernel, busybox) else "tcg"
    answer = {"boot_id": _boot_id(roots), "accelerator": found}
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "accelerator.json").write_text(json.dumps(answer))
    return found


def _comes_up(kernel: Kernel, busybox: Path) -> bool:
    machine = Machine(_PROBE_MEMORY_BYTES, 1, "kvm", None, (PROBE,))
    with tempfile.TemporaryDirectory(prefix="pagetier-kvm-") as folder:
        initramfs, console = Path(folder, "initramfs"), Path(folder, "console.log")
        initramfs.write_bytes(make_initramfs(kernel, busybox, Job((), {})))
        argv = command(machine, vmlinuz=kernel.vmlinuz, initramfs=initramfs, console=console)
        try:
            with Guest(argv, console, Patience(_PROBE_TIMEOUT_S, _PROBE_TIMEOUT_S)) as guest:
                guest.run(lambda _line: None)
        except GuestFailure:
            return False
    return True


def _boot_id(roots: Roots) -> str:
    return (roots.proc / "sys/kernel/random/boot_id").read_text().strip()
