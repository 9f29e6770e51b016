# SPDX-License-Identifier: Apache-2.0
"""Makes a pool of a given geometry, whole or not at all.

Everything is checked before the first byte: geometry, target, kind of file system, free space and
inodes.  The pool is filled in a staging folder beside its target, brought to the device, dropped
from the page cache (a fresh pool is cold, as far as the kernel obliges) and only then renamed; the
manifest is its last file.  Any failure is an ``InputError`` and leaves nothing behind.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pagetier.analysis.errors import InputError
from pagetier.analysis.units import format_bytes
from pagetier.native import content
from pagetier.tiers.filesystem import (
    exists,
    open_beneath,
    opened_directory,
    require_device_backed,
)
from pagetier.tiers.manifest import MANIFEST_NAME, PoolManifest, encode_manifest, make_manifest
from pagetier.tiers.pool import FLAT_NAME, UniformPool, layer_name, locate, open_pool
from pagetier.tiers.staging import Staging, publish, remove_abandoned, staged
from pagetier.tiers.workers import Claims, ProgressCallback, run_threads

__all__ = ["create_pool"]

# What a thread writes before it waits for the device.  Bounds the dirty pages of a large pool, and
# lets the file system commit many small files at once: one fsync per file as it is written costs a
# journal commit each.
BATCH_BYTES = 64 << 20
BATCH_FILES = 256
# One thread waits for the device while another computes; more than four only add seeks.
MAX_THREADS = 4
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
DIRECTORY_ENTRY_BYTES = 64


def create_pool(
    path: Path,
    layers: int,
    experts: int,
    expert_bytes: int,
    layout: str = "files",
    seed: int = 0,
    on_progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None,
) -> UniformPool:
    """Makes a pool of `layers` x `experts` experts at `path`, which must not exist.

    Progress is reported from the calling thread, about ten times a second.  Setting `cancel` ends
    the work with an InputError.
    """
    manifest = make_manifest(layers, experts, expert_bytes, layout, seed)
    try:
        with opened_directory(path.parent) as parent_fd:
            _require_room(parent_fd, path, manifest)
            with staged(parent_fd, path.name) as staging:
                _Filling(manifest, staging.fd, on_progress, cancel).run()
                _finish(staging, manifest)
    except OSError as error:
        raise _failure(path, error) from error
    pool = open_pool(path)
    assert isinstance(pool, UniformPool)
    return pool


def _failure(target: Path, error: OSError) -> InputError:
    remedies = {
        errno.ENOENT: "make the folder that is to hold it first",
        errno.ENOSPC: "free some space or choose another disk",
        errno.EDQUOT: "free some space or choose another disk",
    }
    remedy = remedies.get(error.errno or 0, "choose another place")
    return InputError(
        f"{target}: the pool could not be made ({error.strerror}) and nothing was left there; "
        f"{remedy}"
    )


def _require_room(parent_fd: int, target: Path, manifest: PoolManifest) -> None:
    if exists(parent_fd, target.name or "."):
        raise InputError(
            f"{target}: exists already and is never overwritten; name another path or remove it"
        )
    require_device_backed(parent_fd, target.parent)
    remove_abandoned(parent_fd, target.name)
    free = os.statvfs(parent_fd)
    free_bytes = free.f_bavail * free.f_frsize
    needed_bytes = _needed_bytes(manifest, free.f_frsize)
    if needed_bytes > free_bytes:
        raise InputError(
            f"{target}: the pool needs {format_bytes(needed_bytes)} and its file system has "
            f"{format_bytes(free_bytes)} free; free some space or choose another disk"
        )
    needed_files = _needed_files(manifest)
    # f_files is 0 where inodes are made on demand (btrfs).
    if free.f_files and needed_files > free.f_favail:
        raise InputError(
            f"{target}: the pool needs {needed_files} files and its file system has room for "
            f"{free.f_favail}; use the flat layout or choose another disk"
        )


def _needed_files(manifest: PoolManifest) -> int:
    if manifest.layout == "flat":
        return 4  # experts, manifest, marker, folder
    return manifest.total_experts + manifest.num_layers + 3


def _needed_bytes(manifest: PoolManifest, block_bytes: int) -> int:
    experts = manifest.total_experts
    if manifest.layout == "flat":
        return _rounded(experts * manifest.expert_bytes, block_bytes) + 4 * block_bytes
    layer_bytes = _rounded(manifest.num_experts * DIRECTORY_ENTRY_BYTES, block_bytes)
    return (
        experts * _rounded(manifest.expert_bytes, block_bytes)
        + manifest.num_layers * layer_bytes
        + 4 * block_bytes
    )


def _rounded(length: int, unit: int) -> int:
    return -(-length // unit) * unit


@dataclass(slots=True)
class _Batch:
    """Written ranges on their way to the device; ended, they are there and out of the cache."""

    own_files: list[int] = field(default_factory=list)
    ranges: list[tuple[int, int, int]] = field(default_factory=list)
    pending_bytes: int = 0

    def add(self, fd: int, offset: int, length: int) -> None:
        # On dirty pages DONTNEED starts the writeback and does not wait for it.
        os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)
        self.ranges.append((fd, offset, length))
        self.pending_bytes += length
        if self.pending_bytes >= BATCH_BYTES or len(self.ranges) >= BATCH_FILES:
            self.end()

    def end(self) -> None:
        for fd in dict.fromkeys(fd for fd, _, _ in self.ranges):
            os.fsync(fd)
        for fd, offset, length in self.ranges:
            os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)
        self.close()

    def close(self) -> None:
        for fd in self.own_files:
            os.close(fd)
        self.own_files.clear()
        self.ranges.clear()
        self.pending_bytes = 0


class _Filling:
    """The writing of all experts into a staging folder, by several threads."""

    def __init__(
        self,
        manifest: PoolManifest,
        root_fd: int,
        on_progress: ProgressCallback | None,
        cancel: threading.Event | None,
    ) -> None:
        self._manifest = manifest
        self._root_fd = root_fd
        self._on_progress = on_progress
        self._cancel = cancel
        self._claims = Claims(manifest.total_experts)
        self._transfers: list[content.Transfer] = []
        self._total_bytes = manifest.total_experts * manifest.expert_bytes

    def run(self) -> None:
        threads = max(2, min(MAX_THREADS, os.cpu_count() or 1))
        with self._prepared() as flat_fd:
            writer = self._file_writer if flat_fd is None else self._flat_writer(flat_fd)
            run_threads(writer, threads, self._tick, self._stop)

    @contextmanager
    def _prepared(self) -> Iterator[int | None]:
        """The folders of the layers, or the one file of a flat pool."""
        if self._manifest.layout == "files":
            for layer in range(self._manifest.num_layers):
                os.mkdir(layer_name(layer), 0o755, dir_fd=self._root_fd)
            yield None
            return
        fd = open_beneath(self._root_fd, FLAT_NAME, NEW_FILE)
        try:
            os.posix_fallocate(fd, 0, self._total_bytes)
            yield fd
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)

    def _file_writer(self) -> None:
        batch, transfer = _Batch(), self._new_transfer()
        size = self._manifest.expert_bytes
        try:
            for expert in self._claims:
                fd = open_beneath(self._root_fd, locate(self._manifest, expert)[0], NEW_FILE)
                batch.own_files.append(fd)
                os.posix_fallocate(fd, 0, size)
                content.write(fd, 0, size, self._manifest.seed, expert, transfer)
                batch.add(fd, 0, size)
            batch.end()
        finally:
            batch.close()

    def _flat_writer(self, fd: int) -> Callable[[], None]:
        def write() -> None:
            batch, transfer = _Batch(), self._new_transfer()
            size = self._manifest.expert_bytes
            for expert in self._claims:
                offset = locate(self._manifest, expert)[1]
                content.write(fd, offset, size, self._manifest.seed, expert, transfer)
                batch.add(fd, offset, size)
            batch.end()

        return write

    def _new_transfer(self) -> content.Transfer:
        transfer = content.Transfer()
        self._transfers.append(transfer)
        return transfer

    def _tick(self) -> None:
        if self._on_progress is not None:
            done = sum(transfer.written_bytes for transfer in self._transfers)
            self._on_progress(done, self._total_bytes)
        if self._cancel is not None and self._cancel.is_set():
            raise InputError("the making of the pool was cancelled and nothing was left behind")

    def _stop(self) -> None:
        self._claims.end_before(0)
        for transfer in self._transfers:
            transfer.cancel()


def _finish(staging: Staging, manifest: PoolManifest) -> None:
    if manifest.layout == "files":
        for layer in range(manifest.num_layers):
            with opened_directory(layer_name(layer), staging.fd) as fd:
                os.fsync(fd)
    fd = open_beneath(staging.fd, MANIFEST_NAME, NEW_FILE)
    try:
        os.write(fd, encode_manifest(manifest))
        os.fsync(fd)
    finally:
        os.close(fd)
    publish(staging)
