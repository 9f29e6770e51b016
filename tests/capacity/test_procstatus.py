# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import pytest

from pagetier.capacity.procstatus import (
    ProcessStatus,
    parse_status,
    read_anon_huge_bytes,
    read_status,
)
from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.roots import Roots

STATUS = """\
Name:\tVmLck: 9 kB
Pid:\t77
VmLck:\t     101 kB
VmHWM:\t     102 kB
VmRSS:\t     103 kB
VmSwap:\t     104 kB
"""
SMAPS_ROLLUP = """\
55d0-7ffe ---p 00000000 00:00 0                          [rollup]
AnonHugePages:       105 kB
ShmemPmdMapped:      106 kB
"""


def test_each_number_lands_in_its_own_field_in_bytes() -> None:
    expected = ProcessStatus(
        vm_lck_bytes=101 * 1024,
        vm_hwm_bytes=102 * 1024,
        vm_rss_bytes=103 * 1024,
        vm_swap_bytes=104 * 1024,
    )
    assert parse_status(STATUS) == expected


def test_a_process_without_memory_has_none() -> None:
    assert parse_status("Name:\tkthreadd\nPid:\t2\n") == ProcessStatus(None, None, None, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "s: no Pid line"),
        ("Pid:\t1\nVmLck:\t1\n", "s:2: expected `VmLck: <n> kB`"),
        ("Pid:\t1\nVmRSS:\tx kB\n", "s:2: expected `VmRSS: <n> kB`"),
    ],
)
def test_malformed_text_names_its_line(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_status(text, "s")
    assert str(caught.value).startswith(message)


def test_reads_under_the_root(tmp_path: Path) -> None:
    (tmp_path / "77").mkdir()
    (tmp_path / "77/status").write_text(STATUS)
    (tmp_path / "77/smaps_rollup").write_text(SMAPS_ROLLUP)
    roots = Roots(proc=tmp_path)
    assert read_status(roots, 77) == parse_status(STATUS)
    assert read_anon_huge_bytes(roots, 77) == 105 * 1024
    (tmp_path / "77/smaps_rollup").write_text("AnonHugePages: x\n")
    with pytest.raises(ParseError, match="77/smaps_rollup:1: expected `AnonHugePages: <n> kB`"):
        read_anon_huge_bytes(roots, 77)


def test_a_process_that_is_gone_has_none(tmp_path: Path) -> None:
    roots = Roots(proc=tmp_path)
    assert (read_status(roots, 78), read_anon_huge_bytes(roots, 78)) == (None, None)


def test_this_kernel_is_understood() -> None:
    status = read_status(Roots(), os.getpid())
    assert status is not None
    assert status.vm_rss_bytes is not None
    assert status.vm_rss_bytes > 0
