# SPDX-License-Identifier: Apache-2.0
"""Threads that share out numbered items while the calling thread reports progress.

The threads are for calls that leave the GIL free.  Whatever ends the caller's wait, Ctrl-C
included, the threads are told to stop and joined before it leaves.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Self

__all__ = ["Claims", "ProgressCallback", "run_threads"]

ProgressCallback = Callable[[int, int], None]  # bytes done, bytes in all

TICK_SECONDS = 0.1


class Claims(Iterator[int]):
    """The numbers 0 to count - 1 in ascending order, each handed to one thread only."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._end = count

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> int:
        with self._lock:
            if self._next >= self._end:
                raise StopIteration
            self._next += 1
            return self._next - 1

    def end_before(self, number: int) -> None:
        """Hand out no number from this one on; those already handed out are finished."""
        with self._lock:
            self._end = min(self._end, number)


def run_threads(
    worker: Callable[[], None], threads: int, tick: Callable[[], None], stop: Callable[[], None]
) -> None:
    """Runs `worker` in each thread, `tick` in this one; raises the first error after `stop`."""
    with ThreadPoolExecutor(threads) as executor:
        try:
            pending = {executor.submit(worker) for _ in range(threads)}
            while pending:
                done, pending = wait(pending, TICK_SECONDS, FIRST_EXCEPTION)
                tick()
                for future in done:
                    future.result()
        finally:
            stop()
