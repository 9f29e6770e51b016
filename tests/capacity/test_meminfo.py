# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from pagetier.capacity.meminfo import parse_meminfo, read_meminfo
from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.roots import Roots

TEXT = """\
MemTotal:       24684176 kB
MemFree:             101 kB
MemAvailable:        102 kB
Cached:              103 kB
Unevictable:         104 kB
Mlocked:             105 kB
SwapTotal:           106 kB
SwapFree:            107 kB
Active(file):        108 kB
HugePages_Total:     109
Hugepagesize:       2048 kB
"""


def test_each_number_lands_in_its_own_field_in_bytes() -> None:
    meminfo = parse_meminfo(TEXT)
    assert meminfo.total_bytes == 24684176 * 1024
    assert meminfo.free_bytes == 101 * 1024
    assert meminfo.available_bytes == 102 * 1024
    assert meminfo.cached_bytes == 103 * 1024
    assert meminfo.unevictable_bytes == 104 * 1024
    assert meminfo.mlocked_bytes == 105 * 1024
    assert meminfo.swap_total_bytes == 106 * 1024
    assert meminfo.swap_free_bytes == 107 * 1024
    assert meminfo.bytes_by_name["Active(file)"] == 108 * 1024


def test_a_line_without_a_unit_is_a_count() -> None:
    meminfo = parse_meminfo(TEXT)
    assert meminfo.counts_by_name == {"HugePages_Total": 109}
    assert "HugePages_Total" not in meminfo.bytes_by_name


def test_absent_is_none() -> None:
    meminfo = parse_meminfo("MemTotal: 1 kB\n")
    assert meminfo.available_bytes is None
    assert meminfo.mlocked_bytes is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "m: no MemTotal line"),
        ("MemFree: 1 kB\n", "m: no MemTotal line"),
        ("MemTotal: 1 kB\nMemFree: x kB\n", "m:2: expected"),
        ("MemTotal: 1 MB\n", "m:1: expected"),
        ("MemTotal: -1 kB\n", "m:1: expected"),
        ("MemTotal: 1 kB\nMemTotal: 1 kB\n", "m:2: MemTotal appears twice"),
    ],
)
def test_malformed_text_names_its_line(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_meminfo(text, "m")
    assert str(caught.value).startswith(message)


def test_reads_under_the_root(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(TEXT)
    assert read_meminfo(Roots(proc=tmp_path)) == parse_meminfo(TEXT)


def test_this_kernel_is_understood() -> None:
    meminfo = read_meminfo(Roots())
    assert meminfo.available_bytes is not None
    assert 0 < meminfo.available_bytes <= meminfo.total_bytes
