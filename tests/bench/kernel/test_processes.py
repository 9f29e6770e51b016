# SPDX-License-Identifier: Apache-2.0
"""Files about processes: io, limits, capabilities, user-space OOM killers."""

from pathlib import Path

import pytest

from pagetier.bench.kernel.limits import (
    CAP_IPC_LOCK,
    Limit,
    Limits,
    has_capability,
    parse_limits,
    read_limits,
)
from pagetier.bench.kernel.oomkillers import OomKiller, read_oom_killers
from pagetier.bench.kernel.procio import ProcessIo, parse_process_io, read_process_io
from pagetier.cgroups.errors import ParseError

IO = """rchar: 1
wchar: 2
syscr: 3
syscw: 4
read_bytes: 5
write_bytes: 6
cancelled_write_bytes: 7
"""

# The kernel pads every column, the last one too.
LIMITS = "".join(
    f"{title:<25} {soft:<20} {hard:<20} {units:<10}\n"
    for title, soft, hard, units in (
        ("Limit", "Soft Limit", "Hard Limit", "Units"),
        ("Max cpu time", "unlimited", "unlimited", "seconds"),
        ("Max open files", "1024", "524288", "files"),
        ("Max locked memory", "8388608", "unlimited", "bytes"),
        ("Max nice priority", "0", "0", ""),
    )
)


def test_process_io() -> None:
    assert parse_process_io(IO) == ProcessIo(rchar_bytes=1, read_calls=3, read_bytes=5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (IO.replace("read_bytes: 5\n", ""), "no line 'read_bytes'"),
        (IO.replace("syscr: 3", "syscr: three"), r"io:3: syscr is 'three'"),
        ("nonsense\n", r"io:1: 'nonsense' has no colon"),
    ],
)
def test_malformed_process_io(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_process_io(text)


def test_process_io_reader(tmp_path: Path) -> None:
    assert read_process_io(tmp_path, 41) is None
    (tmp_path / "41").mkdir()
    (tmp_path / "41/io").write_text(IO)
    assert read_process_io(tmp_path, 41) == ProcessIo(1, 3, 5)
    (tmp_path / "41/io").write_text("")
    assert read_process_io(tmp_path, 41) is None


def test_limits() -> None:
    assert parse_limits(LIMITS) == Limits(
        memlock_bytes=Limit(8388608, None), open_files=Limit(1024, 524288)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no line 'Max locked memory'"),
        (LIMITS.replace("8388608", "8MiB"), "limits:4: Max locked memory is '8MiB'"),
        ("Max locked memory   8388608\n", "limits:1: 'Max locked memory' has no soft and hard"),
    ],
)
def test_malformed_limits(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_limits(text)


def test_limits_reader(tmp_path: Path) -> None:
    assert read_limits(tmp_path) is None
    (tmp_path / "self").mkdir()
    (tmp_path / "self/limits").write_text(LIMITS)
    limits = read_limits(tmp_path)
    assert limits is not None
    assert limits.open_files == Limit(1024, 524288)


@pytest.mark.parametrize(
    ("mask", "held"), [("000001ffffffffff", True), ("0000000000004000", True), ("bfff", False)]
)
def test_capability(tmp_path: Path, mask: str, held: bool) -> None:
    (tmp_path / "self").mkdir()
    status = f"Name:\tx\nCapPrm:\t0\nCapEff:\t{mask}\n"
    (tmp_path / "self/status").write_text(status)
    assert has_capability(tmp_path, CAP_IPC_LOCK) is held


def test_capability_unknown_and_malformed(tmp_path: Path) -> None:
    assert has_capability(tmp_path, CAP_IPC_LOCK) is None
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text("CapEff:\tall\n")
    with pytest.raises(ParseError, match="CapEff is 'all'"):
        has_capability(tmp_path, CAP_IPC_LOCK)


def test_oom_killers_by_command_name(tmp_path: Path) -> None:
    for pid, name in {9: "bash", 300: "earlyoom", 21: "systemd-oomd", 4: "earlyoom-x"}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
    (tmp_path / "5").mkdir()  # ended between listing and reading
    (tmp_path / "self").mkdir()
    (tmp_path / "self/comm").write_text("nohang\n")
    assert read_oom_killers(tmp_path) == (
        OomKiller(21, "systemd-oomd"),
        OomKiller(300, "earlyoom"),
    )


def test_no_oom_killer(tmp_path: Path) -> None:
    assert read_oom_killers(tmp_path) == ()
