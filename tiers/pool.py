# SPDX-License-Identifier: Apache-2.0
"""A pool of experts on disk: every expert's file, offset and length.

Two layouts: ``files``, one file per expert (the default, as in the paper: a read can not be read
ahead into its neighbour), and ``flat``, all experts one after the other in one file.  Experts are
numbered layer * num_experts + expert; sizes and offsets are bytes and need no alignment.
Opening a pool validates its manifest and looks at the first and the last file only; whether every
byte is there is the question of ``pagetier.tiers.check``.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagetier.analysis.errors import InputError
from pagetier.native.reader import EXTENT_DTYPE, ExtentTable
from pagetier.tiers.filesystem import exists, explain, open_regular, opened_directory
from pagetier.tiers.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    PoolManifest,
    manifest_digest,
    parse_manifest,
)

__all__ = ["Pool", "extent_pages", "open_pool", "storage_problems"]

FLAT_NAME = "experts.bin"
BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system's block size


@dataclass(frozen=True, slots=True)
class Pool:
    """A uniform pool; `root` is free of links, `digest` the SHA-256 of its manifest."""

    root: Path
    manifest: PoolManifest
    digest: str

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return self.manifest.num_layers

    @property
    def num_experts(self) -> int:
        """Experts of each layer."""
        return self.manifest.num_experts

    @property
    def total_experts(self) -> int:
        """Experts of all layers."""
        return self.manifest.total_experts

    @property
    def expert_bytes(self) -> int:
        """Size of every expert."""
        return self.manifest.expert_bytes

    @property
    def layout(self) -> str:
        """``files`` or ``flat``."""
        return self.manifest.layout

    @property
    def seed(self) -> int:
        """Seed of the content."""
        return self.manifest.seed

    @property
    def total_bytes(self) -> int:
        """Bytes of all experts."""
        return self.total_experts * self.expert_bytes

    @property
    def file_bytes(self) -> int:
        """Size of every file."""
        return self.total_bytes if self.layout == "flat" else self.expert_bytes

    def files(self) -> tuple[str, ...]:
        """Names of all files, relative to `root`, in the order of their experts."""
        if self.layout == "flat":
            return (FLAT_NAME,)
        return tuple(self.locate(expert)[0] for expert in range(self.total_experts))

    def locate(self, expert: int) -> tuple[str, int]:
        """File name, relative to `root`, and offset of an expert."""
        return locate(self.manifest, expert)

    def extent_table(self) -> ExtentTable:
        """Where every expert lies, with absolute paths."""
        total = self.total_experts
        extents = np.zeros(total, dtype=EXTENT_DTYPE)
        extents["length"] = self.expert_bytes
        if self.layout == "flat":
            extents["offset"] = np.arange(total, dtype=np.uint64) * np.uint64(self.expert_bytes)
        else:
            extents["file"] = np.arange(total, dtype=np.uint32)
        return ExtentTable(
            paths=tuple(str(self.root / name) for name in self.files()),
            extents=extents,
            expert_start=np.arange(total + 1, dtype=np.uint64),
        )

    @contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor of the pool's folder; InputError when it is gone."""
        try:
            root_fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise InputError(f"{self.root}: {explain(error)}") from error
        try:
            yield root_fd
        finally:
            os.close(root_fd)

    @contextmanager
    def opened_file(self, root_fd: int, name: str) -> Iterator[int]:
        """A read-only descriptor of one file; InputError when it is missing, or a link."""
        fd = _open_or_input_error(root_fd, name, self.root)
        try:
            yield fd
        finally:
            os.close(fd)


def _open_or_input_error(root_fd: int, name: str, root: Path) -> int:
    try:
        return open_regular(root_fd, name)
    except OSError as error:
        raise InputError(f"{root / name}: {explain(error)}") from error


def locate(manifest: PoolManifest, expert: int) -> tuple[str, int]:
    """File name and offset of an expert of a pool with this manifest."""
    if manifest.layout == "flat":
        return FLAT_NAME, expert * manifest.expert_bytes
    layer, index = divmod(expert, manifest.num_experts)
    return f"{layer_name(layer)}/expert-{index:04d}.bin", 0


def layer_name(layer: int) -> str:
    """Folder of a layer's files in the layout ``files``."""
    return f"layer-{layer:03d}"


def open_pool(path: Path) -> Pool:
    """The pool in folder `path`; InputError when it is not there, not ours or not plausible."""
    try:
        root = path.resolve(strict=True)
        with opened_directory(root) as root_fd:
            pool = _read_pool(root, root_fd)
            for expert in sorted({0, pool.total_experts - 1}):
                _require_size(pool, root_fd, pool.locate(expert)[0])
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"{path}: is no pool ({reason}); make one with `pagetier pool create`"
        ) from error
    return pool


def _read_pool(root: Path, root_fd: int) -> Pool:
    if not exists(root_fd, MANIFEST_NAME):
        raise InputError(
            f"{root}: is no pool (no {MANIFEST_NAME} in it); make one with `pagetier pool create`"
        )
    with open(_open_or_input_error(root_fd, MANIFEST_NAME, root), "rb") as file:
        raw = file.read(MAX_MANIFEST_BYTES + 1)
    manifest = parse_manifest(raw, str(root / MANIFEST_NAME))
    return Pool(root, manifest, manifest_digest(raw))


def _require_size(pool: Pool, root_fd: int, name: str) -> None:
    with pool.opened_file(root_fd, name) as fd:
        size_bytes = os.fstat(fd).st_size
    if size_bytes != pool.file_bytes:
        raise InputError(
            f"{pool.root / name}: has {size_bytes} bytes and not the {pool.file_bytes} of the "
            "manifest; make the pool again"
        )


def storage_problems(pool: Pool) -> list[str]:
    """Why the files can not be measured: holes (or still growing), or several devices.

    Stats every file.  InputError when one is missing, a link, or of the wrong size.
    """
    devices: set[int] = set()
    holes: list[str] = []
    with pool.opened() as root_fd:
        for name in pool.files():
            _require_size(pool, root_fd, name)
            with pool.opened_file(root_fd, name) as fd:
                status = os.fstat(fd)
            devices.add(status.st_dev)
            if status.st_blocks * BLOCK_BYTES < status.st_size:
                holes.append(name)
    return _allocation_problem(pool, holes) + _device_problem(pool, devices)


def _allocation_problem(pool: Pool, holes: list[str]) -> list[str]:
    if not holes:
        return []
    return [
        f"{pool.root / holes[0]}: is not fully allocated on its device, as are {len(holes)} of "
        f"{len(pool.files())} files: sparse, compressed or still being written, so that parts "
        "would be read at the speed of memory; make the pool again"
    ]


def _device_problem(pool: Pool, devices: set[int]) -> list[str]:
    if len(devices) == 1:
        return []
    names = ", ".join(sorted(f"{os.major(d)}:{os.minor(d)}" for d in devices))
    return [
        f"{pool.root}: its files lie on several devices ({names}) and only one can be measured; "
        "put the whole pool on one file system"
    ]


def extent_pages(table: ExtentTable, page_bytes: int) -> NDArray[np.int64]:
    """Pages that each expert's extents touch; a page shared by two experts counts for both."""
    offset = table.extents["offset"].astype(np.int64)
    length = table.extents["length"].astype(np.int64)
    touched = (offset + length + page_bytes - 1) // page_bytes - offset // page_bytes
    before = np.concatenate(([0], np.cumsum(np.where(length > 0, touched, 0))))
    start = table.expert_start.astype(np.int64)
    return np.asarray(before[start[1:]] - before[start[:-1]], dtype=np.int64)
