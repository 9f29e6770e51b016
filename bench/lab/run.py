# SPDX-License-Identifier: Apache-2.0
"""A campaign inside booted kernels: `pagetier lab run`.

One folder per kernel below the output directory; in it the guest's disk image, its console and, as
soon as a guest has ended in whatever way, a `results.db` like any other.  Cells of the `boot`
mechanism get one boot per capacity, after those that need none.  Of the host only these folders and
the lab's cache are written.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from pagetier.analysis.errors import CapabilityError, InputError
from pagetier.analysis.units import format_bytes
from pagetier.bench.boot.plan import HELD_BYTES
from pagetier.bench.campaign import Campaign
from pagetier.bench.cells import plan_cells
from pagetier.bench.engine.campaign import is_engine_campaign
from pagetier.bench.inputs import RunRequest, load_inputs
from pagetier.bench.journal import Journal, recover, state_dir
from pagetier.bench.lab.campaign import boots, campaign_for_guest, pool_bytes, to_yaml
from pagetier.bench.lab.results import finished_cells, host_of, publish
from pagetier.bench.signals import terminate_like_interrupt
from pagetier.capacity.boot import profile_options
from pagetier.capacity.errors import CapacityError
from pagetier.capacity.lab.accelerator import choose_accelerator
from pagetier.capacity.lab.cache import cache_dir
from pagetier.capacity.lab.disk import copy_out, make_disk, replay_journal
from pagetier.capacity.lab.doctor import SETUP
from pagetier.capacity.lab.guest import DISK, JOB, Job, make_initramfs
from pagetier.capacity.lab.kernels import Kernel, find_kernel
from pagetier.capacity.lab.machine import Ending, Guest, GuestFailure, Patience
from pagetier.capacity.lab.qemu import Accelerator, Disk, Machine, command, memory_argument
from pagetier.cgroups.roots import Roots

__all__ = ["LabRequest", "LabRun", "guest_environment", "run_lab"]

# What a guest runs, with a campaign and a directory as its arguments.
PROGRAM = (sys.executable, "-m", "pagetier.bench.cli", "run")
BOOT_PATIENCE_S = {"tcg": 180.0, "kvm": 60.0}
# Beside the pools: results, job files and the file system's own blocks.
DISK_MARGIN_BYTES = 512 << 20
# A host disk with less free space was full while the guest ran and had its own files there.
FULL_BYTES = 64 << 20
# mem= is a guess until a kernel has told what it leaves; then it is corrected, at most so often.
BOOT_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class LabRequest:
    """What the command line asked for; sizes in bytes."""

    campaign: Path
    output: Path
    kernels: tuple[str, ...]
    modules: Path | None
    memory_bytes: int
    cpus: int
    disk_kind: Literal["virtio", "nvme"]
    disk_bytes: int | None
    silence_s: float
    resume: bool


@dataclass(frozen=True, slots=True)
class LabRun:
    """One kernel's share of a lab run."""

    kernel: str
    release: str
    directory: Path
    clock: str


@dataclass(frozen=True, slots=True)
class _Lab:
    """What the guests of one lab run share."""

    request: LabRequest
    name: str
    campaign: Campaign
    accelerator: Accelerator
    busybox: Path
    journal: Journal
    roots: Roots
    console: Console


