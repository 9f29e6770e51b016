# SPDX-License-Identifier: Apache-2.0
"""Programs that ask for reclaim through memory.reclaim: idle page cache goes without pressure.

They leave no standing trace but an open file, if they keep one, and since 6.15 the counter
pgsteal_proactive: a name that is known, a descriptor on memory.reclaim, or pages stolen since boot.
Found and recorded, never stopped.
"""

import os
from pathlib import Path

from pagetier.bench.kernel.text import read_line

__all__ = ["read_reclaimers"]

# Command names as /proc/PID/comm shows them: cut at 15 bytes.
_NAMES = frozenset({"senpai", "memtierd", "fb-oomd", "uswapd"})
_FILE = "memory.reclaim"


def read_reclaimers(proc: Path) -> tuple[str, ...]:
    """One phrase for each process that was found, by process id."""
    found = []
    folders = (path for path in proc.glob("[0-9]*") if path.name.isdecimal())
    for folder in sorted(folders, key=lambda path: int(path.name)):
        name = read_line(folder / "comm")
        if name in _NAMES:
            found.append(f"{name} (pid {folder.name})")
        elif name is not None and _holds_the_file(folder):
            found.append(f"{name} (pid {folder.name}), which has a {_FILE} open")
    return tuple(found)


def _holds_the_file(folder: Path) -> bool:
    try:
        links = [os.readlink(folder / "fd" / number) for number in os.listdir(folder / "fd")]
    except OSError:  # it ended, closed one of them, or is another user's
        return False
    return any(link.endswith(f"/{_FILE}") for link in links)
