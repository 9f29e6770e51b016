# SPDX-License-Identifier: Apache-2.0
import errno
from pathlib import Path

import pytest

from pagetier.cgroups.errors import CgroupError, ParseError
from pagetier.cgroups.files import (
    parse_count,
    parse_limit,
    read_count,
    read_optional,
    read_text,
    write_value,
)


def test_counts_and_limits() -> None:
    assert parse_count("6859421234567890123456\n", "f") == 6859421234567890123456
    assert parse_limit("123\n") == 123
    assert parse_limit("max\n") is None


@pytest.mark.parametrize(
    "text", ["", "max", "-1", "1.5", "6.85942e+09", "0x10", "1 2", "\u0663", "\u00b2", "+1"]
)
def test_no_count_names_place_and_field(text: str) -> None:
    with pytest.raises(ParseError, match=r"^/proc/f:7: sectors_read is "):
        parse_count(text, "/proc/f", 7, "sectors_read")
    with pytest.raises(ParseError, match=r"^f:1: value is "):
        parse_count(text, "f")


def test_absent_is_none_only_where_that_is_asked_for(tmp_path: Path) -> None:
    absent = tmp_path / "memory.peak"
    assert read_optional(absent) is None
    assert read_count(absent) is None
    with pytest.raises(CgroupError, match=f"cannot read {absent}: No such file"):
        read_text(absent)


def test_unreadable_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CgroupError, match="Is a directory"):
        read_optional(tmp_path)


def test_write_never_creates(tmp_path: Path) -> None:
    path = tmp_path / "memory.max"
    with pytest.raises(CgroupError, match=f"cannot write '1' to {path}") as caught:
        write_value(path, "1")
    assert caught.value.errno == errno.ENOENT
    assert not path.exists()
    path.touch()
    write_value(path, "12")
    assert path.read_text() == "12"
