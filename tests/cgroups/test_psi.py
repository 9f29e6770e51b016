# SPDX-License-Identifier: Apache-2.0
import errno
import os
from pathlib import Path

import pytest

from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.psi import Pressure, PsiLine, parse_pressure, read_pressure

SOME = "some avg10=1.25 avg60=2.50 avg300=3.75 total=400\n"
FULL = "full avg10=5.25 avg60=6.50 avg300=7.75 total=8000000000000\n"


def test_each_number_lands_in_its_own_field() -> None:
    expected = Pressure(PsiLine(1.25, 2.5, 3.75, 400), PsiLine(5.25, 6.5, 7.75, 8 * 10**12))
    assert parse_pressure(SOME + FULL) == expected
    assert parse_pressure(FULL + SOME) == expected


def test_a_missing_line_is_none() -> None:
    assert parse_pressure(SOME).full is None
    assert parse_pressure(FULL).some is None


def test_a_future_key_and_a_future_line_are_passed_over() -> None:
    text = SOME.replace(" total", " avg900=9.00 total") + "most avg10=1.00\n"
    assert parse_pressure(text) == parse_pressure(SOME)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "p: neither"),
        ("some avg10=1 avg60=1 avg300=1\n", "p:1: total is missing"),
        ("some avg10=x avg60=1 avg300=1 total=1\n", "p:1: bad number"),
        ("some avg10=1 avg60=1 avg300=1 total=1.5\n", "p:1: bad number"),
        (SOME + SOME, "p:2: some appears twice"),
    ],
)
def test_malformed_text_names_its_line(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_pressure(text, "p")
    assert str(caught.value).startswith(message)


def test_reads_a_file_and_names_it_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "memory.pressure"
    path.write_text(SOME)
    assert read_pressure(path) == parse_pressure(SOME)
    path.write_text("some\n")
    with pytest.raises(ParseError, match=str(path)):
        read_pressure(path)


def test_no_file_is_none(tmp_path: Path) -> None:
    assert read_pressure(tmp_path / "memory.pressure") is None


@pytest.mark.parametrize(("number", "absent"), [(errno.EOPNOTSUPP, True), (errno.EACCES, False)])
def test_disabled_is_none_and_other_errors_are_errors(
    monkeypatch: pytest.MonkeyPatch, number: int, absent: bool
) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "read_text", refuse)
    if absent:
        assert read_pressure(Path("/p")) is None
        return
    with pytest.raises(PermissionError):
        read_pressure(Path("/p"))
