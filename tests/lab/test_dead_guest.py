# SPDX-License-Identifier: Apache-2.0
"""Guests and harnesses that die half way: a clear word, no process left, earlier cells kept."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from pagetier.analysis.errors import InputError
from pagetier.analysis.results import read_results
from pagetier.bench.journal import state_dir
from pagetier.bench.lab import run as lab_module
from pagetier.bench.lab.run import LabRequest, run_lab
from pagetier.capacity.errors import CapacityError
from pagetier.capacity.lab.machine import GuestFailure

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("lab")]

POOL_BYTES = 4 * 16 * 500_001

# Runs the campaign until its first cell is stored, then brings the kernel down.
PANIC = """
"$@" &
until grep -qs kept results/log.txt; do sleep 0.2; done
sleep 1
echo c > /proc/sysrq-trigger
sleep 60
"""


def campaign(folder: Path, repetitions: int) -> Path:
    path = folder / "small.yaml"
    document = {
        "trace": {"generate": {"layers": 4, "experts": 16, "top_k": 2, "iterations": 20}},
        "pool": {
            "path": "small-pool",
            "create": {"layers": 4, "experts": 16, "expert_bytes": 500_001},
        },
        "capacities": [24_000_000],
        "advice": "random",
        "repetitions": repetitions,
    }
    path.write_text(json.dumps(document))
    return path


def request(path: Path, output: Path, *, resume: bool = False) -> LabRequest:
    return LabRequest(path, output, ("6.12",), None, 1 << 30, 2, "virtio", None, 120.0, resume)


def finished(directory: Path) -> list[str]:
    return [cell.id for cell in read_results(directory).cells]


def guests(folder: Path) -> set[int]:
    """Pids of the guests whose files lie in a folder: others on this host are not ours."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if b"pagetier-lab" in words.split(b"\0") and os.fsencode(folder) in words:
            found.add(int(entry.name))
    return found


@pytest.fixture(autouse=True)
def no_guest_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert guests(tmp_path) == set()


def test_a_killed_harness_takes_its_guest_along_and_resumes(tmp_path: Path) -> None:
    """On 6.1, so that this kernel is booted too."""
    path, output = campaign(tmp_path, repetitions=2), tmp_path / "out"
    program = (sys.executable, "-m", "pagetier.bench.cli", "lab", "run", str(path))
    command = [*program, "-o", str(output), "--kernel", "6.1", "--memory", "1 GiB", "--json"]
    harness = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert harness.stderr is not None
    for line in harness.stderr:
        if "kept" in line:
            break
    started = guests(tmp_path)
    assert len(started) == 1
    harness.send_signal(signal.SIGKILL)
    harness.communicate()
    deadline = time.monotonic() + 1
    while guests(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not guests(tmp_path), "QEMU outlived its harness"
    assert not (output / "kernel-6.1" / "results.db").exists()
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("kept") == 1, "the first cell was kept through the kill"
    (run,) = json.loads(again.stdout)["runs"]
    assert [cell["state"] for cell in run["report"]["cells"]] == ["kept", "kept"]
    assert run["release"].startswith("6.1.")
    journals = [json.loads(file.read_text()) for file in state_dir().glob("*.json")]
    assert harness.pid not in [journal["owner"]["pid"] for journal in journals]


def test_a_panic_is_named_and_earlier_cells_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, output = campaign(tmp_path, repetitions=3), tmp_path / "out"
    script = tmp_path / "panic.sh"
    script.write_text(PANIC)
    program = ("/bin/sh", str(script), sys.executable, "-m", "pagetier.bench.cli", "run")
    with monkeypatch.context() as patch:
        patch.setattr(lab_module, "PROGRAM", program)
        with pytest.raises(GuestFailure) as caught:
            run_lab(request(path, output), Console(stderr=True))
    message = str(caught.value)
    assert message.startswith("the guest's kernel panicked; see its console ")
    assert str(output / "kernel-6.12" / "console.log") in message
    assert "sysrq triggered crash" in message
    assert len(finished(output / "kernel-6.12")) in (1, 2)


def test_a_full_host_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system of its own, smaller than the pool."""
    small = tmp_path / "small"
    small.mkdir()
    size = f"size={POOL_BYTES * 3 // 4}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "pagetier-test", str(small)], check=True)
    try:
        path = campaign(tmp_path, repetitions=1)
        with pytest.raises(InputError, match="free some space or name another directory"):
            run_lab(request(path, small / "out"), Console(stderr=True))
        monkeypatch.setattr(lab_module, "needed_bytes", lambda _campaign: 1 << 20)
        sized = LabRequest(
            path, small / "out", ("6.12",), None, 1 << 30, 2, "virtio", 512 << 20, 120.0, False
        )
        with pytest.raises(CapacityError, match=r"the host's disk is full .* --resume"):
            run_lab(sized, Console(stderr=True))
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert os.listdir(small) == []
