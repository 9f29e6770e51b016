# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import pytest

from pagetier.tiers.mappings import (
    Holder,
    Holders,
    MappedFile,
    MapsError,
    find_holders,
    parse_maps,
)

MAPS = """\
55d0c8a00000-55d0c8a02000 r--p 00000000 fe:01 1234567                    /usr/bin/llama-server
55d0c9c00000-55d0c9c21000 rw-p 00000000 00:00 0                          [heap]
7f10a0000000-7f10a0001000 r--s 00001000 fd:1f 42                     /pool/layer 0/a.bin (deleted)
7f10b0000000-7f10b0001000 rw-p 00000000 00:00 0\x20
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
"""

SMAPS = """\
7f10a0000000-7f10a0001000 r--s 00000000 fe:01 41                         /pool/a.bin
Size:                  4 kB
Locked:                4 kB
THPeligible:           0
VmFlags: rd sh mr mw me ms lo sd\x20
7f10b0000000-7f10b0001000 rw-p 00000000 00:00 0\x20
Size:                  4 kB
VmFlags: rd wr mr mw me lo ac sd\x20
7f10c0000000-7f10c0001000 r--s 00000000 fe:01 43                         /pool/b.bin
Private_Hugetlb:       0 kB
VmFlags: rd sh mr mw me ms sd\x20
"""


def test_maps_lists_file_mappings_only() -> None:
    assert parse_maps(MAPS) == [
        MappedFile(os.makedev(0xFE, 1), 1234567, "/usr/bin/llama-server", None),
        MappedFile(os.makedev(0xFD, 0x1F), 42, "/pool/layer 0/a.bin", None),
    ]


def test_smaps_tells_what_is_locked() -> None:
    device = os.makedev(0xFE, 1)
    assert parse_maps(SMAPS) == [
        MappedFile(device, 41, "/pool/a.bin", True),
        MappedFile(device, 43, "/pool/b.bin", False),
    ]


def test_kernel_threads_have_an_empty_text() -> None:
    assert parse_maps("") == []


@pytest.mark.parametrize(
    "line",
    [
        "55d0c8a00000-55d0c8a02000 r--p 00000000 fe:01",
        "55d0c8a00000 r--p 00000000 fe:01 12 /x",
        "55d0c8a00000-55d0c8a02000 r--q 00000000 fe:01 12 /x",
        "",
        "garbage",
    ],
)
def test_a_malformed_line_is_named(line: str) -> None:
    with pytest.raises(MapsError, match=r"^/proc/7/maps:2: is not a mapping"):
        parse_maps(MAPS.splitlines()[0] + "\n" + line + "\n", "/proc/7/maps")


def test_separators_inside_a_path_are_part_of_it() -> None:
    line = "7f10a0000000-7f10a0001000 r--s 00000000 fe:01 41    /pool/a\x85b\x1cc\x0c.bin\n"
    assert parse_maps(line)[0].path == "/pool/a\x85b\x1cc\x0c.bin"


def process(proc: Path, pid: int, name: str, maps: str = "", smaps: str = "") -> Path:
    directory = proc / str(pid)
    (directory / "fd").mkdir(parents=True)
    (directory / "comm").write_text(name + "\n")
    (directory / "maps").write_text(maps)
    (directory / "smaps").write_text(smaps)
    return directory


def test_finds_holders_by_inode_by_path_and_by_descriptor(empty_proc: Path, disk: Path) -> None:
    file = disk / "file"
    file.write_text("x")
    status = file.stat()
    process(empty_proc, 30, "locker", SMAPS.split("\n")[0] + "\n", SMAPS)
    process(empty_proc, 4, "mapper", MAPS, MAPS)
    process(empty_proc, 200, "bystander", MAPS, MAPS)
    (empty_proc / "200" / "maps").write_text(MAPS.splitlines()[0] + "\n")
    reader = process(empty_proc, 100, "reader")
    (reader / "fd" / "3").symlink_to(file)
    (reader / "fd" / "4").symlink_to("/nonexistent")
    (empty_proc / "self").symlink_to("100")
    (empty_proc / "meminfo").write_text("")
    files = frozenset({(os.makedev(0xFE, 1), 41), (status.st_dev, status.st_ino)})
    holders = find_holders(empty_proc, files, frozenset({"/pool/layer 0/a.bin"}))
    assert holders == Holders(
        (
            Holder(4, "mapper", "mapped"),
            Holder(30, "locker", "mapped and locked"),
            Holder(100, "reader", "open"),
        ),
        0,
    )
    assert str(holders.found[0]) == "mapped by pid 4 (mapper)"


def test_a_process_that_ends_meanwhile_is_skipped(empty_proc: Path) -> None:
    (empty_proc / "9").mkdir()
    assert find_holders(empty_proc, frozenset(), frozenset()) == Holders((), 0)


def test_a_closed_process_is_counted(empty_proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(empty_proc, 9, "secret")

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert find_holders(empty_proc, frozenset(), frozenset()) == Holders((), 1)


def test_reads_this_kernel(disk: Path) -> None:
    holders = find_holders(Path("/proc"), frozenset(), frozenset({os.path.realpath("/bin/sh")}))
    assert all(holder.how.startswith("mapped") for holder in holders.found)
    own = parse_maps(Path("/proc/self/smaps").read_text())
    assert own
    assert {mapping.locked for mapping in own} == {False}
