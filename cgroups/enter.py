# SPDX-License-Identifier: Apache-2.0
"""Join cgroups, then become another program: enter.py PROCS_FILE... -- PROGRAM [ARGUMENT...]

Writing 0 to a cgroup.procs file moves the writer, so the program's first page is charged inside
and no pid is ever guessed.  Runs as a script under `python -I -S` and imports nothing heavy:
what it allocates is charged to the caller's cgroup and gone after the exec.
Exit status 125 with one sentence on stderr when joining or starting fails, as env(1) has it.
"""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main"]

EXIT_CANNOT_ENTER = 125


def main(arguments: Sequence[str]) -> NoReturn:
    """Join every file before `--`, then exec what follows it."""
    split = arguments.index("--") if "--" in arguments else -1
    files, argv = arguments[:split], list(arguments[split + 1 :])
    if split < 1 or not argv:
        _fail("usage: enter PROCS_FILE... -- PROGRAM [ARGUMENT...]")
    for path in files:
        _join(path)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        _fail(f"cannot start {argv[0]}: {error.strerror}")


def _join(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"0")
        finally:
            os.close(descriptor)
    except OSError as error:
        _fail(f"cannot join the cgroup of {path}: {error.strerror}")


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"pagetier.cgroups.enter: {message}\n")
    sys.exit(EXIT_CANNOT_ENTER)


if __name__ == "__main__":
    main(sys.argv[1:])
