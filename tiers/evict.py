# SPDX-License-Identifier: Apache-2.0
"""Drops a pool from the page cache and proves it cold, or says why it is not.

``POSIX_FADV_DONTNEED`` promises nothing: it leaves pages that are mapped, locked, dirty or still
being read ahead.  So every file is counted again afterwards, and the drop repeated until no page is
left.  It takes the pages from everybody who uses them: ``require_unmapped`` asks first whether
somebody does.  Counts are of base pages.  The owner of the files needs no privilege and nothing
below /proc/sys; for others the count is unknown and nothing is proven.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from pagetier.analysis.errors import InputError
from pagetier.native.residency import page_bytes, resident_pages
from pagetier.tiers.filesystem import require_device_backed
from pagetier.tiers.mappings import Holders, find_holders
from pagetier.tiers.pool import Pool

__all__ = ["Eviction", "evict_pool", "require_unmapped", "resident_bytes"]

MAX_ATTEMPTS = 8
FIRST_PAUSE_SECONDS = 0.01  # doubled each time: 1.3 s in all
UNKNOWN = (
    "residency unknown: the kernel tells it only to the owner of the files, or who may write them; "
    "run as the owner of the pool or as root"
)


@dataclass(frozen=True, slots=True)
class Eviction:
    """Outcome of an eviction; page counts are None when the kernel would not tell.

    `attempts` are the rounds of dropping, 0 for a pool that was cold; `reason` is why it is not
    `proven`, None when it is.
    """

    resident_before_pages: int | None
    resident_after_pages: int | None
    attempts: int
    proven: bool
    reason: str | None


def evict_pool(pool: Pool, proc: Path, max_attempts: int = MAX_ATTEMPTS) -> Eviction:
    """Drops all files of the pool from the page cache; InputError when it lives in memory."""
    try:
        return _evict(pool, proc, max_attempts)
    except OSError as error:
        raise InputError(
            f"{pool.root}: could not be evicted ({error.strerror}); check its device and try again"
        ) from error


def _evict(pool: Pool, proc: Path, max_attempts: int) -> Eviction:
    with pool.opened() as root_fd:
        for name in pool.sample_files():
            with pool.opened_file(root_fd, name) as fd:
                require_device_backed(fd, pool.root / name)
        before = left = _resident_files(pool, root_fd)
        attempts = 0
        while left != {} and attempts < max_attempts:
            _drop(pool, root_fd, pool.files() if left is None else tuple(left), attempts)
            attempts += 1
            left = _resident_files(pool, root_fd)
            if left is None:
                break
        reason = None if left == {} else _reason(pool, root_fd, proc, left)
    return Eviction(_sum(before), _sum(left), attempts, reason is None, reason)


def require_unmapped(pool: Pool, proc: Path) -> None:
    """InputError when another process has a file of the pool mapped: an eviction would hurt it."""
    with pool.opened() as root_fd:
        holders = _holders(pool, root_fd, proc, pool.files())
    others = [h for h in holders.found if h.how != "open" and h.pid != os.getpid()]
    if others:
        raise InputError(
            f"{pool.root}: {others[0]}, which an eviction would slow down; stop that process first"
        )


def resident_bytes(pool: Pool) -> int | None:
    """Bytes of the page cache that hold the pool, whole pages; None when unknown."""
    with pool.opened() as root_fd:
        pages = _sum(_resident_files(pool, root_fd))
    return None if pages is None else pages * page_bytes()


def _sum(resident: dict[str, int] | None) -> int | None:
    return None if resident is None else sum(resident.values())


def _resident_files(pool: Pool, root_fd: int) -> dict[str, int] | None:
    """Pages of each file that has any in the cache; None as soon as one is unknown."""
    resident = {}
    for name in pool.files():
        with pool.opened_file(root_fd, name) as fd:
            pages = resident_pages(fd, 0, os.fstat(fd).st_size)
        if pages is None:
            return None
        if pages:
            resident[name] = pages
    return resident


def _drop(pool: Pool, root_fd: int, names: tuple[str, ...], attempt: int) -> None:
    if attempt:
        # What stayed is often only in flight.
        time.sleep(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
    for name in names:
        with pool.opened_file(root_fd, name) as fd:
            if attempt:
                # Dirty pages stay, too.  Not in the first round: an fsync of a clean file may
                # still flush the device, once per file.
                os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _reason(pool: Pool, root_fd: int, proc: Path, left: dict[str, int] | None) -> str:
    if left is None:
        return UNKNOWN
    holders = _holders(pool, root_fd, proc, tuple(left))
    causes = [f"still {holder}" for holder in holders.found if holder.pid != os.getpid()]
    causes += [f"still {h} itself" for h in holders.found if h.pid == os.getpid()]
    if not causes:
        causes = ["no process was found that holds it: dirty, or in use by a loop device"]
    if holders.closed_processes:
        causes.append(f"{holders.closed_processes} processes could not be looked into")
    where = f"{len(left)} of {len(pool.files())} files"
    return f"pages that stay: {sum(left.values())}, in {where}: {', '.join(causes)}"


def _holders(pool: Pool, root_fd: int, proc: Path, names: tuple[str, ...]) -> Holders:
    files = set()
    for name in names:
        with pool.opened_file(root_fd, name) as fd:
            status = os.fstat(fd)
        files.add((status.st_dev, status.st_ino))
    return find_holders(proc, frozenset(files), frozenset(str(pool.root / n) for n in names))
