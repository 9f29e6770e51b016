# SPDX-License-Identifier: Apache-2.0
"""diskstats of every age: same counters, whatever the number of columns."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.bench.kernel.diskstats import DiskCounters, parse_diskstats, read_diskstats
from pagetier.cgroups.errors import ParseError

COLUMNS_14 = " 259       0 nvme0n1 101 102 103 104 105 106 107 108 109 110 111"
NVME = DiskCounters(
    major=259,
    minor=0,
    name="nvme0n1",
    reads=101,
    reads_merged=102,
    sectors_read=103,
    writes=105,
    writes_merged=106,
    sectors_written=107,
)


@pytest.mark.parametrize("more", [0, 4, 6, 11])
def test_14_18_20_and_25_columns_read_the_same(more: int) -> None:
    extra = "".join(f" {200 + index}" for index in range(more))
    assert parse_diskstats(f"{COLUMNS_14}{extra}\n") == {(259, 0): NVME}


def test_trailing_blanks_and_other_devices() -> None:
    text = (
        "   7       0 loop0 1 0 2 0 0 0 0 0 0 0 0   \n"
        "  11       0 sr0 0 0 0 0 0 0 0 0 0 0 0 \t\n"
        f"{COLUMNS_14}   \n"
        "\n"
    )
    disks = parse_diskstats(text)
    assert list(disks) == [(7, 0), (11, 0), (259, 0)]
    assert disks[259, 0] == NVME
    assert disks[7, 0].read_bytes == 1024


def test_disk_and_partition_stay_two_lines() -> None:
    partition = " 259       3 nvme0n1p3 11 12 13 14 15 16 17 18 19 20 21\n"
    disks = parse_diskstats(f"{COLUMNS_14}\n{partition}")
    assert disks[259, 0].sectors_read == 103
    assert disks[259, 3].sectors_read == 13


def test_only_skips_the_others() -> None:
    text = f"   8       0 sda 1 2 3 4 5 6 7 8 9 10 11\n{COLUMNS_14}\n"
    assert parse_diskstats(text, only={(259, 0)}) == {(259, 0): NVME}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("259 0 nvme0n1 1 2 3 4 5 6 7 8 9 10\n", r"^/proc/diskstats:1: 13 columns"),
        ("259 1 p1 1 2 3 4\n", r"^/proc/diskstats:1: 7 columns"),
        (COLUMNS_14.replace("103", "6.85942e+09"), r"^/proc/diskstats:1: sectors_read is '6.85942"),
        (f"{COLUMNS_14}\nx 0 a 1 2 3 4 5 6 7 8 9 10 11", r"^/proc/diskstats:2: major is 'x'"),
    ],
)
def test_malformed(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_diskstats(text)


def test_reader(tmp_path: Path) -> None:
    assert read_diskstats(tmp_path) is None
    (tmp_path / "diskstats").write_text(COLUMNS_14)
    assert read_diskstats(tmp_path) == {(259, 0): NVME}


@given(st.lists(st.integers(0, 2**64), min_size=11, max_size=30))
def test_big_counters_stay_exact(numbers: list[int]) -> None:
    line = "8 16 sdb " + " ".join(map(str, numbers))
    disk = parse_diskstats(line)[8, 16]
    assert (disk.reads, disk.sectors_read) == (numbers[0], numbers[2])
    assert disk.read_bytes == numbers[2] * 512
