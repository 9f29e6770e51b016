# SPDX-License-Identifier: Apache-2.0
"""Mechanisms on this host's kernel, with at most 256 MiB of it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagetier.capacity.balloon import Balloon, BalloonProcess, HugePages, Order, reap
from pagetier.capacity.errors import CapacityError
from pagetier.capacity.meminfo import read_meminfo
from pagetier.capacity.percpu import drain_per_cpu_lists, read_per_cpu_bytes
from pagetier.capacity.procstatus import read_status
from pagetier.capacity.wall import Wall
from pagetier.cgroups.detect import detect
from pagetier.cgroups.roots import Roots
from pagetier.cgroups.scope import Scope, open_scope

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("live")]

MIB = 2**20
FILE_BYTES = 96 * MIB
BUFFER_BYTES = 20 * MIB
CAPACITY_BYTES = 32 * MIB
FOLIO_BYTES = 4 * MIB  # a large folio that does not fit leaves the peak short of the limit
ROOTS = Roots()
LAYOUT = str(Path(__file__).resolve().parents[2] / ".layout")

# Holds a buffer, says so, then does a job per line: `read PATH` or `hold BYTES`; answers `done`.
WORKER = f"""
import os, sys
held = [bytearray(b"x") * {BUFFER_BYTES}]
print("ready", flush=True)
for line in sys.stdin:
    job, word = line.split()
    if job == "hold":
        held.append(bytearray(b"x") * int(word))
    else:
        file = os.open(word, os.O_RDONLY)
        while os.read(file, 1 << 20):
            pass
        os.close(file)
    print("done", flush=True)
"""


class Worker:
    """A program inside a scope whose buffer is touched before the wall goes up."""

    def __init__(self, scope: Scope) -> None:
        command = scope.command([sys.executable, "-I", "-S", "-c", WORKER])
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        scope.attach(self.process.pid)
        assert self.answer() == "ready"

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, job: str) -> str:
        """The answer; empty when the worker died of it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{job}\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(10)


@pytest.fixture
def scope() -> Iterator[Scope]:
    scope = open_scope(detect(ROOTS), f"pagetier-cap{os.getpid()}-0")
    scope.create()
    yield scope
    scope.remove()


@pytest.fixture
def worker(scope: Scope) -> Iterator[Worker]:
    worker = Worker(scope)
    yield worker
    worker.end()


@pytest.fixture(scope="module")
def disk_file() -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(dir="/var/tmp", prefix="pagetier-test-") as file:
        file.write(os.urandom(FILE_BYTES))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        yield Path(file.name)


def test_what_an_ended_process_left_in_per_cpu_lists_is_given_back() -> None:
    """Left there, a balloon would take it for used, lock less, and leave it to the cell."""
    hold = "bytearray(b'x') * (1 << 30)"
    subprocess.run([sys.executable, "-I", "-S", "-c", hold], check=True)
    held_bytes = read_per_cpu_bytes(ROOTS)
    assert held_bytes is not None
    before_bytes = read_meminfo(ROOTS).available_bytes
    left_bytes = drain_per_cpu_lists(ROOTS)
    after_bytes = read_meminfo(ROOTS).available_bytes
    assert left_bytes is not None and before_bytes is not None and after_bytes is not None
    assert left_bytes < read_meminfo(ROOTS).total_bytes // 32
    # What left the lists is available; others on the host take and give meanwhile.
    assert abs((after_bytes - before_bytes) - (held_bytes - left_bytes)) < 128 * MIB


def test_wall_leaves_the_capacity_to_the_cache(
    scope: Scope, worker: Worker, disk_file: Path
) -> None:
    with Wall("auto").enforce(CAPACITY_BYTES, scope) as enforcement:
        enforced = enforcement.enforced
        assert enforced.headroom_bytes is not None
        assert enforced.limit_bytes is not None
        assert BUFFER_BYTES <= enforced.headroom_bytes < BUFFER_BYTES + 20 * MIB
        assert 0 <= enforced.limit_bytes - CAPACITY_BYTES - enforced.headroom_bytes < 2**16
        assert worker.do(f"read {disk_file}") == "done"
        time.sleep(2.5)
        state = scope.memory()
        if state.peak_bytes is not None:
            assert 0 <= enforced.limit_bytes - state.peak_bytes < FOLIO_BYTES
        assert 0.9 * CAPACITY_BYTES < state.file_bytes < 1.05 * CAPACITY_BYTES
        assert enforcement.problems() == []
    assert scope.limits().memory_bytes is None


def test_wall_reports_an_oom_kill(scope: Scope, worker: Worker) -> None:
    with Wall("auto").enforce(CAPACITY_BYTES, scope) as enforcement:
        assert worker.do(f"hold {2 * CAPACITY_BYTES}") == ""
        problems = enforcement.problems()
        assert any(problem.startswith("oom_kill went from 0 to 1") for problem in problems)


