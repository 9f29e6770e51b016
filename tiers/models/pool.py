# SPDX-License-Identifier: Apache-2.0
"""A pool inside the weight files of a model: its folder holds the map, the bytes are elsewhere.

The files are opened read-only by the real path found when the model was mapped, and must be the
same ones: another file, another size or a later write is a ``ChangedFile``.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagetier.analysis.errors import InputError
from pagetier.native.extents import ExtentTable
from pagetier.tiers.base import Pool
from pagetier.tiers.models.manifest import MappedManifest, mapped_digest
from pagetier.tiers.models.parts import expert_sizes
from pagetier.tiers.models.weights import WeightFile, opened_weights, require_unchanged

__all__ = ["MappedPool"]


@dataclass(frozen=True, slots=True, eq=False)
class MappedPool(Pool):
    """A pool by its manifest; pools with one digest map the same bytes."""

    manifest: MappedManifest
    table: ExtentTable

    @classmethod
    def of(cls, root: Path, manifest: MappedManifest) -> "MappedPool":
        """The pool in `root` with this manifest; looks at no file."""
        return cls(root, mapped_digest(manifest), manifest, manifest.extent_table())

    @property
    def num_layers(self) -> int:
        """Layers with experts."""
        return self.manifest.num_layers

    @property
    def num_experts(self) -> int:
        """Experts of each layer."""
        return self.manifest.num_experts

    @property
    def layout(self) -> str:
        """``mapped``."""
        return self.manifest.layout

    @property
    def seed(self) -> int:
        """InputError: the content is the model's."""
        raise InputError(
            f"{self.root}: its content is a model's and comes from no seed; use a pool of "
            "`pagetier pool create`"
        )

    @property
    def expert_sizes(self) -> NDArray[np.int64]:
        """Size of every expert, by its number."""
        return expert_sizes(self.table)

    @property
    def largest_extent_bytes(self) -> int:
        """The most that is read in one piece."""
        return int(self.table.extents["length"].max())

    @property
    def remedy(self) -> str:
        """What to do about a weight file that is not as it should be."""
        return "download or copy it again to its end, and map the model again"

    @property
    def weight_files(self) -> tuple[WeightFile, ...]:
        """The weight files, in the order of the manifest."""
        return tuple(WeightFile(**file.model_dump()) for file in self.manifest.files)

    def files(self) -> tuple[str, ...]:
        """Absolute paths of the weight files."""
        return self.table.paths

    def sample_files(self) -> tuple[str, ...]:
        """All of them: they are few, and are not ours."""
        return self.files()

    def extent_table(self) -> ExtentTable:
        """Where every expert lies."""
        return self.table

    def opened_file(self, root_fd: int, name: str) -> AbstractContextManager[int]:
        """A read-only descriptor of a weight file; ChangedFile when it is not the mapped one."""
        return opened_weights(self._weights(name))

    def facts(self) -> dict[str, Any]:
        """The model and what of it is no expert; there is no seed."""
        manifest = self.manifest
        return {
            "spine_bytes": manifest.spine_bytes,
            "unrouted_bytes": manifest.unrouted_bytes,
            "seed": None,
            "model": manifest.model.source,
            "format": manifest.model.format,
            "architecture": manifest.model.architecture,
            "top_k": manifest.top_k,
            "model_layers": _ranges([layer.model_layer for layer in manifest.layers]),
        }

    def require_whole(self, fd: int, name: str) -> None:
        """ChangedFile when the open file is not as it was when it was mapped."""
        require_unchanged(self._weights(name), fd)

    def _weights(self, name: str) -> WeightFile:
        return self.weight_files[self.table.paths.index(name)]


def _ranges(numbers: list[int]) -> str:
    """Ascending numbers in short: 3-60, or 1, 3, 5."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in ranges)
