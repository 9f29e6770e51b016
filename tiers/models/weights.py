# SPDX-License-Identifier: Apache-2.0
"""Weight files: found through links, opened read-only, and known again.

A model's files belong to others.  They are never written, and a link to one (the Hugging Face cache
is made of links) is followed once, when the model is mapped: from then on the file is opened by its
real path, and must be the same one by device, inode, size and time of its last change.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pagetier.tiers.models.errors import ChangedFile, MissingShard, ModelError, PointerFile

__all__ = ["WeightFile", "find_weights", "opened_weights", "require_unchanged"]

# https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md: the first line of a pointer.
LFS_POINTER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A file of a model: its `name` there, the real `path` behind it, and its marks.

    `device` and `inode` are st_dev and st_ino, `mtime_ns` the time of its last change.
    """

    name: str
    path: str
    device: int
    inode: int
    bytes: int
    mtime_ns: int


def find_weights(folder: Path, name: str) -> WeightFile:
    """The file of this name, behind whatever links; a ModelError when it holds no weights."""
    shown = folder / name
    try:
        path = shown.resolve(strict=True)
    except FileNotFoundError as error:
        if shown.is_symlink():
            raise PointerFile(
                f"{shown}: is a link to a file that is not there; download the model again"
            ) from error
        raise MissingShard(f"{shown}: is missing; download all files of the model") from error
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        raise PointerFile(f"{shown}: leads nowhere ({error}); download the model again") from error
    with _opened(str(path)) as fd:
        status = os.fstat(fd)
        if os.pread(fd, len(LFS_POINTER), 0) == LFS_POINTER:
            raise PointerFile(
                f"{shown}: is a Git LFS pointer and not the weights; fetch them with `git lfs pull`"
            )
    return WeightFile(
        name, str(path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    )


@contextmanager
def opened_weights(file: WeightFile) -> Iterator[int]:
    """A read-only descriptor; ChangedFile when it is not the file that was mapped."""
    with _opened(file.path) as fd:
        require_unchanged(file, fd)
        yield fd


def require_unchanged(file: WeightFile, fd: int) -> None:
    """ChangedFile when the open file is another one, or has another size or time."""
    status = os.fstat(fd)
    found = (status.st_dev, status.st_ino)
    if found != (file.device, file.inode):
        raise ChangedFile(
            f"{file.path}: is another file than the one that was mapped (device and inode "
            f"{_shown(*found)}, not {_shown(file.device, file.inode)}); map the model again"
        )
    if status.st_size != file.bytes:
        raise ChangedFile(
            f"{file.path}: has {status.st_size} bytes, {file.bytes} when it was mapped; let it be "
            "written to its end and map the model again"
        )
    if status.st_mtime_ns != file.mtime_ns:
        raise ChangedFile(f"{file.path}: was written to after it was mapped; map the model again")


@contextmanager
def _opened(path: str) -> Iterator[int]:
    try:
        # The path is real: a link in it now was put there since.  O_NONBLOCK: a FIFO must not hang.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise _failure(path, error) from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ModelError(f"{path}: is not a regular file; name the weights themselves")
        yield fd
    finally:
        os.close(fd)


def _failure(path: str, error: OSError) -> ModelError:
    match error.errno:
        case errno.ELOOP:
            return ChangedFile(f"{path}: has become a symbolic link; map the model again")
        case errno.ENOENT | errno.ENOTDIR:
            return MissingShard(f"{path}: is missing; bring it back or map the model again")
        case errno.EACCES | errno.EPERM:
            return ModelError(f"{path}: may not be read by this user; run as its owner or as root")
    return ModelError(f"{path}: cannot be opened ({error.strerror}); check the file and its disk")


def _shown(device: int, inode: int) -> str:
    return f"{os.major(device)}:{os.minor(device)} {inode}"
