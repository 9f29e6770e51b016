# SPDX-License-Identifier: Apache-2.0
"""Limits of the host: open files, mappings, memory.  Each in a process of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest

COMMON = """
import os, resource, sys
import numpy as np
from pagetier.native.errors import ReplayError
from pagetier.native.reader import EXTENT_DTYPE, ExtentTable, Reader

class Plan:
    def __init__(self, experts, records, iterations):
        self.experts = experts.astype(np.uint32)
        self.record_start = np.linspace(0, len(experts), records + 1).astype(np.uint64)
        self.iteration_start = np.linspace(0, records, iterations + 1).astype(np.uint64)

def table(path, count, length):
    extents = np.zeros(count, EXTENT_DTYPE)
    extents["file"] = np.arange(count)
    extents["length"] = length
    return ExtentTable((path,) * count, extents, np.arange(count + 1, dtype=np.uint64))

def open_files():
    return len(os.listdir("/proc/self/fd"))

def status_kb(name):
    for line in open("/proc/self/status"):
        if line.startswith(name + ":"):
            return int(line.split()[1])
"""

BOUNDED = """
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[3])))
most = 0
def watch(progress):
    global most
    most = max(most, open_files())
with Reader(table(sys.argv[1], 400, 5000), threads=4) as reader:
    result = reader.replay(
        Plan(np.tile(np.arange(400), 50), 500, 5), on_progress=watch, progress_interval_s=0.001
    )
    print(reader.kept_open_files, result.iteration_reads.sum(), most <= int(sys.argv[3]))
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], open_files() >= reader.kept_open_files)
print(open_files() < 10)
"""


@pytest.mark.parametrize(
    ("soft", "hard", "kept", "raised"),
    [
        (300, 300, 40, 300),
        (300, 4096, 400, 660),
        (300, 500, 240, 500),
        (100, 200, 0, 200),
        (1000, 4096, 400, 1000),
    ],
)
def test_open_files_stay_within_the_limit(
    run_python: Callable[..., str], disk_path: Path, soft: int, hard: int, kept: int, raised: int
) -> None:
    path = disk_path / "expert"
    path.write_bytes(bytes(5000))
    output = run_python(COMMON + BOUNDED, str(path), str(soft), str(hard))
    assert output.split("\n") == [f"{kept} 20000 True", f"{raised} True", "True", ""]


SHARED = """
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
one_each = table(sys.argv[1], 20, 5000)
both = ExtentTable(
    one_each.paths,
    np.concatenate([one_each.extents, one_each.extents]),
    np.arange(41, dtype=np.uint64),
)
with Reader(both, threads=4) as reader:
    result = reader.replay(Plan(np.tile(np.arange(40), 50), 500, 5))
    print(reader.kept_open_files, result.iteration_reads.sum())
"""


def test_descriptors_per_thread_stay_within_the_limit(
    run_python: Callable[..., str], disk_path: Path
) -> None:
    """40 descriptors are left, of the 80 that 20 files times 4 threads would take."""
    path = disk_path / "expert"
    path.write_bytes(bytes(5000))
    assert run_python(COMMON + SHARED, str(path)) == "10 2000\n"


TOO_MANY_MAPPINGS = """
count = int(open("/proc/sys/vm/max_map_count").read()) + 1
try:
    Reader(table(sys.argv[1], count, 4096), mode="mmap")
except ReplayError as error:
    print(error.call, "vm.max_map_count" in error.strerror)
print(len(open("/proc/self/maps").readlines()) < 1000)
"""


def test_too_many_mappings_name_the_remedy(run_python: Callable[..., str], disk_path: Path) -> None:
    path = disk_path / "expert"
    path.write_bytes(bytes(4096))
    assert run_python(COMMON + TOO_MANY_MAPPINGS, str(path)) == "mmap True\nTrue\n"


# 82,432 files are named, one file is there: what counts is what the reader holds per file.
PRODUCTION = """
threads, length = 8, 65536
before_kb = status_kb("VmRSS")
rng = np.random.default_rng(1)
plan = Plan(rng.integers(0, 82432, 474000), 285 * 58, 285)
with Reader(table(sys.argv[1], 82432, length), threads=threads, barrier="record") as reader:
    result = reader.replay(plan)
    print(result.iteration_reads.sum(), len(result.iteration_end_ns))
    print(status_kb("VmHWM") - before_kb - threads * length // 1024, reader.kept_open_files)
"""


def test_a_plan_of_production_size_fits_in_memory(
    run_python: Callable[..., str], disk_path: Path
) -> None:
    path = disk_path / "expert"
    path.write_bytes(bytes(65536))
    counts, memory = run_python(COMMON + PRODUCTION, str(path)).splitlines()
    assert counts == "474000 285"
    used_kb, kept = (int(number) for number in memory.split())
    assert used_kb < 300_000
    assert kept > 0
