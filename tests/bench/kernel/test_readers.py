# SPDX-License-Identifier: Apache-2.0
"""Read counts of all processes, and what others read between two looks."""

from pathlib import Path

import pytest

from pagetier.bench.kernel.readers import Process, Readers, growth, read_readers
from pagetier.cgroups.errors import ParseError

OWN = 50


def process(proc: Path, pid: int, read_bytes: int, name: str = "dd", parent: int = 1) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    rest = " ".join(["0"] * 17)
    (folder / "stat").write_text(f"{pid} ({name}) S {parent} {rest} {pid * 10} 0\n")
    (folder / "io").write_text(f"rchar: 5\nsyscr: 1\nread_bytes: {read_bytes}\nwrite_bytes: 0\n")


def test_every_process_that_has_read(tmp_path: Path) -> None:
    process(tmp_path, 7, 4096, name="a) b (c", parent=3)
    process(tmp_path, 8, 0)
    (tmp_path / "meminfo").write_text("")
    (tmp_path / "9").mkdir()  # it has ended while we looked
    found = read_readers(tmp_path)
    assert found == Readers({(7, 70): Process("a) b (c", 3, 4096)}, hidden=0)


def test_a_process_without_a_readable_io_is_hidden(tmp_path: Path) -> None:
    process(tmp_path, 7, 4096)
    (tmp_path / "7/io").unlink()
    assert read_readers(tmp_path) == Readers({}, hidden=1)


def test_a_malformed_io_is_named(tmp_path: Path) -> None:
    process(tmp_path, 7, 4096)
    (tmp_path / "7/io").write_text("read_bytes: x\n")
    with pytest.raises(ParseError, match="7/io"):
        read_readers(tmp_path)


def readers(*found: tuple[int, int, int], hidden: int = 0) -> Readers:
    """(pid, parent, bytes) each, started at the tick of its pid."""
    return Readers({(pid, pid): Process(f"p{pid}", up, size) for pid, up, size in found}, hidden)


def test_growth_leaves_our_own_out_and_names_the_largest() -> None:
    before = readers((OWN, 1, 100), (2, 1, 1000), (3, 1, 500))
    after = readers((OWN, 1, 900), (2, 1, 1300), (3, 1, 500), (4, 1, 700))
    found = growth(before, after, OWN)
    assert found["read_bytes"] == 1000
    assert [item["pid"] for item in found["largest"]] == [4, 2]
    assert found["largest"][0] == {"pid": 4, "name": "p4", "read_bytes": 700}


def test_what_an_ended_child_had_read_before_is_not_its_parents_growth() -> None:
    before = readers((2, 1, 10), (3, 2, 5000))
    after = readers((2, 1, 10 + 5000 + 64))  # it was waited for, and read 64 more before its end
    found = growth(before, after, OWN)
    assert found["read_bytes"] == 64
    assert found["largest"] == [{"pid": 2, "name": "p2", "read_bytes": 64}]


def test_a_later_process_of_the_same_number_is_another() -> None:
    before = Readers({(2, 10): Process("old", 1, 5000)}, 0)
    after = Readers({(2, 99): Process("new", 1, 70)}, 0)
    assert growth(before, after, OWN)["read_bytes"] == 70


def test_hidden_processes_are_told(tmp_path: Path) -> None:
    found = growth(readers(hidden=1), readers((2, 1, 5), hidden=3), OWN)
    assert (found["read_bytes"], found["hidden"]) == (5, 3)
