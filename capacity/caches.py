# SPDX-License-Identifier: Apache-2.0
"""Dropping the page cache of the whole host: clean pages alone, no slab.

On large machines the kernel can be at it for minutes and cannot be stopped, so a process of its own
does it and is waited for only so long.
"""

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

from pagetier.capacity import caches_process
from pagetier.capacity.errors import CapacityError
from pagetier.cgroups.roots import Roots

__all__ = ["drop_page_cache"]

_TIMEOUT_S = 300.0
_SCRIPT = str(Path(caches_process.__file__))
_REMEDIES = {
    errno.ENOENT: "mount procfs there",
    errno.EROFS: "/proc/sys is mounted read-only, as in most containers: run on the host itself, "
    "or in a booted kernel with `pagetier lab run`",
    errno.EACCES: "run as root on the host itself",
    errno.EPERM: "run as root on the host itself",
}


def drop_page_cache(roots: Roots, timeout_s: float = _TIMEOUT_S) -> None:
    """Write dirty pages out and drop the clean ones; raises CapacityError when that is refused."""
    path = roots.proc / "sys/vm/drop_caches"
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", _SCRIPT, str(path)],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the harness
    )
    try:
        status = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        raise CapacityError(
            f"{path}: dropping the page cache took more than {timeout_s:g} s: write 1 to it once "
            "by hand while the host is idle, then try again"
        ) from None
    finally:
        _end(process)
    if status != 0:
        remedy = _REMEDIES.get(status, "look into the kernel log")
        reason = os.strerror(status) if status > 0 else f"ended by signal {-status}"
        raise CapacityError(f"{path}: the page cache cannot be dropped: {reason}: {remedy}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """A process inside of the kernel goes when that is done with it, however long it takes."""
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
