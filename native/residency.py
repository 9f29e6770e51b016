# SPDX-License-Identifier: Apache-2.0
"""How much of a file lies in the page cache, in pages; None where the kernel will not say.

cachestat(2) is asked first (Linux 6.5), mincore(2) only where the first does not exist and the
second tells the truth.  A refusal (EPERM) is an answer: "unknown".
"""

import errno
import os

from pagetier.native._core import lib

__all__ = ["page_bytes", "pages_touched", "resident_pages"]


def page_bytes() -> int:
    """Bytes of a base page on this host: 4, 16 or 64 KiB."""
    return int(lib.pt_page_bytes())


def pages_touched(offset: int, length: int) -> int:
    """Pages that the bytes [offset, offset + length) lie on."""
    return int(lib.pt_pages_touched(offset, length))


def resident_pages(fd: int, offset: int, length: int) -> int | None:
    """Pages in the page cache of those that [offset, offset + length) touches; None = unknown."""
    pages = lib.pt_cachestat_pages(fd, offset, length)
    if pages == -errno.ENOSYS:
        pages = _mincore_pages(fd, offset, length)
    # After EPERM mincore would report every page resident; hugetlbfs has no cachestat.
    if pages in (-errno.EPERM, -errno.EOPNOTSUPP):
        return None
    return _checked(pages)


def _mincore_pages(fd: int, offset: int, length: int) -> int:
    if not _checked(lib.pt_mincore_trusted(fd)):
        return -errno.EPERM
    return int(lib.pt_mincore_pages(fd, offset, length))


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return int(result)
