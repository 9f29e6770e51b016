# SPDX-License-Identifier: Apache-2.0
"""The balloon with a few pages, small enough for the default RLIMIT_MEMLOCK of anyone."""

import mmap
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.capacity.balloon import (
    Balloon,
    BalloonProcess,
    HugePages,
    Order,
    plan_balloon,
    reap,
)
from pagetier.capacity.errors import CapacityError
from pagetier.capacity.meminfo import Meminfo
from pagetier.capacity.procstatus import ProcessStatus
from pagetier.cgroups.procstat import ProcessStat, read_start_ticks
from pagetier.cgroups.roots import Roots

PAGE = mmap.PAGESIZE
GIB = 2**30
ROOTS = Roots()


def available(size_bytes: int) -> Meminfo:
    return Meminfo({"MemTotal": 2**50, "MemAvailable": size_bytes}, {})


def small(pages: int = 16) -> BalloonProcess:
    return BalloonProcess(pages * PAGE, roots=ROOTS, floor_bytes=0, step_bytes=4 * PAGE)


def is_gone(pid: int) -> bool:
    """Dead, or dead and waiting for its parent."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def await_gone(pid: int, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if is_gone(pid):
            return True
        time.sleep(0.01)
    return False


@given(
    st.integers(0, 2**45),
    st.integers(0, 2**45),
    st.integers(0, 2**34),
    st.sampled_from([4096, 16384, 65536]),
)
def test_plan_leaves_the_capacity_or_refuses(
    free: int, capacity: int, floor: int, page: int
) -> None:
    try:
        lock = plan_balloon(available(free), capacity, floor, page)
    except CapacityError:
        assert capacity < floor or free - capacity < page
        return
    assert lock > 0
    assert lock % page == 0
    assert capacity >= floor
    assert 0 <= (free - lock) - capacity < page


def test_plan_refuses_below_the_floor_with_both_numbers() -> None:
    message = f"leaves {2 * GIB - 1} bytes would cross the floor of {2 * GIB}"
    with pytest.raises(CapacityError, match=message):
        plan_balloon(available(64 * GIB), 2 * GIB - 1, 2 * GIB)
    assert plan_balloon(available(64 * GIB), 2 * GIB, 2 * GIB) == 62 * GIB


def test_plan_refuses_what_is_not_available_anyway() -> None:
    with pytest.raises(CapacityError, match=f"MemAvailable is {4 * GIB} already"):
        plan_balloon(available(4 * GIB), 4 * GIB, 2 * GIB)


def test_plan_needs_mem_available() -> None:
    with pytest.raises(CapacityError, match="no MemAvailable"):
        plan_balloon(Meminfo({"MemTotal": 1}, {}), 2 * GIB, 0)


@pytest.mark.parametrize("order", ["touch-lock", "lock-touch"])
@pytest.mark.parametrize("huge_pages", ["on", "off"])
def test_every_page_is_locked_before_it_is_ready(order: Order, huge_pages: HugePages) -> None:
    balloon = BalloonProcess(
        17 * PAGE,
        roots=ROOTS,
        floor_bytes=0,
        step_bytes=4 * PAGE,
        order=order,
        huge_pages=huge_pages,
    )
    with balloon:
        assert balloon.vm_lck_bytes() == 17 * PAGE
        assert balloon.problems() == []
        assert Path(f"/proc/{balloon.pid}/oom_score_adj").read_text() == "1000\n"
        pid = balloon.pid
    assert is_gone(pid)


@pytest.mark.parametrize("size_bytes", [0, -PAGE, PAGE + 1])
def test_only_whole_pages(size_bytes: int) -> None:
    with pytest.raises(CapacityError, match="no positive multiple of a page"):
        BalloonProcess(size_bytes, roots=ROOTS)


def test_grows_in_steps_and_looks_before_each(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [available(free * PAGE) for free in (100, 100, 22)]
    monkeypatch.setattr("pagetier.capacity.balloon.read_meminfo", lambda _: answers.pop(0))
    balloon = BalloonProcess(16 * PAGE, roots=ROOTS, floor_bytes=20 * PAGE, step_bytes=4 * PAGE)
    message = (
        f"stopped at {8 * PAGE} of {16 * PAGE} bytes: MemAvailable is {22 * PAGE}, and "
        f"{4 * PAGE} more would cross the floor of {20 * PAGE}"
    )
    with pytest.raises(CapacityError, match=message):
        balloon.start()
    assert answers == []
    assert children() == []


def children() -> list[int]:
    """Live balloons of ours."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = entry.read_text().rpartition(")")
            command = (entry.parent / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if rest.split()[1] == str(os.getpid()) and b"balloon_process" in command:
            found.append(int(name.split()[0]))
    return found


def test_the_floor_is_checked_at_the_last_step_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagetier.capacity.balloon.read_meminfo", lambda _: available(24 * PAGE))
    with BalloonProcess(4 * PAGE, roots=ROOTS, step_bytes=4 * PAGE, floor_bytes=20 * PAGE):
        pass
    with pytest.raises(CapacityError, match="would cross the floor"):
        BalloonProcess(
            4 * PAGE, roots=ROOTS, step_bytes=4 * PAGE, floor_bytes=20 * PAGE + 1
        ).start()


def test_a_lock_that_reads_back_smaller_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    status = ProcessStatus(15 * PAGE, None, None, None)
    monkeypatch.setattr("pagetier.capacity.balloon.read_status", lambda *_: status)
    message = f"VmLck {15 * PAGE} after {16 * PAGE} bytes were asked for"
    with pytest.raises(CapacityError, match=message):
        small().start()
    assert children() == []


def test_a_balloon_that_died_is_a_problem() -> None:
    with small() as balloon:
        os.kill(balloon.pid, signal.SIGKILL)
        assert await_gone(balloon.pid, 5)
        assert balloon.vm_lck_bytes() is None
        assert balloon.problems() == [f"balloon {balloon.pid} died (SIGKILL): memory came free"]


def test_a_lock_that_shrank_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    with small() as balloon:
        status = ProcessStatus(PAGE, None, None, None)
        monkeypatch.setattr("pagetier.capacity.balloon.read_status", lambda *_: status)
        assert balloon.problems() == [
            f"balloon {balloon.pid} has VmLck {PAGE}, asked for {16 * PAGE}"
        ]


def test_a_process_that_ends_while_growing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagetier.capacity.balloon._SCRIPT", "/nonexistent/balloon_process.py")
    with pytest.raises(CapacityError, match=r"ended at 0 of \d+ bytes \(exit status 2\)"):
        small().start()


def test_not_started() -> None:
    balloon = small()
    for question in (balloon.problems, balloon.vm_lck_bytes):
        with pytest.raises(CapacityError, match="not started"):
            question()
    balloon.stop()


def test_ends_with_the_end_of_its_input_and_not_with_ctrl_c() -> None:
    balloon = small()
    balloon.start()
    pid = balloon.pid
    assert os.getsid(pid) == pid
    started = time.monotonic()
    balloon.stop()
    assert is_gone(pid)
    assert time.monotonic() - started < 1
    balloon.stop()


def test_enforce_locks_what_is_over_the_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagetier.capacity.balloon.read_meminfo", lambda _: available(100 * PAGE))
    mechanism = Balloon(ROOTS, floor_bytes=0, step_bytes=8 * PAGE)
    with mechanism.enforce(84 * PAGE - 1, None) as enforcement:
        enforced = enforcement.enforced
        assert (enforced.mechanism, enforced.capacity_bytes) == ("balloon", 84 * PAGE - 1)
        assert enforced.locked_bytes == 16 * PAGE
        assert (enforced.limit_bytes, enforced.headroom_bytes) == (None, None)
        assert enforced.facts["requested_bytes"] == 16 * PAGE
        assert enforced.facts["pid"] == enforcement.process.pid
        assert enforced.facts["anon_huge_bytes"] == 0
        assert enforcement.problems() == []
        pid = enforcement.process.pid
    assert is_gone(pid)


def test_a_balloon_is_sized_when_memory_of_ended_processes_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mib = 2**20
    sizes = [1000 * mib, 1020 * mib, 1040 * mib, *[1048 * mib] * 9]
    monkeypatch.setattr("pagetier.capacity.balloon.read_meminfo", lambda _: available(sizes.pop(0)))
    monkeypatch.setattr("pagetier.capacity.balloon._SETTLE_INTERVAL_S", 0.0)
    with Balloon(ROOTS, floor_bytes=0).enforce(1047 * mib, None) as enforcement:
        assert enforcement.enforced.locked_bytes == mib


def test_who_holds_the_memory_is_said() -> None:
    held = Meminfo({"MemTotal": 2**50, "MemAvailable": GIB, "Mlocked": 77 * PAGE}, {})
    with pytest.raises(CapacityError, match=rf"already \({77 * PAGE} bytes are locked by other"):
        plan_balloon(held, 2 * GIB, GIB)


def test_enforce_refuses_without_a_capacity_or_below_the_floor() -> None:
    for capacity, message in ((None, "needs a capacity"), (GIB, "cross the floor")):
        with pytest.raises(CapacityError, match=message), Balloon(ROOTS).enforce(capacity, None):
            pass
    assert children() == []


ORPHAN = """
import os, sys, time
from pagetier.capacity.balloon import BalloonProcess
from pagetier.cgroups.roots import Roots
balloon = BalloonProcess(16 * {page}, roots=Roots(), floor_bytes=0)
balloon.start()
print(balloon.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def harness() -> subprocess.Popen[str]:
    """A process with a balloon, to be killed."""
    root = str(Path(__file__).resolve().parents[2] / ".layout")
    return subprocess.Popen(
        [sys.executable, "-c", ORPHAN.format(page=PAGE)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_gone_within_a_second_of_its_harness(
    harness: subprocess.Popen[str], number: signal.Signals
) -> None:
    with harness:
        assert harness.stdout is not None
        pid = int(harness.stdout.readline())
        assert not is_gone(pid)
        harness.send_signal(number)
        assert await_gone(pid, 1)


def test_reap_kills_the_balloon_it_was_told_of() -> None:
    balloon = small()
    balloon.start()
    assert reap(balloon.pid, balloon.start_ticks, ROOTS)
    assert is_gone(balloon.pid)
    balloon.stop()


def test_reap_spares_a_process_with_another_start_or_another_command() -> None:
    with small() as balloon:
        assert not reap(balloon.pid, balloon.start_ticks + 1, ROOTS)
        assert balloon.problems() == []
    with subprocess.Popen(["sleep", "60"]) as process:
        assert not reap(process.pid, read_start_ticks(ROOTS, process.pid) or 0, ROOTS)
        assert process.poll() is None
        process.kill()


def test_reap_waits_for_a_balloon_whose_end_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no command line any more, and holds its memory until it is gone."""
    with subprocess.Popen(["sleep", "60"]) as process:
        ticks = read_start_ticks(ROOTS, process.pid) or 0
        monkeypatch.setattr("pagetier.capacity.reaping.read_process_file", lambda *_: "")
        assert not reap(process.pid, ticks, ROOTS)
        monkeypatch.setattr(
            "pagetier.capacity.reaping.read_stat", lambda *_: ProcessStat("R", True, ticks)
        )
        assert reap(process.pid, ticks, ROOTS)
        assert is_gone(process.pid)


def test_reap_leaves_a_zombie_to_its_parent() -> None:
    with subprocess.Popen(["true"]) as process:
        ticks = read_start_ticks(ROOTS, process.pid) or 0
        assert await_gone(process.pid, 5)
        assert not reap(process.pid, ticks, ROOTS)


def test_reap_of_nothing() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert not reap(process.pid, 1, ROOTS)


def test_the_process_ends_when_its_parent_was_gone_already() -> None:
    script = Path(__file__).resolve().parents[2] / "capacity/balloon_process.py"
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(script), "1", "touch-lock", "off"],
        input=f"{PAGE}\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")


def test_the_process_imports_nothing_of_the_project() -> None:
    script = Path(__file__).resolve().parents[2] / "capacity/balloon_process.py"
    assert not re.search(r"^(from|import) pagetier", script.read_text(), re.MULTILINE)
