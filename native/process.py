# SPDX-License-Identifier: Apache-2.0
"""Ties between a process and its parent."""

import os

from pagetier.native._core import lib

__all__ = ["die_with_parent"]


def die_with_parent(expected_parent: int) -> None:
    """Have the kernel kill this process (SIGKILL) when its parent dies, for whatever reason.

    The kernel watches the thread that started this process, not only its process: start it from a
    thread that lives on.  ProcessLookupError when the parent is no longer ``expected_parent``.
    """
    result = lib.pt_die_with_parent(expected_parent)
    if result < 0:
        raise OSError(-result, os.strerror(-result))
