# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import pytest

from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.procstat import (
    ProcessStat,
    parse_stat,
    read_process_file,
    read_start_ticks,
    read_stat,
)
from pagetier.cgroups.roots import Roots

STAT = "77 (a) S (x) R " + " ".join(str(number) for number in range(4, 53))


def test_fields_3_9_and_22_whatever_the_name_holds() -> None:
    assert parse_stat(STAT) == ProcessStat("R", False, 22)
    assert parse_stat(STAT.replace(" 9 ", " 4228364 ")) == ProcessStat("R", True, 22)


@pytest.mark.parametrize("text", ["", "77 (a) S 1 2 3", STAT.replace(" 22 ", " x ")])
def test_malformed_stat(text: str) -> None:
    with pytest.raises(ParseError, match=r"field 22 \(starttime\)"):
        parse_stat(text)


def test_reads_under_the_root_and_gone_is_none(tmp_path: Path) -> None:
    (tmp_path / "77").mkdir()
    (tmp_path / "77/stat").write_text(STAT)
    roots = Roots(proc=tmp_path)
    assert read_stat(roots, 77) == parse_stat(STAT)
    assert read_start_ticks(roots, 77) == 22
    assert read_process_file(roots, 77, "status") is None
    assert (read_stat(roots, 78), read_start_ticks(roots, 78)) == (None, None)


def test_this_kernel_is_understood() -> None:
    stat = read_stat(Roots(), os.getpid())
    assert stat is not None
    assert stat.state == "R"
    assert stat.start_ticks > 0
