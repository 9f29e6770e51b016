# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pagetier.cgroups.errors import CgroupError, ParseError
from pagetier.cgroups.members import (
    kill_members,
    make_directory,
    member_pids,
    remove_directory,
)


def cgroup(directory: Path, procs: str) -> Path:
    (directory / "cgroup.procs").write_text(procs)
    return directory


def test_members(tmp_path: Path) -> None:
    assert member_pids(tmp_path / "gone") == []
    assert member_pids(cgroup(tmp_path, "")) == []
    assert member_pids(cgroup(tmp_path, "7\n89\n")) == [7, 89]
    with pytest.raises(ParseError):
        member_pids(cgroup(tmp_path, "7\nx\n"))


def test_our_own_process_is_never_killed(tmp_path: Path) -> None:
    with pytest.raises(CgroupError, match="holds this very process"):
        kill_members(cgroup(tmp_path, f"{os.getpid()}\n"))


def test_a_process_of_another_namespace_cannot_be_killed(tmp_path: Path) -> None:
    with pytest.raises(CgroupError, match="another pid namespace"):
        kill_members(cgroup(tmp_path, "0\n"))


def test_a_member_that_will_not_go_is_named(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        with pytest.raises(CgroupError, match=rf"processes \[{process.pid}\] .* outlived"):
            kill_members(cgroup(tmp_path, f"{process.pid}\n"), timeout_s=0.05)
        assert process.wait(10) == -9


def test_a_pid_that_left_the_cgroup_is_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two looks the pid is taken over by a process that is not inside."""
    with subprocess.Popen(["sleep", "60"]) as process:
        answers = [[process.pid], [], []]
        monkeypatch.setattr("pagetier.cgroups.members.member_pids", lambda _: answers.pop(0))
        kill_members(tmp_path)
        assert process.poll() is None
        process.kill()


def test_a_dead_pid_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    answers = [[process.pid], []]
    monkeypatch.setattr("pagetier.cgroups.members.member_pids", lambda _: answers.pop(0))
    kill_members(tmp_path)


def test_make_names_what_stands_in_the_way(tmp_path: Path) -> None:
    make_directory(tmp_path / "a")
    with pytest.raises(CgroupError, match=r"a exists already"):
        make_directory(tmp_path / "a")
    with pytest.raises(CgroupError, match="cannot make the cgroup"):
        make_directory(tmp_path / "b/c")


def test_remove_retries_busy_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [errno.EBUSY, errno.EBUSY, errno.ENOENT]

    def rmdir(_: Path) -> None:
        number = errors.pop(0)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "rmdir", rmdir)
    remove_directory(tmp_path)
    assert errors == []
    errors = [errno.EBUSY] * 100
    with pytest.raises(CgroupError, match="busy"):
        remove_directory(tmp_path, timeout_s=0.02)
    errors = [errno.EACCES]
    with pytest.raises(CgroupError, match="Permission denied"):
        remove_directory(tmp_path)
