# SPDX-License-Identifier: Apache-2.0
"""Programs of the host that the lab calls; an administrator's folders are searched for any user."""

import os
import shutil

__all__ = ["SEARCH", "find_program"]

SEARCH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
"""A PATH with the folders that an ordinary user's lacks."""


def find_program(name: str) -> str | None:
    """Path of a program."""
    return shutil.which(name, path=SEARCH)
