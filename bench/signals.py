# SPDX-License-Identifier: Apache-2.0
"""SIGTERM (a service manager, a batch system) cleans up as Ctrl-C does."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

__all__ = ["terminate_like_interrupt"]


@contextlib.contextmanager
def terminate_like_interrupt() -> Iterator[None]:
    """Inside, SIGTERM raises KeyboardInterrupt."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