def run_lab(request: LabRequest, console: Console) -> tuple[list[LabRun], bool]:
    """Measure what is not measured yet, kernel by kernel; also whether it was cut short.

    Raises InputError and CapacityError before anything is made, and GuestFailure when a guest died:
    cells that were finished by then are in their results.db.
    """
    if is_engine_campaign(request.campaign):
        raise InputError(
            f"{request.campaign}: 'engine' names a model of this host, and a guest has none; "
            "measure it with: pagetier run"
        )
    inputs = load_inputs(RunRequest(request.campaign, None, None, None, False))
    cache, roots = cache_dir(), Roots()
    campaign = campaign_for_guest(inputs.campaign)
    kernels = [find_kernel(name, cache, request.modules) for name in request.kernels]
    busybox = cache / "busybox"
    if not busybox.exists():
        raise CapabilityError(f"{busybox}: not there: {SETUP}")
    for line in recover(state_dir(), roots):
        console.print(line, highlight=False)
    runs: list[LabRun] = []
    with terminate_like_interrupt(), Journal(state_dir(), roots) as journal:
        accelerator = choose_accelerator(kernels[0], busybox, cache, roots)
        lab = _Lab(request, inputs.name, campaign, accelerator, busybox, journal, roots, console)
        try:
            for kernel in kernels:
                with _KernelRun(lab, kernel) as run:
                    runs.append(run.summary)
                    run.measure()
        except (CapacityError, CapabilityError) as error:
            raise _with_full_disk(error, request.output) from None
        except KeyboardInterrupt:
            console.print("interrupted: finished cells are kept", highlight=False)
            return runs, True
    return runs, False


def _with_full_disk(error: Exception, directory: Path) -> Exception:
    """A guest sees a full host disk as errors of its own disk: name the cause."""
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes >= FULL_BYTES:
        return error
    return GuestFailure(
        f"{directory}: the host's disk is full ({format_bytes(free_bytes)} free), so the guest's "
        f"disk failed: free some space and continue with --resume ({error})"
    )


