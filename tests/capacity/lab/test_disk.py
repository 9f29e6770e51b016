# SPDX-License-Identifier: Apache-2.0
"""The guest's disk from outside: what goes in comes out, and a torn image is mended."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pagetier.capacity.errors import CapacityError
from pagetier.capacity.lab.disk import PROGRAMS, copy_out, make_disk, replay_journal


@pytest.fixture(autouse=True)
def tools(tool: Callable[[str], str]) -> None:
    for name in PROGRAMS:
        tool(name)


def test_content_comes_out_as_it_went_in(tmp_path: Path) -> None:
    content = tmp_path / "in"
    (content / "results" / "deep").mkdir(parents=True)
    (content / "results" / "results.db").write_bytes(bytes(range(256)) * 999)
    (content / "results" / "deep" / "log.txt").write_text("x")
    folder = tmp_path / "odd, name's folder"
    folder.mkdir()
    image = folder / "disk.img"
    make_disk(image, 64 << 20, content)
    assert image.stat().st_size == 64 << 20
    assert image.stat().st_blocks * 512 < 16 << 20, "it is sparse"
    assert [path.name for path in folder.iterdir()] == ["disk.img"]
    replay_journal(image)
    out = folder / "out"
    out.mkdir()
    copied = copy_out(image, "results", out)
    assert copied == out / "results"
    assert (out / "results" / "results.db").read_bytes() == bytes(range(256)) * 999
    assert (out / "results" / "deep" / "log.txt").read_text() == "x"


def test_a_disk_without_results_has_none(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "out").mkdir()
    make_disk(tmp_path / "disk.img", 16 << 20, tmp_path / "empty")
    assert copy_out(tmp_path / "disk.img", "results", tmp_path / "out") is None


def test_what_is_no_disk_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "disk.img").write_bytes(bytes(1 << 20))
    with pytest.raises(CapacityError, match="e2fsck"):
        replay_journal(tmp_path / "disk.img")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(CapacityError, match="cannot make the guest's disk"):
        make_disk(tmp_path / "absent" / "disk.img", 1 << 20, tmp_path)
