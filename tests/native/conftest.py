# SPDX-License-Identifier: Apache-2.0
"""Small pools on a real disk, and plans over them."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pagetier.native import content
from pagetier.native.reader import EXTENT_DTYPE, ExtentTable
from pagetier.native.residency import resident_pages

ROOT = Path(__file__).resolve().parents[2]
SEED = 20261129


@dataclass(frozen=True, slots=True)
class Arrays:
    """A plan."""

    experts: NDArray[np.uint32]
    record_start: NDArray[np.uint64]
    iteration_start: NDArray[np.uint64]


def plan_of(records: Sequence[Sequence[int]], iterations: Sequence[int] | None = None) -> Arrays:
    """A plan from lists: the experts of each record, and the number of records per iteration."""
    widths = [len(record) for record in records]
    counts = [1] * len(records) if iterations is None else list(iterations)
    return Arrays(
        np.array([expert for record in records for expert in record], dtype=np.uint32),
        np.cumsum([0, *widths], dtype=np.uint64),
        np.cumsum([0, *counts], dtype=np.uint64),
    )


@dataclass(frozen=True, slots=True)
class SmallPool:
    """Experts of equal size, one file each, filled from SEED."""

    table: ExtentTable
    expert_bytes: int

    def resident_pages(self) -> int:
        """Pages of all files in the page cache."""
        total = 0
        for path in self.table.paths:
            fd = os.open(path, os.O_RDONLY)
            total += resident_pages(fd, 0, os.fstat(fd).st_size) or 0
            os.close(fd)
        return total

    def evict(self) -> None:
        """Write back and drop every file from the page cache."""
        for path in self.table.paths:
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


@dataclass(frozen=True, slots=True)
class HintList:
    """Hints of a plan."""

    hint_start: NDArray[np.uint64]
    hint_experts: NDArray[np.uint32]


def hints_of(records: Sequence[Sequence[int]]) -> HintList:
    """The experts hinted when each record starts."""
    widths = [len(record) for record in records]
    return HintList(
        np.cumsum([0, *widths], dtype=np.uint64),
        np.array([expert for record in records for expert in record], dtype=np.uint32),
    )


def locked_bytes() -> int:
    """VmLck of this process."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmLck:"))
    return int(line.split()[1]) * 1024


@pytest.fixture
def plan() -> Callable[..., Arrays]:
    return plan_of


@pytest.fixture
def hint_list() -> Callable[..., HintList]:
    return hints_of


@pytest.fixture
def vm_lck() -> Callable[[], int]:
    return locked_bytes


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A directory with a page cache behind it: /tmp may be a tmpfs, /var/tmp outlives a boot."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        yield Path(name)


@pytest.fixture
def make_pool(disk_path: Path) -> Callable[[int, int], SmallPool]:
    def make(num_experts: int, expert_bytes: int) -> SmallPool:
        paths = []
        for expert in range(num_experts):
            path = disk_path / f"{expert}.bin"
            with path.open("wb") as file:
                content.write(file.fileno(), 0, expert_bytes, SEED, expert)
            paths.append(str(path))
        extents = np.zeros(num_experts, dtype=EXTENT_DTYPE)
        extents["file"] = np.arange(num_experts)
        extents["length"] = expert_bytes
        starts = np.arange(num_experts + 1, dtype=np.uint64)
        return SmallPool(ExtentTable(tuple(paths), extents, starts), expert_bytes)

    return make


@pytest.fixture
def python() -> Callable[..., subprocess.Popen[str]]:
    """Start a Python program of this checkout in a process of its own."""

    def start(program: str, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            env=os.environ | {"PYTHONPATH": str(ROOT / ".layout")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def run_python(python: Callable[..., subprocess.Popen[str]]) -> Callable[..., str]:
    """Run a Python program of this checkout and return what it printed."""

    def run(program: str, *arguments: str) -> str:
        with python(program, *arguments) as process:
            output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        return output

    return run
