# SPDX-License-Identifier: Apache-2.0
"""What every pool is: experts on file, numbered layer * num_experts + expert.  Sizes are bytes.

A pool that pagetier made holds its files and can compute their content; a mapped one only says
where the experts lie in the weight files of a model, which are elsewhere and somebody else's.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagetier.analysis.errors import InputError
from pagetier.native.extents import ExtentTable
from pagetier.tiers.filesystem import explain

__all__ = ["Pool"]


@dataclass(frozen=True, slots=True)
class Pool(ABC):
    """A pool; `root` is its folder, free of links, `digest` tells it from other pools."""

    root: Path
    digest: str

    @property
    @abstractmethod
    def num_layers(self) -> int:
        """Layers with experts."""

    @property
    @abstractmethod
    def num_experts(self) -> int:
        """Experts of each layer."""

    @property
    @abstractmethod
    def layout(self) -> str:
        """``files`` or ``flat``, or ``mapped``."""

    @property
    @abstractmethod
    def seed(self) -> int:
        """Seed of the content; InputError for a pool whose content nobody computed."""

    @property
    @abstractmethod
    def expert_sizes(self) -> NDArray[np.int64]:
        """Size of every expert, by its number."""

    @property
    @abstractmethod
    def largest_extent_bytes(self) -> int:
        """The most that is read in one piece."""

    @property
    @abstractmethod
    def remedy(self) -> str:
        """What to do about a file that is not as it should be."""

    @abstractmethod
    def files(self) -> tuple[str, ...]:
        """Names of all files: relative to `root`, or absolute for those that are elsewhere."""

    @abstractmethod
    def sample_files(self) -> tuple[str, ...]:
        """Names of the files that opening the pool looks at."""

    @abstractmethod
    def extent_table(self) -> ExtentTable:
        """Where every expert lies, with absolute paths."""

    @abstractmethod
    def opened_file(self, root_fd: int, name: str) -> AbstractContextManager[int]:
        """A read-only descriptor of one file; InputError when it is missing, or another one."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What ``pagetier pool info`` says of this kind of pool alone."""

    @abstractmethod
    def require_whole(self, fd: int, name: str) -> None:
        """InputError when the open file has another size than it should."""

    @property
    def total_experts(self) -> int:
        """Experts of all layers."""
        return self.num_layers * self.num_experts

    @property
    def expert_bytes(self) -> int:
        """Size of every expert; InputError where they differ."""
        sizes = self.expert_sizes
        if np.any(sizes != sizes[0]):
            raise InputError(
                f"{self.root}: its experts have {sizes.min()} to {sizes.max()} bytes, and this "
                "needs experts of one size; use a pool of one size"
            )
        return int(sizes[0])

    @property
    def size_of_experts(self) -> int | NDArray[np.int64]:
        """The size of every expert, or where they differ the size of each, by its number."""
        sizes = self.expert_sizes
        return sizes if np.any(sizes != sizes[0]) else int(sizes[0])

    @property
    def largest_expert_bytes(self) -> int:
        """Size of the largest expert."""
        return int(self.expert_sizes.max())

    @property
    def total_bytes(self) -> int:
        """Bytes of all experts."""
        return int(self.expert_sizes.sum())

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