def test_wall_reports_a_limit_that_another_changed(scope: Scope, worker: Worker) -> None:
    with Wall(BUFFER_BYTES * 2).enforce(CAPACITY_BYTES, scope) as enforcement:
        scope.set_limit(CAPACITY_BYTES * 4)
        assert any("memory limit is" in problem for problem in enforcement.problems())


def test_wall_reports_a_scope_that_is_gone(scope: Scope, worker: Worker) -> None:
    with Wall(BUFFER_BYTES * 2).enforce(CAPACITY_BYTES, scope) as enforcement:
        scope.remove()
        assert any("is gone" in problem for problem in enforcement.problems())


def test_wall_that_could_only_kill_is_refused_and_kills_nothing(
    scope: Scope, worker: Worker
) -> None:
    time.sleep(2.5)
    with (
        pytest.raises(CapacityError, match="cannot be reclaimed"),
        Wall(0).enforce(BUFFER_BYTES // 2, scope),
    ):
        pass
    assert worker.process.poll() is None
    assert scope.limits().memory_bytes is None


@pytest.mark.parametrize("order", ["touch-lock", "lock-touch"])
@pytest.mark.parametrize("huge_pages", ["on", "off"])
def test_balloon_locks_exactly_what_was_asked(order: Order, huge_pages: HugePages) -> None:
    size = 64 * MIB + os.sysconf("SC_PAGE_SIZE")
    balloon = BalloonProcess(
        size, roots=ROOTS, order=order, huge_pages=huge_pages, step_bytes=16 * MIB
    )
    with balloon:
        status = read_status(ROOTS, balloon.pid)
        assert status is not None
        assert status.vm_lck_bytes == size
        assert status.vm_rss_bytes is not None
        assert status.vm_rss_bytes >= size
        assert balloon.problems() == []


def test_balloon_leaves_the_capacity_available() -> None:
    drain_per_cpu_lists(ROOTS)
    available = read_meminfo(ROOTS).available_bytes
    assert available is not None
    capacity = available - 128 * MIB
    with Balloon(ROOTS, step_bytes=32 * MIB).enforce(capacity, None) as enforcement:
        enforced = enforcement.enforced
        assert enforced.locked_bytes == enforced.facts["requested_bytes"]
        assert enforced.locked_bytes is not None
        assert 0 < enforced.locked_bytes < 256 * MIB
        assert enforced.facts["huge_pages"] == "off"
        assert enforced.facts["anon_huge_bytes"] in (None, 0)
        assert enforcement.problems() == []


def test_balloon_stops_at_the_floor() -> None:
    available = read_meminfo(ROOTS).available_bytes
    assert available is not None
    balloon = BalloonProcess(64 * MIB, roots=ROOTS, floor_bytes=2 * available)
    with pytest.raises(CapacityError, match=f"would cross the floor of {2 * available}"):
        balloon.start()


HARNESS = f"""
import time
from pagetier.capacity.balloon import BalloonProcess
from pagetier.cgroups.roots import Roots
balloon = BalloonProcess({256 * MIB}, roots=Roots())
balloon.start()
print(balloon.pid, balloon.start_ticks, flush=True)
time.sleep(60)
"""
PARTIAL = f"""
from pagetier.capacity.balloon import BalloonProcess
from pagetier.capacity.errors import CapacityError
from pagetier.cgroups.roots import Roots
try:
    BalloonProcess({16 * MIB}, roots=Roots(), step_bytes={MIB}).start()
except CapacityError as error:
    print(error)
"""


def is_gone(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def test_balloon_is_gone_a_second_after_kill_9() -> None:
    environment = {**os.environ, "PYTHONPATH": LAYOUT}
    command = [sys.executable, "-c", HARNESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as harness:
        assert harness.stdout is not None
        pid, start_ticks = map(int, harness.stdout.readline().split())
        status = read_status(ROOTS, pid)
        assert status is not None
        assert status.vm_lck_bytes == 256 * MIB
        harness.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 1
        while not is_gone(pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert is_gone(pid)
    assert not reap(pid, start_ticks, ROOTS)


def test_partial_lock_without_the_privilege_is_refused_with_the_remedy() -> None:
    """Without CAP_IPC_LOCK root is as limited as anyone; another uid might not reach python."""
    limited = ["prlimit", f"--memlock={8 * MIB}:{8 * MIB}"]
    unprivileged = ["setpriv", "--bounding-set", "-ipc_lock"]
    done = subprocess.run(
        [*limited, *unprivileged, sys.executable, "-c", PARTIAL],
        env={**os.environ, "PYTHONPATH": LAYOUT},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"locked {8 * MIB} of {16 * MIB} bytes" in done.stdout
    assert f"RLIMIT_MEMLOCK is {8 * MIB} bytes" in done.stdout
    for remedy in ("ulimit -l", "prlimit", "LimitMEMLOCK="):
        assert remedy in done.stdout
