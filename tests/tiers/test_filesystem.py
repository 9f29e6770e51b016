# SPDX-License-Identifier: Apache-2.0
import errno
import os
from pathlib import Path

import pytest

from pagetier.analysis.errors import InputError
from pagetier.tiers.filesystem import (
    exists,
    explain,
    memory_file_system,
    open_beneath,
    opened_directory,
    opened_regular,
    require_device_backed,
)


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../b", "a//b", ".", "a/."])
def test_names_that_could_lead_out_are_refused(disk: Path, name: str) -> None:
    (disk / "a").mkdir()
    with opened_directory(disk) as root_fd:
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(OSError, match="Invalid argument"):
            open_beneath(root_fd, name, os.O_RDONLY)
        assert len(os.listdir("/proc/self/fd")) == before


def test_opens_through_folders_and_never_through_links(disk: Path) -> None:
    (disk / "a" / "b").mkdir(parents=True)
    (disk / "a" / "b" / "file").write_text("content")
    (disk / "link").symlink_to("a")
    (disk / "a" / "leaf").symlink_to("b/file")
    with opened_directory(disk) as root_fd:
        before = len(os.listdir("/proc/self/fd"))
        with opened_regular(root_fd, "a/b/file") as fd:
            assert os.read(fd, 100) == b"content"
        for name, number in [
            ("link/b/file", errno.ENOTDIR),
            ("a/leaf", errno.ELOOP),
            ("a/none", errno.ENOENT),
            ("a/b", errno.EINVAL),
        ]:
            with pytest.raises(OSError) as caught, opened_regular(root_fd, name):
                pass
            assert caught.value.errno == number
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_dangling_link_exists(disk: Path) -> None:
    (disk / "dangling").symlink_to("nowhere")
    with opened_directory(disk) as root_fd:
        assert exists(root_fd, "dangling")
        assert not exists(root_fd, "nowhere")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOENT, "is missing"),
        (errno.ELOOP, "is a symbolic link"),
        (errno.ENOTDIR, "beneath a symbolic link"),
        (errno.EACCES, "may not be read by this user"),
        (errno.EPERM, "may not be read by this user"),
        (errno.EIO, "cannot be read: Input/output error"),
    ],
)
def test_explains_each_failure_apart(number: int, words: str) -> None:
    assert words in explain(OSError(number, os.strerror(number)))


def test_a_file_system_in_memory_is_told_from_a_disk(disk: Path) -> None:
    with opened_directory(disk) as fd:
        assert memory_file_system(fd) is None
        require_device_backed(fd, disk)
    with opened_directory("/dev/shm") as fd:
        assert memory_file_system(fd) == "tmpfs"
        with pytest.raises(InputError, match=r"^/dev/shm: is on tmpfs, which lives in memory"):
            require_device_backed(fd, Path("/dev/shm"))


def test_a_failing_statfs_is_an_error() -> None:
    with pytest.raises(OSError) as caught:
        memory_file_system(-1)
    assert caught.value.errno == errno.EBADF
