# SPDX-License-Identifier: Apache-2.0
"""The guest's disk: a sparse ext4 image, made and read from outside by e2fsprogs, never mounted.

Results leave a guest on this disk alone, whether it ended well or died: the journal is replayed
(e2fsck) and the folder copied out (debugfs), which needs no root and no loop device.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pagetier.capacity.errors import CapacityError
from pagetier.capacity.lab.programs import find_program

__all__ = ["PROGRAMS", "copy_out", "make_disk", "replay_journal"]

PROGRAMS = ("mkfs.ext4", "e2fsck", "debugfs")

# e2fsck(8): 1 and 2 say that something was corrected, as a replayed journal is.
_CORRECTED = 3
# Bytes per inode: pools are few large files, and fewer inodes make a faster mkfs.
_INODE_RATIO = 65536


def make_disk(image: Path, size_bytes: int, content: Path) -> None:
    """A new image of `size_bytes` that holds what is in the folder `content`."""
    staged = image.with_name(f".{image.name}.new")
    try:
        with staged.open("wb") as file:
            file.truncate(size_bytes)
        options = ("-i", str(_INODE_RATIO), "-m", "0", "-d", str(content))
        _run(
            "mkfs.ext4",
            "-q",
            "-F",
            "-E",
            "lazy_itable_init=0,root_owner=0:0",
            *options,
            str(staged),
        )
        os.replace(staged, image)
    except OSError as error:
        raise CapacityError(f"{image}: cannot make the guest's disk: {error.strerror}") from None
    finally:
        staged.unlink(missing_ok=True)


def replay_journal(image: Path) -> None:
    """Make an image that was not unmounted consistent again."""
    _run("e2fsck", "-f", "-y", str(image), allowed=_CORRECTED)


def copy_out(image: Path, folder: str, into: Path) -> Path | None:
    """Copy a folder below the image's root into the empty folder `into`; None when it has none.

    Raises CapacityError when the copy is not whole.
    """
    # Names inside debugfs' command language are ours; the host's path is its working directory.
    answer = _run("debugfs", "-R", f"rdump /{folder} .", str(image.resolve()), cwd=into)
    if not (into / folder).is_dir():
        return None
    complaints = [line for line in answer.splitlines() if "while" in line and "owner" not in line]
    if complaints:
        raise CapacityError(f"{image}: cannot copy {folder} to {into}: {complaints[0]}")
    return into / folder


def _run(name: str, *arguments: str, allowed: int = 0, cwd: Path | None = None) -> str:
    program = find_program(name)
    if program is None:
        raise CapacityError(f"{name} is not installed: on Debian, install e2fsprogs")
    done = _complete([program, *arguments], cwd)
    if done.returncode & ~allowed:
        lines = done.stdout.strip().splitlines()
        detail = lines[-1] if lines else "it said nothing"
        raise CapacityError(f"{name} {arguments[-1]} ended with status {done.returncode}: {detail}")
    return done.stdout


def _complete(argv: Sequence[str], cwd: Path | None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        argv,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
