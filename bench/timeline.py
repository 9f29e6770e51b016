# SPDX-License-Identifier: Apache-2.0
"""Samples at a fixed rate from a thread of its own, while the caller waits for something else.

Ticks lie on a grid from the start on, so the schedule does not drift; a tick whose time had passed
before its turn came is skipped and counted, never made up for by a burst.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

__all__ = ["Timeline", "next_tick"]

INTERVAL_S = 0.1


def next_tick(start_ns: int, interval_ns: int, tick: int, now_ns: int) -> tuple[int, int]:
    """(tick to wait for, ticks skipped): the one after `tick`, or the first not yet in the past."""
    due = tick + 1
    earliest = max(due, -((start_ns - now_ns) // interval_ns))
    return earliest, earliest - due


class Timeline:
    """Calls `take` every `interval_s` between start and stop.

    A context manager, so that the thread ends whatever happens in between.  An error in `take` ends
    the sampling and is raised by `stop`, or at the end of the block.
    """

    def __init__(self, take: Callable[[], dict[str, Any]], interval_s: float = INTERVAL_S) -> None:
        self._take = take
        self._interval_ns = round(interval_s * 1e9)
        self._stopping = threading.Event()
        # A deque may be filled and drained from two threads without a lock.
        self._samples: deque[dict[str, Any]] = deque()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="timeline")
        self._sampling: Future[None] | None = None
        self._latest: dict[str, Any] | None = None
        self.missed_ticks = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end()
        if kind is None:
            self._raise_error()

    def start(self) -> None:
        """Begin; the first sample is taken at once."""
        self._sampling = self._executor.submit(self._run)

    def latest(self) -> dict[str, Any] | None:
        """The newest sample, for a display; None before the first."""
        return self._latest

    def drain(self) -> list[dict[str, Any]]:
        """Samples since the last call, so that a long pass need not keep them all in memory."""
        return [self._samples.popleft() for _ in range(len(self._samples))]

    def stop(self) -> list[dict[str, Any]]:
        """End, and return what was not drained; raises what went wrong in the thread."""
        self._end()
        self._raise_error()
        return self.drain()

    def _end(self) -> None:
        self._stopping.set()
        self._executor.shutdown(wait=True)

    def _raise_error(self) -> None:
        sampling, self._sampling = self._sampling, None
        if sampling is not None:
            sampling.result()

    def _run(self) -> None:
        start_ns = time.monotonic_ns()
        tick = 0
        while not self._stopping.is_set():
            self._latest = self._take()
            self._samples.append(self._latest)
            now_ns = time.monotonic_ns()
            tick, missed = next_tick(start_ns, self._interval_ns, tick, now_ns)
            self.missed_ticks += missed
            self._stopping.wait((start_ns + tick * self._interval_ns - now_ns) / 1e9)
