# SPDX-License-Identifier: Apache-2.0
"""Where one part of every expert of a layer lies.  Offsets and sizes are bytes of a file."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagetier.native.extents import EXTENT_DTYPE, ExtentTable

__all__ = ["Part", "Singles", "Stack", "expert_sizes", "extent_table"]

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stack:
    """One tensor with a slice of `bytes` per expert, one after the other from `offset` on."""

    tensor: str
    file: int
    offset: int
    bytes: int

    @property
    def start(self) -> tuple[int, int]:
        """File and offset of the first expert."""
        return self.file, self.offset

    def columns(self, num_experts: int) -> tuple[Int64 | int, Int64, Int64 | int]:
        """File, offset and bytes, of each expert or of all."""
        steps = np.arange(num_experts, dtype=np.int64)
        return self.file, self.offset + steps * self.bytes, self.bytes


@dataclass(frozen=True, slots=True, eq=False)
class Singles:
    """A tensor per expert, by expert."""

    tensor: str
    file: Int64
    offset: Int64
    bytes: Int64

    @property
    def start(self) -> tuple[int, int]:
        """File and offset of the first expert."""
        return int(self.file[0]), int(self.offset[0])

    def columns(self, num_experts: int) -> tuple[Int64 | int, Int64, Int64 | int]:
        """File, offset and bytes, of each expert or of all."""
        return self.file, self.offset, self.bytes


Part = Stack | Singles


def extent_table(
    paths: tuple[str, ...], layers: Sequence[tuple[Part, ...]], num_experts: int
) -> ExtentTable:
    """All experts, layer after layer; the extents of each in the order of its layer's parts."""
    extents = [_extents_of_layer(parts, num_experts) for parts in layers]
    widths = np.repeat([len(parts) for parts in layers], num_experts)
    starts = np.zeros(len(widths) + 1, dtype=np.uint64)
    np.cumsum(widths, out=starts[1:])
    return ExtentTable(paths, np.concatenate(extents), starts)


def expert_sizes(table: ExtentTable) -> Int64:
    """Bytes of every expert."""
    ends = np.zeros(len(table.extents) + 1, dtype=np.int64)
    np.cumsum(table.extents["length"], out=ends[1:])
    return np.diff(ends[table.expert_start.astype(np.int64)])


def _extents_of_layer(parts: tuple[Part, ...], num_experts: int) -> NDArray[np.void]:
    extents = np.zeros((num_experts, len(parts)), dtype=EXTENT_DTYPE)
    for column, part in enumerate(parts):
        file, offset, length = part.columns(num_experts)
        extents["file"][:, column] = file
        extents["offset"][:, column] = offset
        extents["length"][:, column] = length
    return extents.reshape(-1)
