# SPDX-License-Identifier: Apache-2.0
"""Which pages are dropped after a token, and that only unmapped pages can be."""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.errors import CapabilityError
from pagetier.bench.engine.admission import Dropper, MappedPart, merged, parse_maps
from pagetier.native.residency import resident_pages
from tests.conftest import require

PAGE = mmap.PAGESIZE
MAPS = """\
7f25d7602000-7f25d7612000 r--s 00002000 fe:00 5480453                    /data/my model.gguf
7f263ab11000-7f263ab12000 rw-p 00000000 00:00 0
7f263ab12000-7f263ab14000 r--p 00000000 103:1f 77                        /lib/libc.so.6
7ffd5d1e2000-7ffd5d203000 rw-p 00000000 00:00 0                          [stack]
"""


def test_mappings_of_files_alone() -> None:
    assert parse_maps(MAPS) == [
        MappedPart(0x7F25D7602000, 0x2000, 0x10000, os.makedev(0xFE, 0), 5480453),
        MappedPart(0x7F263AB12000, 0, 0x2000, os.makedev(0x103, 0x1F), 77),
    ]


def test_what_touches_is_one() -> None:
    assert merged([(30, 5), (0, 10), (10, 10), (32, 1)]) == [(0, 20), (30, 5)]
    assert merged([]) == []


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9))))
def test_merging_keeps_every_byte(extents: list[tuple[int, int]]) -> None:
    whole = merged(extents)
    before = {at for offset, length in extents for at in range(offset, offset + length)}
    after = [at for offset, length in whole for at in range(offset, offset + length)]
    assert sorted(before) == after
    assert all(offset + length < later for (offset, length), (later, _) in pairwise(whole))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Eight pages on a disk, written out."""
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(8 * PAGE))
    with path.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        dropped = resident_pages(opened.fileno(), 0, 8 * PAGE) == 0
    require(dropped, f"{tmp_path} lies on a file system that is memory")
    return path


@contextmanager
def mapped(path: Path, offset: int = 0) -> Iterator[mmap.mmap]:
    with (
        path.open("rb") as opened,
        mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ, offset=offset) as held,
    ):
        yield held


def touch(held: mmap.mmap) -> bytes:
    return held[:]


def resident(path: Path) -> list[bool]:
    with path.open("rb") as opened:
        pages = [resident_pages(opened.fileno(), at * PAGE, PAGE) for at in range(8)]
    return [page == 1 for page in pages]


def test_dropping_alone_does_nothing_to_mapped_pages(file: Path) -> None:
    with mapped(file) as held, Dropper({file: [(0, 8 * PAGE)]}) as dropper:
        touch(held)
        dropper.drop()
        assert resident(file) == [True] * 8
        dropper.unmap()
        assert resident(file) == [True] * 8
        dropper.drop()
        assert resident(file) == [False] * 8


def test_a_page_shared_with_others_stays(file: Path) -> None:
    """An extent from inside page 2 to inside page 5 has pages 3 and 4 to itself."""
    content = file.read_bytes()
    with mapped(file) as held, Dropper({file: [(2 * PAGE + 100, 3 * PAGE)]}) as dropper:
        touch(held)
        dropper()
        assert resident(file) == [True, True, True, False, False, True, True, True]
        assert touch(held) == content


def test_a_mapping_that_starts_inside_the_file(file: Path) -> None:
    with mapped(file, offset=4 * PAGE) as held, Dropper({file: [(6 * PAGE, PAGE)]}) as dropper:
        touch(held)
        file.read_bytes()
        dropper()
        assert resident(file) == [True] * 6 + [False, True]


def test_weights_that_are_not_mapped_are_no_arm(file: Path) -> None:
    with pytest.raises(CapabilityError, match="is not mapped where its experts lie"):
        Dropper({file: [(0, PAGE)]})
    with (
        mapped(file, offset=4 * PAGE),
        pytest.raises(CapabilityError, match="is not mapped where its experts lie"),
    ):
        Dropper({file: [(3 * PAGE, 2 * PAGE)]})
