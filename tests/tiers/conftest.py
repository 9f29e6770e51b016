# SPDX-License-Identifier: Apache-2.0
"""Small pools on a real disk."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pagetier.tiers.create import create_pool
from pagetier.tiers.filesystem import memory_file_system
from pagetier.tiers.pool import UniformPool

MakePool = Callable[..., UniformPool]


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A folder whose files can leave the page cache."""
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        kind = memory_file_system(fd)
    finally:
        os.close(fd)
    assert kind is None, f"{tmp_path} is on {kind}: run pytest with --basetemp on a disk"
    return tmp_path


@pytest.fixture
def make(disk: Path) -> MakePool:
    """Makes a pool of 3 layers x 5 experts x 4097 bytes unless told otherwise."""

    def make_pool(
        layout: str = "files",
        layers: int = 3,
        experts: int = 5,
        expert_bytes: int = 4097,
        seed: int = 11,
        name: str = "pool",
    ) -> UniformPool:
        return create_pool(disk / name, layers, experts, expert_bytes, layout, seed)

    return make_pool


@pytest.fixture
def empty_proc(tmp_path: Path) -> Path:
    """A /proc without processes."""
    proc = tmp_path / "proc"
    proc.mkdir()
    return proc