class _KernelRun:
    """All boots of one kernel; a context manager that brings its results home on every exit."""

    def __init__(self, lab: _Lab, kernel: Kernel) -> None:
        self._lab = lab
        self._kernel = kernel
        self._directory = lab.request.output / f"kernel-{_folder_name(kernel)}"
        self._image = self._directory / "disk.img"
        self._boots: list[dict[str, Any]] = []
        self._boots_before = host_of(self._directory).get("guest", {}).get("boots", [])
        self._stack = contextlib.ExitStack()
        clock = "kvm" if lab.accelerator == "kvm" else "emulated"
        self.summary = LabRun(kernel.name, kernel.release, self._directory, clock)

    def __enter__(self) -> "_KernelRun":
        self._refuse_other_results()
        self._directory.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            stack.enter_context(_locked(self._directory))
            self._salvage()
            if not self._image.exists():
                self._make_disk()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        with self._stack:
            try:
                self._salvage()
            except (CapacityError, InputError) as failure:
                if error is None:
                    raise
                self._say(f"results stay in {self._image}: {failure}")

    def measure(self) -> None:
        """Every cell that is not in the results yet; the image goes when none is left."""
        finished = finished_cells(self._directory)
        for capacity_bytes, cells in boots(self._lab.campaign).items():
            if all(cell.id in finished for cell in cells):
                continue
            if capacity_bytes is None:
                self._say(f"booting {self._kernel.release}, {self.summary.clock} clock")
                self._check(self._boot(self._machine(()), None))
            else:
                self._measure_profile(capacity_bytes)
        self._salvage()
        self._image.unlink()

    def _measure_profile(self, capacity_bytes: int) -> None:
        """Boot with mem=, corrected until MemAvailable is what the cell will find as C."""
        wanted_bytes = capacity_bytes + HELD_BYTES
        # What two boots of the same mem= leave differs by some MiB; what was left is recorded.
        slack_bytes = max(capacity_bytes // 20, 8 << 20)
        window = wanted_bytes - slack_bytes, wanted_bytes + slack_bytes
        usable_bytes = _first_guess(wanted_bytes)
        for _ in range(BOOT_ATTEMPTS):
            mem_bytes = memory_argument(usable_bytes, self._lab.request.memory_bytes)
            if usable_bytes > self._lab.request.memory_bytes:
                raise CapabilityError(
                    f"a boot for {format_bytes(capacity_bytes)} needs {format_bytes(usable_bytes)} "
                    "of memory: give the guest more with --memory"
                )
            options = profile_options(mem_bytes, capacity_bytes)
            self._say(f"booting {self._kernel.release} with {' '.join(options)}")
            ending = self._boot(self._machine(options), window)
            if ending.status is not None:
                return self._check(ending)
            assert ending.available_bytes is not None
            self._say(f"  leaves {format_bytes(ending.available_bytes)}: correcting mem=")
            usable_bytes += wanted_bytes - ending.available_bytes
        raise CapacityError(
            f"no mem= was found that leaves {wanted_bytes} bytes on {self._kernel.release} in "
            f"{BOOT_ATTEMPTS} boots: ask for another capacity"
        )

    def _machine(self, options: tuple[str, ...]) -> Machine:
        request = self._lab.request
        disk = Disk(self._image, request.disk_kind)
        return Machine(request.memory_bytes, request.cpus, self._lab.accelerator, disk, options)

    def _boot(self, machine: Machine, available_bytes: tuple[int, int] | None) -> Ending:
        lab, console = self._lab, self._directory / "console.log"
        file = f"{lab.name}.yaml"
        argv = (*PROGRAM, f"{JOB}/{file}", "-o", "results", "--resume")
        job = Job(argv, guest_environment(), {file: to_yaml(lab.campaign)}, available_bytes)
        patience = Patience(BOOT_PATIENCE_S[lab.accelerator], lab.request.silence_s)
        with tempfile.NamedTemporaryFile(dir=self._directory, prefix=".initramfs-") as initramfs:
            initramfs.write(make_initramfs(self._kernel, lab.busybox, job))
            initramfs.flush()
            qemu = command(
                machine,
                vmlinuz=self._kernel.vmlinuz,
                initramfs=Path(initramfs.name),
                console=console,
            )
            with Guest(qemu, console, patience) as guest, self._journal_entry(guest):
                ending = guest.run(lambda line: self._say(f"  {line}"))
        self._boots.append(_boot_facts(machine, ending))
        return ending

    def _journal_entry(self, guest: Guest) -> contextlib.AbstractContextManager[None]:
        start_ticks = guest.start_ticks(self._lab.roots)
        if start_ticks is None:  # it has ended already, which `run` will explain
            return contextlib.nullcontext()
        return self._lab.journal.entry(kind="guest", pid=guest.pid, start_ticks=start_ticks)

    def _check(self, ending: Ending) -> None:
        """The guest's own exit status: 0 and 1 have results, 2 has said why not."""
        if ending.status in (0, 1):
            return
        said = next((line for line in reversed(ending.errors) if line), "it said nothing")
        if ending.status == 2:
            raise CapabilityError(f"in the guest {self._kernel.release}: {said}")
        raise GuestFailure(
            f"the run in the guest {self._kernel.release} ended with status {ending.status} "
            f"({said}); see its console {self._directory / 'console.log'}, and continue with "
            "--resume"
        )

    def _refuse_other_results(self) -> None:
        if not (self._directory / "results.db").exists():
            return
        if not self._lab.request.resume:
            raise InputError(
                f"{self._directory}: holds results already; continue them with --resume or name "
                "another directory"
            )
        before = host_of(self._directory).get("clock")
        if before != self.summary.clock:
            raise InputError(
                f"{self._directory}: cannot resume: the guest's clock was {before} and is "
                f"{self.summary.clock}; start a new directory"
            )

    def _make_disk(self) -> None:
        """An image with the results so far; refused when the host has no room for the pools."""
        wanted_bytes = needed_bytes(self._lab.campaign)
        free_bytes = shutil.disk_usage(self._directory).free
        if free_bytes < wanted_bytes:
            raise InputError(
                f"{self._directory}: {format_bytes(free_bytes)} free, the guest's disk may take "
                f"{format_bytes(wanted_bytes)}: free some space or name another directory"
            )
        with tempfile.TemporaryDirectory(dir=self._directory, prefix=".content-") as content:
            if (self._directory / "results.db").exists():
                (Path(content) / "results").mkdir()
                for name in ("results.db", "campaign.yaml", "log.txt"):
                    shutil.copy(self._directory / name, Path(content) / "results" / name)
            size_bytes = self._lab.request.disk_bytes or wanted_bytes + wanted_bytes // 16
            make_disk(self._image, size_bytes, Path(content))

    def _salvage(self) -> None:
        """Bring home what lies on the image, of this run or of one that was killed."""
        if not self._image.exists():
            return
        replay_journal(self._image)
        facts = {"clock": self.summary.clock, "guest": self._guest_facts()}
        try:
            with tempfile.TemporaryDirectory(dir=self._directory, prefix=".results-") as folder:
                copied = copy_out(self._image, "results", Path(folder))
                if copied is not None:
                    publish(copied, self._directory, facts, plan_cells(self._lab.campaign))
        except OSError as error:
            raise InputError(
                f"{self._directory}: results cannot be copied from {self._image} "
                f"({error.strerror}): free some space and continue with --resume"
            ) from None

    def _guest_facts(self) -> dict[str, Any]:
        request = self._lab.request
        return {
            "accelerator": self._lab.accelerator,
            "kernel_release": self._kernel.release,
            "memory_bytes": request.memory_bytes,
            "cpus": request.cpus,
            "disk": request.disk_kind,
            "boots": [*self._boots_before, *self._boots],
        }

    def _say(self, line: str) -> None:
        self._lab.console.print(
            f"[{self._kernel.name}] {line}", highlight=False, markup=False, soft_wrap=True
        )


def needed_bytes(campaign: Campaign) -> int:
    """What the guest's disk may take of the host's."""
    return pool_bytes(campaign) + DISK_MARGIN_BYTES


def _first_guess(available_bytes: int) -> int:
    """Memory that leaves about so much available when a guest is up.

    Beside a fixed part the kernel takes page structures, 64 of 4096 bytes, and, with huge pages on,
    reserves up to three halves of 5 % of memory, at most about 110 MiB
    (set_recommended_min_free_kbytes in mm/khugepaged.c).
    """
    taken_bytes = available_bytes + (48 << 20)
    return min(int(taken_bytes / 0.88), int((taken_bytes + (110 << 20)) / 0.984))


def _folder_name(kernel: Kernel) -> str:
    return kernel.release if "/" in kernel.name else kernel.name


def _boot_facts(machine: Machine, ending: Ending) -> dict[str, Any]:
    return {
        "options": list(machine.kernel_options),
        "boot_s": round(ending.boot_s, 2),
        "mem_total_bytes": ending.total_bytes,
        "available_bytes": ending.available_bytes,
        "status": ending.status,
    }


def guest_environment() -> dict[str, str]:
    """Of the guest's run: this interpreter's own, and nothing written to the host's files."""
    paths = os.environ.get("PYTHONPATH", "")
    given = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths.split(os.pathsep)))}
    return {
        # Wide enough that no line of progress is folded on its way out.
        "COLUMNS": "500",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "TMPDIR": f"{DISK}/tmp",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPYCACHEPREFIX": str(_bytecode()),
        **(given if paths else {}),
    }


def _bytecode() -> Path:
    """Compiled modules for the guest, which would compile each anew: emulated, that takes longer
    than the boot."""
    folder = cache_dir() / "bytecode"
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    subprocess.run(
        [sys.executable, "-c", "import pagetier.bench.cli, pagetier.bench.worker"],
        env={**environment, "PYTHONPYCACHEPREFIX": str(folder)},
        stdin=subprocess.DEVNULL,
        check=True,
    )
    return folder


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Two runs on one disk image would destroy it."""
    with (directory / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CapabilityError(
                f"{directory}: another lab run uses this directory; wait for it to end"
            ) from None
        yield
