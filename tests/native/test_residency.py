# SPDX-License-Identifier: Apache-2.0
import errno
import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.native import residency
from pagetier.native._core import lib

PAGE = mmap.PAGESIZE


def test_page_size_is_the_host_s() -> None:
    assert residency.page_bytes() == os.sysconf("SC_PAGESIZE")


@given(st.integers(0, 20 * PAGE), st.integers(0, 20 * PAGE))
def test_pages_touched_counts_pages(offset: int, length: int) -> None:
    pages = {byte // PAGE for byte in range(offset, offset + length, PAGE)}
    if length:
        pages.add((offset + length - 1) // PAGE)
    assert residency.pages_touched(offset, length) == len(pages)


def test_pages_touched_at_edges() -> None:
    assert residency.pages_touched(PAGE - 1, 2) == 2
    assert residency.pages_touched(PAGE, PAGE) == 1
    assert residency.pages_touched(PAGE - 1, 1) == 1


@pytest.fixture
def partly_resident(disk_path: Path) -> int:
    """A file of 64.5 pages of which only pages 3, 10 to 12 and 40 are in the page cache."""
    fd = os.open(disk_path / "file", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * (64 * PAGE + PAGE // 2))
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    for page, pages in ((3, 1), (10, 3), (40, 1)):
        os.pread(fd, pages * PAGE, page * PAGE)
    return fd


RESIDENT = {3, 10, 11, 12, 40}


@pytest.mark.parametrize(
    ("offset", "length"),
    [
        (0, 64 * PAGE + PAGE // 2),
        (3 * PAGE, 1),
        (4 * PAGE - 1, 1),
        (4 * PAGE - 1, 2),
        (4 * PAGE, 6 * PAGE),
        (4 * PAGE, 6 * PAGE + 1),
        (11 * PAGE + 5, 2 * PAGE),
        (13 * PAGE, 27 * PAGE),
        (60 * PAGE, 4 * PAGE + PAGE // 2),
        (5, 0),
    ],
)
def test_both_calls_agree_page_by_page(partly_resident: int, offset: int, length: int) -> None:
    touched = range(offset // PAGE, (offset + length - 1) // PAGE + 1) if length else range(0)
    expected = len(RESIDENT.intersection(touched))
    assert residency.resident_pages(partly_resident, offset, length) == expected
    assert lib.pt_mincore_pages(partly_resident, offset, length) == expected
    assert lib.pt_cachestat_pages(partly_resident, offset, length) in (expected, -errno.ENOSYS)
    os.close(partly_resident)


def test_a_closed_file_is_an_error(disk_path: Path) -> None:
    fd = os.open(disk_path, os.O_RDONLY)
    os.close(fd)
    with pytest.raises(OSError) as raised:
        residency.resident_pages(fd, 0, 1)
    assert raised.value.errno == errno.EBADF


# After the imports, which an ordinary user may not be allowed to make.
AS_NOBODY = """
import os, sys
from pagetier.native.residency import resident_pages
from pagetier.native._core import lib
fd = os.open(sys.argv[1], os.O_RDONLY)
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
# Kernels older than the refusal (6.14 and its backports) tell the truth to everybody.
answer = lib.pt_cachestat_pages(fd, 0, 1)
print(resident_pages(fd, 0, 1) == (None if answer < 0 else answer), lib.pt_mincore_trusted(fd))
"""


def test_a_foreign_file_is_unknown_not_resident(run_python: Callable[..., str]) -> None:
    assert run_python(AS_NOBODY, "/etc/passwd") == "True 0\n"


def test_an_owned_or_writable_file_is_known(disk_path: Path) -> None:
    path = disk_path / "file"
    path.write_bytes(b"x")
    with path.open("rb") as file:
        assert lib.pt_mincore_trusted(file.fileno()) == 1
        assert residency.resident_pages(file.fileno(), 0, 1) == 1


class FakeCalls:
    """A kernel with the answers of a test; what was not given may not be asked."""

    def __init__(self, cachestat: int, trusted: int | None = None, mincore: int | None = None):
        self._cachestat = cachestat
        self._trusted = trusted
        self._mincore = mincore

    def pt_cachestat_pages(self, fd: int, offset: int, length: int) -> int:
        return self._cachestat

    def pt_mincore_trusted(self, fd: int) -> int:
        assert self._trusted is not None, "mincore was considered"
        return self._trusted

    def pt_mincore_pages(self, fd: int, offset: int, length: int) -> int:
        assert self._mincore is not None, "mincore was asked"
        return self._mincore


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (FakeCalls(7), 7),
        (FakeCalls(0), 0),
        (FakeCalls(-errno.EPERM), None),
        (FakeCalls(-errno.EOPNOTSUPP), None),
        (FakeCalls(-errno.ENOSYS, trusted=1, mincore=5), 5),
        (FakeCalls(-errno.ENOSYS, trusted=0), None),
    ],
)
def test_mincore_is_asked_only_where_it_helps(
    monkeypatch: pytest.MonkeyPatch, calls: FakeCalls, expected: int | None
) -> None:
    monkeypatch.setattr(residency, "lib", calls)
    assert residency.resident_pages(0, 0, 1) == expected
