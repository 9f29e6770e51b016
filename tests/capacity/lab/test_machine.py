# SPDX-License-Identifier: Apache-2.0
"""A guest as its harness sees it: shell scripts stand for QEMU; each ending has its sentence."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pagetier.capacity.errors import CapacityError
from pagetier.capacity.lab.machine import (
    Ending,
    Guest,
    GuestFailure,
    Patience,
    console_tail,
    reap_guest,
)
from pagetier.cgroups.procstat import read_start_ticks
from pagetier.cgroups.roots import Roots

ROOTS = Roots()
UP = 'echo "pagetier-lab: up 1000 800"; '


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def gone_within_1_s(pid: int) -> bool:
    deadline = time.monotonic() + 1
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)


Run = Callable[..., tuple[Ending, list[str]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(
        script: str, console: str = "", boot_s: float = 10, silence_s: float = 10
    ) -> tuple[Ending, list[str]]:
        path, lines = tmp_path / "console.log", list[str]()
        path.write_text(console)
        guest = Guest(["/bin/sh", "-c", script], path, Patience(boot_s, silence_s))
        try:
            with guest:
                return guest.run(lines.append), lines
        finally:
            assert not alive(guest.pid)

    return run


def test_a_job_ends_with_its_status_and_last_words(run: Run) -> None:
    ending, lines = run(f"{UP} printf 'one\\r\\ntwo\\n'; echo 'pagetier-lab: ended 3'")
    assert (ending.status, ending.total_bytes, ending.available_bytes) == (3, 1024000, 819200)
    assert lines == ["one", "two"]
    assert ending.errors == ("one", "two")
    assert 0 <= ending.boot_s < 10


def test_a_gauge_that_misses_is_told(run: Run) -> None:
    ending, _ = run(f"{UP} echo 'pagetier-lab: gauge 800'")
    assert (ending.status, ending.available_bytes) == (None, 819200)


def test_a_probe_is_only_to_come_up(run: Run) -> None:
    ending, _ = run("echo 'pagetier-lab: up'")
    assert (ending.status, ending.total_bytes) == (None, None)


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("sleep 60", "the guest did not come up within 2 s"),
        (f"{UP} sleep 60", "the guest said nothing for 0.3 s"),
        ("echo 'pagetier-lab: stopped cannot mount it'", "the guest cannot mount it"),
        ("echo no such machine; exit 1", r"QEMU ended with status 1 \(no such machine\)"),
        (UP, "switched off before its job was done"),
    ],
)
def test_every_other_ending_is_a_sentence_with_the_console(
    run: Run, script: str, sentence: str
) -> None:
    with pytest.raises(GuestFailure, match=sentence) as caught:
        run(script, "first\r\n\r\nlast words\r\n", boot_s=2, silence_s=0.3)
    assert "console.log, which ends with:\n    first\n    last words" in str(caught.value)


def test_a_panic_is_told_from_a_reset(run: Run) -> None:
    console = "boot\ncause\nKernel panic - not syncing: oh\n" + "trace\n" * 40
    with pytest.raises(GuestFailure, match="kernel panicked") as caught:
        run(UP, console)
    assert "cause\n    Kernel panic - not syncing: oh\n    trace" in str(caught.value)


def test_the_tail_is_short_and_starts_before_a_panic() -> None:
    assert console_tail("") == []
    assert console_tail("\n".join(map(str, range(99)))) == [str(n) for n in range(87, 99)]
    assert console_tail("a\nb\nKernel panic\n" + "c\n" * 30)[:3] == ["b", "Kernel panic", "c"]


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    guest = Guest(["no-such-qemu"], tmp_path / "c", Patience(1, 1))
    with pytest.raises(CapacityError, match="no-such-qemu is not installed"):
        guest.__enter__()


def test_a_guest_ends_with_an_exception(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        Guest(["sleep", "60"], tmp_path / "c", Patience(1, 1)) as guest,
    ):
        pid = guest.pid
        raise KeyboardInterrupt
    assert not alive(pid)


HARNESS = """
import sys, time
from pathlib import Path
from pagetier.capacity.lab.machine import Guest, Patience
with Guest(["sleep", "60"], Path("/nowhere"), Patience(1, 1)) as guest:
    time.sleep(0.3)
    print(guest.pid, flush=True)
    time.sleep(60)
"""


def test_a_guest_dies_with_kill_9_of_its_harness() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS], stdout=subprocess.PIPE, env=environment, text=True
    )
    assert harness.stdout is not None
    pid = int(harness.stdout.readline())
    assert alive(pid)
    harness.send_signal(signal.SIGKILL)
    harness.communicate()
    assert gone_within_1_s(pid)


def test_only_a_guest_of_that_start_time_is_reaped() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        ticks = read_start_ticks(ROOTS, other.pid)
        assert ticks is not None
        assert not reap_guest(other.pid, ticks, ROOTS), "its command line is none of a guest"
        assert other.poll() is None
        other.kill()
    named = ["-c", "import time; time.sleep(60)", "qemu-system-x86_64"]
    with subprocess.Popen([sys.executable, *named]) as guest:
        time.sleep(0.1)
        ticks = read_start_ticks(ROOTS, guest.pid)
        assert ticks is not None
        assert not reap_guest(guest.pid, ticks + 1, ROOTS)
        assert reap_guest(guest.pid, ticks, ROOTS)
        assert guest.wait(5) == -signal.SIGKILL
    assert not reap_guest(guest.pid, ticks, ROOTS), "gone already"
