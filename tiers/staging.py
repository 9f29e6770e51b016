# SPDX-License-Identifier: Apache-2.0
"""A folder under construction beside its target, which shows under its own name only when whole.

The staging folder carries a marker file that its maker holds a lock on.  The kernel drops the lock
however the maker ends, kill -9 included, and is not fooled by a process id that is in use again or
belongs to another container: a staging folder with our marker and no lock is a dead maker's, and
the only thing besides its own staging that this module removes.
"""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pagetier.analysis.errors import InputError
from pagetier.tiers.filesystem import exists, open_beneath, opened_directory

__all__ = ["Staging", "publish", "remove_abandoned", "staged"]

MARKER_NAME = ".pagetier-staging"
FORMAT = "pagetier-staging"
MAX_MARKER_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Staging:
    """A staging folder of this process: `fd` is the folder, `parent_fd` where it stands."""

    parent_fd: int
    fd: int
    name: str
    target: str


@contextmanager
def staged(parent_fd: int, target: str) -> Iterator[Staging]:
    """A new staging folder for `target`, removed at the end unless it was published."""
    token = secrets.token_hex(8)
    name = f"{_prefix(target)}{token}"
    os.mkdir(name, 0o755, dir_fd=parent_fd)
    with contextlib.ExitStack() as stack:
        fd = stack.enter_context(opened_directory(name, parent_fd))
        marker_fd = open_beneath(fd, MARKER_NAME, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        stack.callback(os.close, marker_fd)
        # The lock comes before the text: a marker that can be read is locked or a dead maker's.
        fcntl.flock(marker_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(marker_fd, _marker(target, token, os.getpid()))
        try:
            yield Staging(parent_fd, fd, name, target)
        finally:
            _remove_if_ours(parent_fd, name, os.fstat(fd))


def publish(staging: Staging) -> None:
    """Gives the finished staging folder its target's name; durable when this returns."""
    if exists(staging.parent_fd, staging.target):
        raise InputError(f"{staging.target}: appeared while it was being made; name another path")
    os.fsync(staging.fd)
    # Without its marker the folder could not be cleaned up after a crash, so the name comes first;
    # a marker in a finished folder is harmless.
    os.rename(
        staging.name,
        staging.target,
        src_dir_fd=staging.parent_fd,
        dst_dir_fd=staging.parent_fd,
    )
    os.unlink(MARKER_NAME, dir_fd=staging.fd)
    os.fsync(staging.fd)
    os.fsync(staging.parent_fd)


def remove_abandoned(parent_fd: int, target: str) -> list[str]:
    """Removes what dead makers of `target` left in the folder; returns the names."""
    removed = []
    for name in sorted(os.listdir(parent_fd)):
        if name.startswith(_prefix(target)) and _is_abandoned(parent_fd, name, target):
            shutil.rmtree(name, dir_fd=parent_fd)
            removed.append(name)
    return removed


def _prefix(target: str) -> str:
    return f".{target}.pagetier-staging-"


def _marker(target: str, token: str, pid: int) -> bytes:
    # The process id is for people: the lock says whether the maker lives.
    fields = {"format": FORMAT, "target": target, "token": token, "pid": pid}
    return json.dumps(fields).encode()


def _is_abandoned(parent_fd: int, name: str, target: str) -> bool:
    """Whether this is a staging folder by its marker, ours, and no process is at work on it."""
    try:
        with opened_directory(name, parent_fd) as fd:
            if os.fstat(fd).st_uid != os.geteuid():
                return False
            marker_fd = open_beneath(fd, MARKER_NAME, os.O_RDWR)
            try:
                return _is_free_marker(marker_fd, target, name.removeprefix(_prefix(target)))
            finally:
                os.close(marker_fd)
    except OSError:  # not a folder, no marker, or gone by now: nothing to remove
        return False


def _is_free_marker(marker_fd: int, target: str, token: str) -> bool:
    if not stat.S_ISREG(os.fstat(marker_fd).st_mode):
        return False
    try:
        fcntl.flock(marker_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fields = json.loads(os.read(marker_fd, MAX_MARKER_BYTES))
    except (BlockingIOError, ValueError):
        return False
    if not isinstance(fields, dict):
        return False
    return (fields.get("format"), fields.get("target"), fields.get("token")) == (
        FORMAT,
        target,
        token,
    )


def _remove_if_ours(parent_fd: int, name: str, own: os.stat_result) -> None:
    try:
        found = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
    except FileNotFoundError:  # published
        return
    if os.path.samestat(found, own):
        # Never follows a link: CPython walks by descriptor (shutil.rmtree.avoids_symlink_attacks).
        shutil.rmtree(name, dir_fd=parent_fd)
