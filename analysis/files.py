# SPDX-License-Identifier: Apache-2.0
"""Files that appear whole or not at all: written under a name of their own, then renamed.

A place that cannot be written is an InputError; nothing half-made is left behind.
"""

import os
import tempfile
from pathlib import Path

from pagetier.analysis.errors import InputError

__all__ = ["replace_file"]


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` at `path` in one step; readers see the old file or the new one."""
    try:
        _replace(path, content)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}): free it or name another place"
        ) from error


def _replace(path: Path, content: bytes) -> None:
    descriptor, staged = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            # mkstemp makes 0600: a result is for everyone who may enter its directory.
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        os.replace(staged, path)
    except BaseException:
        os.unlink(staged)
        raise
