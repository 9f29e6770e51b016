# SPDX-License-Identifier: Apache-2.0
"""The scripts that a guest runs, and how its job reaches them."""

import shlex
import subprocess
from pathlib import Path

import pytest

from pagetier.capacity.lab import guest
from pagetier.capacity.lab.guest import JOB, Job
from pagetier.capacity.lab.kernels import Kernel

KERNEL = Kernel("6.12", "6.12.1", Path("/nowhere"), ())


def job_files(job: Job) -> dict[str, bytes]:
    return {entry.path: entry.content for entry in guest._job_entries(job)}


@pytest.mark.parametrize("script", ["_INIT", "_STAGE2"])
def test_the_scripts_are_valid_shell(script: str) -> None:
    text = getattr(guest, script)
    subprocess.run(["/bin/sh", "-n"], input=text, text=True, check=True, capture_output=True)


def test_arguments_and_environment_arrive_unharmed() -> None:
    job = Job(["/bin/run", "it's", "$(x) y"], {"A": "1 2", "B": '"'}, {"c.yaml": b"text"})
    files = job_files(job)
    words = shlex.split(files["job/command"].decode())
    assert words == [
        *("exec", f"{JOB}/busybox", "env", "-i", "A=1 2", 'B="'),
        *("/bin/run", "it's", "$(x) y"),
    ]
    assert files["job/c.yaml"] == b"text"
    assert "job/available_kb" not in files


def test_the_wanted_memory_is_in_kib() -> None:
    files = job_files(Job([], {}, available_bytes=(2048, 5000)))
    assert files["job/available_kb"] == b"2 4\n"


def test_the_archive_has_modules_in_load_order(tmp_path: Path) -> None:
    modules = tuple(tmp_path / name for name in ("00-b.ko", "01-a.ko"))
    for path in modules:
        path.write_bytes(path.name.encode() * 3)
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"busybox program")
    kernel = Kernel("6.12", "6.12.1", tmp_path, modules)
    data = guest.make_initramfs(kernel, busybox, Job([], {}))
    assert b"modules/order\0" in data
    assert b"00-b.ko\n01-a.ko\n" in data
    assert b"busybox program" in data
