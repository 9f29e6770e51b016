# SPDX-License-Identifier: Apache-2.0
"""Records of /dev/kmsg and the OOM kills among them."""

import os
from pathlib import Path

import pytest

from pagetier.bench.kernel.kmsg import (
    KernelLog,
    LogRecord,
    OomKill,
    oom_kills,
    open_kernel_log,
    parse_record,
)
from pagetier.cgroups.errors import ParseError

GLOBAL = "Out of memory: Killed process 41 (python3) total-vm:1kB, anon-rss:2kB, UID:0"
CGROUP = "Memory cgroup out of memory: Killed process 42 (a (b) c) total-vm:3kB, anon-rss:4kB"
ANNOUNCED = "Out of memory: Kill process 43 (old) score 9 or sacrifice child"
OLD = "Killed process 43 (old) total-vm:5kB, anon-rss:6kB, file-rss:7kB"


def record(message: str) -> LogRecord:
    return LogRecord(sequence=1, at_us=2, message=message)


def test_record_leaves_out_its_dictionary() -> None:
    text = "6,1234,5678901,-;nvme0n1: a; b\n SUBSYSTEM=block\n DEVICE=b259:0\n"
    assert parse_record(text) == LogRecord(1234, 5678901, "nvme0n1: a; b")


def test_record_with_more_header_fields() -> None:
    text = "6,12,34,c,caller=T1;text\n"
    assert parse_record(text) == LogRecord(12, 34, "text")


@pytest.mark.parametrize("text", ["", "6,1;text", "6,1,2,-", "6,x,2,-;text", "6,1,x,-;text"])
def test_malformed_record(text: str) -> None:
    with pytest.raises(ParseError, match=r"^/dev/kmsg"):
        parse_record(text)


def test_oom_kills_of_every_kernel() -> None:
    messages = ["oom_reaper: reaped process 41 (python3)", GLOBAL, CGROUP, ANNOUNCED, OLD]
    kills = oom_kills([record(message) for message in messages])
    assert kills == [
        OomKill(41, "python3", GLOBAL),
        OomKill(42, "a (b) c", CGROUP),
        OomKill(43, "old", OLD),
    ]
    assert [kill.in_cgroup for kill in kills] == [False, True, False]


def test_absent_device_is_none(tmp_path: Path) -> None:
    assert open_kernel_log(tmp_path / "kmsg") is None


def test_forbidden_device_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "open", refuse)
    assert open_kernel_log() is None


def test_overwritten_records_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[bytes | OSError] = [
        b"6,1,10,-;first\n",
        BrokenPipeError(),
        b"6,9,90,-;ninth\n",
        BlockingIOError(),
    ]

    def read(_fd: int, _size: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(os, "read", read)
    log = KernelLog(-1)
    assert [entry.message for entry in log.read()] == ["first", "ninth"]
    assert log.lost == 1


def test_only_what_comes_after_the_mark(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"  # a file serves one record per read when it holds no more
    path.write_text("6,1,10,-;before\n")
    log = open_kernel_log(path)
    assert log is not None
    with log:
        assert log.read() == []
        with path.open("a") as file:
            file.write("6,2,20,-;after\n")
        assert log.read() == [LogRecord(2, 20, "after")]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(log._fd)
