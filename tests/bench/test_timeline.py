# SPDX-License-Identifier: Apache-2.0
"""The sampling thread: its grid, its errors, its end."""

import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.bench.timeline import Timeline, next_tick


@pytest.mark.parametrize(
    ("tick", "now", "expected"),
    [
        (0, 1000, (1, 0)),
        (0, 1099, (1, 0)),
        (0, 1100, (1, 0)),
        (0, 1101, (2, 1)),
        (0, 1200, (2, 1)),
        (3, 1310, (4, 0)),
        (3, 2000, (10, 6)),
    ],
)
def test_next_tick(tick: int, now: int, expected: tuple[int, int]) -> None:
    assert next_tick(1000, 100, tick, now) == expected


@given(st.integers(0, 10**15), st.integers(1, 10**9), st.lists(st.integers(0, 10**10)))
def test_the_grid_never_drifts_and_no_tick_is_lost(
    start: int, interval: int, costs: list[int]
) -> None:
    now, tick, missed = start, 0, 0
    for cost in costs:
        now += cost
        after, skipped = next_tick(start, interval, tick, now)
        assert after == tick + 1 + skipped
        due = start + after * interval
        assert due >= now
        assert not skipped or due - interval < now
        now, tick, missed = due, after, missed + skipped
    assert tick == len(costs) + missed


def test_samples_in_order_until_stopped() -> None:
    enough = threading.Event()
    taken: list[int] = []

    def take() -> dict[str, Any]:
        taken.append(len(taken))
        if len(taken) == 5:
            enough.set()
        return {"n": taken[-1]}

    timeline = Timeline(take, interval_s=0.001)
    assert timeline.latest() is None
    timeline.start()
    assert enough.wait(10)
    samples = timeline.stop()
    assert timeline.latest() == samples[-1]
    assert [sample["n"] for sample in samples] == taken
    count = len(taken)
    time.sleep(0.01)
    assert len(taken) == count


def test_drained_samples_do_not_come_again() -> None:
    third = threading.Event()
    numbers = iter(range(10**9))

    def take() -> dict[str, Any]:
        number = next(numbers)
        if number == 3:
            third.set()
        return {"n": number}

    timeline = Timeline(take, interval_s=0.001)
    timeline.start()
    assert third.wait(10)
    first = timeline.drain()
    rest = timeline.stop()
    together = [sample["n"] for sample in first + rest]
    assert together == list(range(len(together)))
    assert first


def test_a_slow_sample_skips_ticks_and_counts_them() -> None:
    done = threading.Event()

    def take() -> dict[str, Any]:
        if not done.is_set():
            time.sleep(0.05)
            done.set()
        return {}

    timeline = Timeline(take, interval_s=0.01)
    timeline.start()
    assert done.wait(10)
    timeline.stop()
    assert timeline.missed_ticks >= 3


def broken() -> dict[str, Any]:
    raise ValueError("a file has changed its shape")


def test_error_surfaces_at_stop() -> None:
    timeline = Timeline(broken, interval_s=0.001)
    timeline.start()
    with pytest.raises(ValueError, match="changed its shape"):
        timeline.stop()


def test_error_surfaces_at_the_end_of_the_block() -> None:
    with pytest.raises(ValueError, match="changed its shape"), Timeline(broken, 0.001):
        pass


def test_an_error_of_the_block_is_not_replaced() -> None:
    with pytest.raises(KeyError, match="mine"), Timeline(broken, 0.001):
        raise KeyError("mine")


def test_the_thread_is_gone_after_the_block() -> None:
    with Timeline(dict, 0.001):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("timeline")]
