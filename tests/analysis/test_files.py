# SPDX-License-Identifier: Apache-2.0
import os
import stat
from pathlib import Path

import pytest

from pagetier.analysis.errors import InputError
from pagetier.analysis.files import replace_file


def test_new_and_old_file_are_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, b"one")
    replace_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(tmp_path) == ["file"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    replace_file(path, b"one")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"file: cannot be written \(No space left on device\)"):
        replace_file(path, b"two")
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["file"]


def test_a_place_that_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        replace_file(tmp_path / "taken", b"one")
    assert os.listdir(tmp_path) == ["taken"]
