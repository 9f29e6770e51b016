# SPDX-License-Identifier: Apache-2.0
import threading

import pytest

from pagetier.tiers.workers import Claims, run_threads


def test_every_number_is_handed_out_once() -> None:
    claims = Claims(10_000)
    taken: list[list[int]] = []

    def work() -> None:
        taken.append(list(claims))

    run_threads(work, 4, lambda: None, lambda: None)
    assert sorted(number for numbers in taken for number in numbers) == list(range(10_000))
    assert all(numbers == sorted(numbers) for numbers in taken)


def test_the_end_only_comes_nearer() -> None:
    claims = Claims(10)
    claims.end_before(3)
    claims.end_before(7)
    assert list(claims) == [0, 1, 2]


def test_the_first_error_stops_the_others() -> None:
    stopped = threading.Event()
    turn = iter([True, False])

    def work() -> None:
        if next(turn):
            raise ValueError("first")
        assert stopped.wait(10)

    with pytest.raises(ValueError, match="first"):
        run_threads(work, 2, lambda: None, stopped.set)


def test_an_interrupt_of_the_caller_joins_the_threads() -> None:
    stopped = threading.Event()
    ended: list[bool] = []

    def work() -> None:
        ended.append(stopped.wait(10))

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_threads(work, 3, interrupt, stopped.set)
    assert ended == [True, True, True]
