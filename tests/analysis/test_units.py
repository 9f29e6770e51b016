# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.errors import InputError
from pagetier.analysis.units import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("7.5 GB", 7_500_000_000),
        ("500 MiB", 500 * 2**20),
        ("500MB", 500_000_000),
        ("2 kb", 2000),
        ("1.5KiB", 1536),
        ("3 TB", 3 * 10**12),
        ("1 TiB", 2**40),
        ("13236480", 13_236_480),
        (" 17 B ", 17),
        ("0", 0),
        ("0.000001 MB", 1),
        (42, 42),
        (0, 0),
    ],
)
def test_sizes_are_exact(text: str | int, count: int) -> None:
    assert parse_bytes(text) == count


def test_paper_wall_of_256_gb_and_6_gib() -> None:
    # GB and GiB side by side, as in a published budget.
    assert parse_bytes("256 GB") + parse_bytes("6 GiB") == 262_442_450_944


@pytest.mark.parametrize("letter", ["K", "M", "G", "T", "g"])
def test_a_bare_letter_is_refused_with_both_readings(letter: str) -> None:
    with pytest.raises(InputError, match=f"{letter.upper()}B .*1000.*{letter.upper()}iB .*1024"):
        parse_bytes(f"5 {letter}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("-1", "not a size"),
        (-1, "negative"),
        ("1.5", "whole number of bytes"),
        ("1.0001 KB", "whole number of bytes"),
        ("five GB", "not a size"),
        ("1e3", "not a size"),
        ("", "not a size"),
        ("3 PB", "unknown unit 'PB'"),
        ("1,5 GB", "not a size"),
        ("\u0663 GB", "not a size"),
        ("99999999999999999 B", "not a size"),
        ("9999999999999999 TB", "larger than any file"),
        (True, "not a size"),
    ],
)
def test_what_is_no_size_is_named(text: str | int, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        parse_bytes(text)


@given(st.integers(0, 2**63 - 1))
def test_integers_pass_as_they_are(count: int) -> None:
    assert parse_bytes(count) == count


@given(st.integers(0, 10**9), st.sampled_from([("GB", 10**9), ("GiB", 2**30)]))
def test_whole_units_multiply(count: int, unit: tuple[str, int]) -> None:
    assert parse_bytes(f"{count} {unit[0]}") == count * unit[1]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 KB"),
        (13_236_480, "13.2 MB"),
        (999_499, "999 KB"),
        (999_500, "1.00 MB"),
        (999_999_999, "1.00 GB"),
        (500_000_000, "500 MB"),
        (99_950, "100 KB"),
        (9_996, "10.0 KB"),
        (7_500_000_000, "7.50 GB"),
        (1_450_000_000_000, "1.45 TB"),
        (-2_000_000, "-2.00 MB"),
        (1234.5, "1.23 KB"),
    ],
)
def test_three_significant_digits(count: float, text: str) -> None:
    assert format_bytes(count) == text


@given(st.integers(1000, 10**14))
def test_shown_size_is_within_half_a_percent(count: int) -> None:
    value, unit = format_bytes(count).split()
    scale = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}[unit]
    assert abs(float(value) * scale - count) <= 0.0051 * count
