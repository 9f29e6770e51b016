# SPDX-License-Identifier: Apache-2.0
"""Become another program that dies with its parent: launch.py PARENT_PID -- PROGRAM [ARGUMENT...]

PR_SET_PDEATHSIG survives exec, so that QEMU is gone with the harness even after kill -9 of it.
Runs as a script under `python -I -S`.  The kernel watches the *thread* that started it: start it
from one that outlives it.  Exit status 125 with one sentence on stderr when it cannot.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
EXIT_CANNOT_LAUNCH = 125


def main(arguments: Sequence[str]) -> NoReturn:
    """Tie this process to its parent, then exec."""
    parent, argv = int(arguments[0]), list(arguments[2:])
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        _fail(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it died before the kernel was told to watch it
        sys.exit(EXIT_CANNOT_LAUNCH)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        _fail(f"cannot start {argv[0]}: {error.strerror}")


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"pagetier.capacity.lab.launch: {message}\n")
    sys.exit(EXIT_CANNOT_LAUNCH)


if __name__ == "__main__":
    main(sys.argv[1:])
