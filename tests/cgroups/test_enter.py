# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from pathlib import Path

import pytest

from pagetier.cgroups.joining import enter_command

PRINT_ARGUMENTS = [sys.executable, "-c", "import sys; print(sys.argv[1:])"]


def run(files: list[Path], argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(enter_command(files, argv), capture_output=True, text=True, check=False)


def procs_file(directory: Path, name: str) -> Path:
    path = directory / name
    path.touch()
    return path


def test_joins_every_file_then_becomes_the_program(tmp_path: Path) -> None:
    files = [procs_file(tmp_path, name) for name in ("memory", "blk io")]
    done = run(files, [*PRINT_ARGUMENTS, "--", "a b", "--"])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "['--', 'a b', '--']\n"
    assert [path.read_text() for path in files] == ["0", "0"]


def test_the_pid_stays_and_the_exit_status_is_the_program_s(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import os, sys; print(os.getpid()); sys.exit(7)"]
    command = enter_command([procs_file(tmp_path, "procs")], argv)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        out, _ = process.communicate()
    assert int(out) == process.pid
    assert process.returncode == 7


def test_runs_without_our_environment_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "os.py").write_text("raise SystemExit(9)")
    command = enter_command([procs_file(tmp_path, "procs")], ["/bin/true"])
    assert subprocess.run(command, cwd=tmp_path, env={}, check=False).returncode == 0


def test_a_cgroup_that_cannot_be_joined_starts_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    done = run([tmp_path / "absent"], ["touch", str(marker)])
    assert done.returncode == 125
    assert done.stderr == (
        f"pagetier.cgroups.enter: cannot join the cgroup of {tmp_path}/absent: "
        "No such file or directory\n"
    )
    assert not marker.exists()


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    done = run([procs_file(tmp_path, "procs")], ["no-such-program"])
    assert done.returncode == 125
    assert done.stderr.startswith("pagetier.cgroups.enter: cannot start no-such-program: No such")


@pytest.mark.parametrize(("files", "argv"), [([], ["true"]), (["procs"], [])])
def test_usage(tmp_path: Path, files: list[str], argv: list[str]) -> None:
    done = run([procs_file(tmp_path, name) for name in files], argv)
    assert done.returncode == 125
    assert "usage: enter PROCS_FILE... -- PROGRAM" in done.stderr
