# SPDX-License-Identifier: Apache-2.0
"""A pool of experts on disk: every expert's file, offset and length.

Made pools have two layouts: ``files``, one file per expert (the default, as in the paper: a read
can not be read ahead into its neighbour), and ``flat``, all experts one after the other in one
file.  Experts are numbered layer * num_experts + expert; sizes and offsets are bytes and need no
alignment.  Opening a made pool validates its manifest and looks at the first and the last file
only; whether every byte is there is the question of ``pagetier.tiers.check``.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagetier.analysis.errors import InputError
from pagetier.native.extents import EXTENT_DTYPE, ExtentTable
from pagetier.tiers.base import Pool
from pagetier.tiers.filesystem import exists, explain, open_regular, opened_directory
from pagetier.tiers.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    PoolManifest,
    manifest_digest,
    parse_manifest,
)
from pagetier.tiers.models.pool import MappedPool

__all__ = ["Pool", "UniformPool", "open_pool", "read_pool", "storage_problems"]

FLAT_NAME = "experts.bin"
BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system's block size


@dataclass(frozen=True, slots=True)
class UniformPool(Pool):
    """A pool that pagetier made; `digest` is the SHA-256 of its manifest."""

    manifest: PoolManifest

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return self.manifest.num_layers

    @property
    def num_experts(self) -> int:
        """Experts of each layer."""
        return self.manifest.num_experts

    @property
    def expert_bytes(self) -> int:
        """Size of every expert."""
        return self.manifest.expert_bytes

    @property
    def expert_sizes(self) -> NDArray[np.int64]:
        """Size of every expert, by its number."""
        return np.full(self.total_experts, self.expert_bytes, dtype=np.int64)

    @property
    def largest_expert_bytes(self) -> int:
        """Size of every expert."""
        return self.expert_bytes

    @property
    def largest_extent_bytes(self) -> int:
        """The most that is read in one piece: an expert."""
        return self.expert_bytes

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

    @property
    def remedy(self) -> str:
        """What to do about a file that is not as it should be."""
        return "make the pool again with `pagetier pool create`"

    def files(self) -> tuple[str, ...]:
        """Names of all files, relative to `root`, in the order of their experts."""
        if self.layout == "flat":
            return (FLAT_NAME,)
        return tuple(self.locate(expert)[0] for expert in range(self.total_experts))

    def sample_files(self) -> tuple[str, ...]:
        """The first and the last."""
        numbers = sorted({0, self.total_experts - 1})
        return tuple(dict.fromkeys(self.locate(expert)[0] for expert in numbers))

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
    def opened_file(self, root_fd: int, name: str) -> Iterator[int]:
        """A read-only descriptor of one file; InputError when it is missing, or a link."""
        fd = _open_or_input_error(root_fd, name, self.root)
        try:
            yield fd
        finally:
            os.close(fd)

    def facts(self) -> dict[str, Any]:
        """The seed; there is no model, so no spine."""
        return {"spine_bytes": None, "seed": self.seed}

    def require_whole(self, fd: int, name: str) -> None:
        """InputError when the open file has another size than the manifest says."""
        size_bytes = os.fstat(fd).st_size
        if size_bytes != self.file_bytes:
            raise InputError(
                f"{self.root / name}: has {size_bytes} bytes and not the {self.file_bytes} of the "
                "manifest; make the pool again"
            )


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
    """The pool in folder `path`; InputError when it is not there, not ours or not plausible.

    The weight files of a mapped pool must all be the ones that were mapped.
    """
    pool = read_pool(path)
    with pool.opened() as root_fd:
        for name in pool.sample_files():
            with pool.opened_file(root_fd, name) as fd:
                pool.require_whole(fd, name)
    return pool


def read_pool(path: Path) -> Pool:
    """The same without a look at its files."""
    try:
        root = path.resolve(strict=True)
        with opened_directory(root) as root_fd:
            return _read_pool(root, root_fd)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"{path}: is no pool ({reason}); make one with `pagetier pool create`"
        ) from error


def _read_pool(root: Path, root_fd: int) -> Pool:
    if not exists(root_fd, MANIFEST_NAME):
        raise InputError(
            f"{root}: is no pool (no {MANIFEST_NAME} in it); make one with `pagetier pool create`"
        )
    with open(_open_or_input_error(root_fd, MANIFEST_NAME, root), "rb") as file:
        raw = file.read(MAX_MANIFEST_BYTES + 1)
    manifest = parse_manifest(raw, str(root / MANIFEST_NAME))
    if isinstance(manifest, PoolManifest):
        return UniformPool(root, manifest_digest(raw), manifest)
    return MappedPool.of(root, manifest)


def storage_problems(pool: Pool) -> list[str]:
    """Why the files can not be measured: holes (or still growing), or several devices.

    Stats every file.  InputError when one is missing, a link, or of the wrong size.
    """
    devices: set[int] = set()
    holes: list[str] = []
    with pool.opened() as root_fd:
        for name in pool.files():
            with pool.opened_file(root_fd, name) as fd:
                pool.require_whole(fd, name)
                status = os.fstat(fd)
                if _has_holes(fd, status):
                    holes.append(name)
            devices.add(status.st_dev)
    return _allocation_problem(pool, holes) + _device_problem(pool, devices)


def _has_holes(fd: int, status: os.stat_result) -> bool:
    if status.st_blocks * BLOCK_BYTES < status.st_size:
        return True
    # Room that is only reserved, as by a download, counts as allocated and is read as zeros all the
    # same, without the device.
    return os.lseek(fd, 0, os.SEEK_HOLE) < status.st_size


def _allocation_problem(pool: Pool, holes: list[str]) -> list[str]:
    if not holes:
        return []
    return [
        f"{pool.root / holes[0]}: is not fully allocated on its device, as are {len(holes)} of "
        f"{len(pool.files())} files: sparse, compressed or still being written, so that parts "
        f"would be read at the speed of memory; {pool.remedy}"
    ]


def _device_problem(pool: Pool, devices: set[int]) -> list[str]:
    if len(devices) == 1:
        return []
    names = ", ".join(sorted(f"{os.major(d)}:{os.minor(d)}" for d in devices))
    return [
        f"{pool.root}: its files lie on several devices ({names}) and only one can be measured; "
        "put the whole pool on one file system"
    ]
