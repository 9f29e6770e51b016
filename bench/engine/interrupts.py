# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while an engine calls back into Python.

An exception raised in a ctypes callback is printed and lost, and a signal is most likely to arrive
in one of the hundreds of callbacks of a token: so it is held until the engine has returned.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["held_interrupts"]


@contextlib.contextmanager
def held_interrupts() -> Iterator[Callable[[], None]]:
    """Inside, SIGINT and SIGTERM wait; the function that is given raises KeyboardInterrupt then."""
    arrived: list[int] = []

    def hold(number: int, _frame: FrameType | None) -> None:
        arrived.append(number)

    def release() -> None:
        if arrived:
            raise KeyboardInterrupt

    # Python runs handlers in the main thread alone: in others there is nothing to hold.
    held = (signal.SIGINT, signal.SIGTERM)
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, hold) for number in held if main}
    try:
        yield release
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    release()
