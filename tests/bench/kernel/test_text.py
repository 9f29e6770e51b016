# SPDX-License-Identifier: Apache-2.0
"""Shared shapes of small kernel files, and files that stay open."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pagetier.bench.kernel.text import (
    HeldFile,
    parse_selected,
    read_count,
    read_line,
    read_selected,
    read_text,
)
from pagetier.cgroups.errors import ParseError


def test_missing_file_is_none(tmp_path: Path) -> None:
    assert read_text(tmp_path / "no") is None
    assert read_count(tmp_path / "no") is None
    assert read_line(tmp_path / "no") is None
    assert read_selected(tmp_path / "no") is None
    assert read_text(tmp_path / "no" / "deeper") is None


def test_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(" 17 [b]\n")
    assert (read_line(path), read_selected(path)) == ("17 [b]", "b")
    path.write_text("17\n")
    assert read_count(path) == 17
    path.write_text("a b\n")
    with pytest.raises(ParseError, match=f"^{path}:1: 'a b' does not mark one choice"):
        read_selected(path)


def test_other_errors_are_not_absence(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read_text(tmp_path)


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("always [madvise] never\n", "madvise"),
        ("none\n", "none"),
        ("[none] mq-deadline\n", "none"),
    ],
)
def test_selected(text: str, chosen: str) -> None:
    assert parse_selected(text, "f") == chosen


@pytest.mark.parametrize("text", ["", "a b", "[a] [b]"])
def test_no_single_selection(text: str) -> None:
    with pytest.raises(ParseError, match=r"^f:1: "):
        parse_selected(text, "f")


def test_held_file_reads_what_is_there_now(tmp_path: Path) -> None:
    path = tmp_path / "counter"
    path.write_text("1\n")
    with HeldFile(path) as held:
        assert held.read() == "1\n"
        path.write_text("23\n")
        assert held.read() == "23\n"
    assert held.read() is None


def test_held_file_reads_texts_larger_than_one_piece(tmp_path: Path) -> None:
    path = tmp_path / "large"
    text = "".join(f"line {number}\n" for number in range(20000))
    path.write_text(text)
    with HeldFile(path) as held:
        assert held.read() == text


def test_held_file_that_never_was(tmp_path: Path) -> None:
    with HeldFile(tmp_path / "no") as held:
        assert held.read() is None


def test_held_file_of_an_ended_process_is_none() -> None:
    with (
        subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        ) as process,
        HeldFile(Path(f"/proc/{process.pid}/status")) as held,
    ):
        assert f"Pid:\t{process.pid}\n" in (held.read() or "")
        process.communicate(b"\n")
        assert held.read() is None


def test_closing_twice_closes_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    held = HeldFile(path)
    held.close()
    fd = os.open(path, os.O_RDONLY)  # very likely the number that was just closed
    held.close()
    os.close(fd)
