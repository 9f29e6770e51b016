# SPDX-License-Identifier: Apache-2.0
"""Where the lab keeps kernels: one folder per release below a cache of this user's own.

    CACHE/kernels/RELEASE/{vmlinuz, kernel.json, modules/*.ko}
    CACHE/busybox

Root uses /var/cache/pagetier/lab; others the XDG cache.  It may be deleted at any time: `pagetier
lab setup` fills it again.
"""

import os
from pathlib import Path

__all__ = ["cache_dir"]


def cache_dir() -> Path:
    """The cache of this user; it need not exist."""
    if os.geteuid() == 0:
        return Path("/var/cache/pagetier/lab")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pagetier" / "lab"
