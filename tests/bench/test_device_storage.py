# SPDX-License-Identifier: Apache-2.0
"""Compression and encryption as statx and FIEMAP tell them, of a file and of a folder."""

from pathlib import Path

import pytest

from pagetier.bench.devices import storage
from pagetier.bench.devices.storage import stored_traits

# linux/stat.h, linux/fiemap.h
ATTR_COMPRESSED, ATTR_ENCRYPTED = 0x4, 0x800
EXTENT_LAST, EXTENT_ENCODED, EXTENT_ENCRYPTED = 0x1, 0x8, 0x80


@pytest.mark.parametrize(
    ("attributes", "flags", "of_file", "of_folder"),
    [
        (0, 0, (), ()),
        (0, EXTENT_LAST, (), ()),
        (0, EXTENT_ENCODED | EXTENT_LAST, ("compressed",), ()),
        # The attribute says what new bytes will get; a file's extents say what it has.
        (ATTR_COMPRESSED, 0, (), ("compressed",)),
        (ATTR_ENCRYPTED, 0, ("encrypted",), ("encrypted",)),
        # An encrypted extent is marked as encoded too, which does not make it compressed.
        (0, EXTENT_ENCRYPTED | EXTENT_ENCODED, ("encrypted",), ()),
        (ATTR_ENCRYPTED, EXTENT_ENCODED, ("compressed", "encrypted"), ("encrypted",)),
    ],
)
def test_traits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    attributes: int,
    flags: int,
    of_file: tuple[str, ...],
    of_folder: tuple[str, ...],
) -> None:
    monkeypatch.setattr(storage, "_attributes", lambda fd: attributes)
    monkeypatch.setattr(storage, "_extent_flags", lambda fd: flags)
    (tmp_path / "file").touch()
    assert stored_traits(tmp_path / "file") == of_file
    assert stored_traits(tmp_path) == of_folder


def test_a_plain_file_of_this_host(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 9000)
    assert stored_traits(tmp_path / "file") == ()


def test_a_file_system_without_fiemap_answers_nothing() -> None:
    assert stored_traits(Path("/proc/self/status")) == ()
