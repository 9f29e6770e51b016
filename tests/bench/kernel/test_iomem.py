# SPDX-License-Identifier: Apache-2.0
"""Ranges of RAM in the address space."""

from pathlib import Path

import pytest

from pagetier.bench.kernel.iomem import parse_system_ram, read_system_ram
from pagetier.cgroups.errors import ParseError

TEXT = """00000000-00000fff : Reserved
00001000-0009fbff : System RAM
  00002000-00002fff : System RAM
000f0000-000fffff : System ROM
100000000-63fffffff : System RAM
"""


def test_ranges_end_after_their_last_byte() -> None:
    assert parse_system_ram(TEXT) == ((0x1000, 0x9FC00), (0x100000000, 0x640000000))


def test_addresses_are_hidden_from_most() -> None:
    hidden = "00000000-00000000 : System RAM\n00000000-00000000 : System RAM\n"
    assert parse_system_ram(hidden) is None
    assert parse_system_ram("") is None


@pytest.mark.parametrize("line", ["1000 : System RAM", "x-y : System RAM", "0-1"])
def test_malformed(line: str) -> None:
    with pytest.raises(ParseError, match=r"^/proc/iomem:1: .* is not `start-end : name`"):
        parse_system_ram(line)


def test_reader(tmp_path: Path) -> None:
    assert read_system_ram(tmp_path) is None
    (tmp_path / "iomem").write_text(TEXT)
    assert read_system_ram(tmp_path) == parse_system_ram(TEXT)
