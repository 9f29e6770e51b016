# SPDX-License-Identifier: Apache-2.0
"""The typed face of the C simulator: what it refuses, and that it leaves the GIL to others."""

import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pagetier.native import simulator
from pagetier.native.simulator import Stream

STREAM = Stream(
    objects=np.array([0, 1, 0, 2, 0], dtype=np.uint32),
    part_start=np.array([0, 5], dtype=np.uint64),
    num_objects=3,
)
TWO = np.array([2], dtype=np.uint64)


def test_access_replay() -> None:
    assert simulator.run("lru", STREAM, TWO).tolist() == [0, 0, 1, 0, 1]
    assert simulator.lru_distances(STREAM).tolist() == [0, 0, 2, 0, 2]
    assert simulator.belady_distances(STREAM).tolist() == [0, 0, 1, 0, 1]


def test_event_replay() -> None:
    groups = np.array([0, 2, 4, 5], dtype=np.uint64)
    stream = replace(STREAM, group_start=groups, part_start=np.array([0, 3], dtype=np.uint64))
    assert simulator.run("lru", stream, TWO).tolist() == [0, 0, 1, 0, 1]
    assert stream.num_groups == 3


def test_sizes() -> None:
    sized = STREAM.with_sizes(np.array([1, 1, 2], dtype=np.uint64))
    assert simulator.run("lru", sized, TWO).tolist() == [0, 0, 1, 0, 0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"part_start": np.array([0, 4], dtype=np.uint64)},
        {"part_start": np.array([1, 5], dtype=np.uint64)},
        {"part_start": np.zeros(0, dtype=np.uint64)},
        {"part_start": np.array([0, 5], dtype=np.int64)},
        {"objects": np.zeros(5, dtype=np.int64)},
        {"objects": np.zeros((5, 1), dtype=np.uint32)},
        {"num_objects": 2},
        {"num_objects": -1},
        {"num_objects": 2**32},
        {"object_rank": np.zeros(2, dtype=np.uint32)},
        {"object_size": np.ones(2, dtype=np.uint64)},
        {"group_time": np.zeros(4, dtype=np.uint32)},
        {"group_start": np.array([0, 3, 5], dtype=np.uint64), "part_start": TWO - TWO},
        {
            "group_start": np.array([0, 3, 5], dtype=np.uint64),  # 0 1 0: not distinct
            "part_start": np.array([0, 2], dtype=np.uint64),
        },
    ],
)
def test_arrays_that_do_not_fit(wrong: dict[str, Any]) -> None:
    stream = replace(STREAM, **wrong)
    capacity = np.full(max(0, len(stream.part_start) - 1), 2, dtype=np.uint64)
    with pytest.raises(ValueError, match=r"."):
        simulator.run("lru", stream, capacity)
    with pytest.raises(ValueError, match=r"."):
        simulator.lru_distances(stream)
    with pytest.raises(ValueError, match=r"."):
        simulator.belady_distances(stream)


def test_an_object_of_no_size_is_refused() -> None:
    with pytest.raises(ValueError, match="not a stream"):
        simulator.run("lru", STREAM.with_sizes(np.zeros(3, dtype=np.uint64)), TWO)


def test_a_capacity_for_every_part() -> None:
    with pytest.raises(ValueError, match="2 capacities for 1 parts"):
        simulator.run("lru", STREAM, np.array([1, 2], dtype=np.uint64))


def test_a_strided_array_is_read_as_it_looks() -> None:
    doubled = np.repeat(STREAM.objects, 2)[::2]
    assert simulator.run("lru", replace(STREAM, objects=doubled), TWO).tolist() == [0, 0, 1, 0, 1]


def test_other_threads_run_meanwhile() -> None:
    ids = np.random.default_rng(1).integers(0, 50_000, 2_000_000, dtype=np.uint32)
    stream = Stream(ids, np.array([0, len(ids)], dtype=np.uint64), 50_000)
    done = threading.Event()
    longest = 0.0

    def watch() -> None:
        nonlocal longest
        before = time.monotonic()
        while not done.is_set():
            longest = max(longest, time.monotonic() - before)
            before = time.monotonic()
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.monotonic()
    for _ in range(3):
        simulator.run("lfu", stream, np.array([9_000], dtype=np.uint64))
    took = time.monotonic() - began
    done.set()
    watcher.join()
    # With the GIL held the watcher would have waited for a whole run.
    assert longest < took / 3
