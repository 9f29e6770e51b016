# SPDX-License-Identifier: Apache-2.0
"""Failures of the C core, kept with the call, the file and the offset that failed."""

__all__ = ["ArenaError", "ReplayCancelled", "ReplayError"]


class ReplayError(OSError):
    """A call on the expert pool failed; ``errno`` and ``filename`` as in OSError.

    ``call`` is the system call (or "memcpy", "verify"); ``offset`` is the byte in the file;
    ``expert`` is None when no single expert was being read.
    """

    def __init__(
        self,
        errno: int,
        problem: str,
        filename: str | None = None,
        *,
        call: str,
        offset: int = 0,
        expert: int | None = None,
    ) -> None:
        super().__init__(errno, problem, filename)
        self.call = call
        self.offset = offset
        self.expert = expert


class ReplayCancelled(ReplayError):
    """The replay ended early because somebody asked for it; errno is ECANCELED."""


class ArenaError(ReplayError):
    """The region could not be mapped or locked as a whole; nothing of it is left.

    ``call`` is "mmap", "madvise", "mlock" or "VmLck" (locked, but the kernel counts another number
    of bytes); ``offset`` is the byte of the region.
    """
