# SPDX-License-Identifier: Apache-2.0
"""A running guest: its process, what it says, and how it ended.

Every ending but a job that ran is a GuestFailure, one sentence with the tail of the console.  The
process dies with this one, by any means; inside `with` it is also ended on every exception.
"""

import os
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pagetier.capacity.errors import CapacityError
from pagetier.capacity.lab import launch
from pagetier.capacity.lab.guest import PREFIX
from pagetier.capacity.lab.qemu import PROGRAM
from pagetier.capacity.reaping import reap_process
from pagetier.cgroups.procstat import read_start_ticks
from pagetier.cgroups.roots import Roots

__all__ = ["Ending", "Guest", "GuestFailure", "Patience", "console_tail", "reap_guest"]

_LAUNCH = str(Path(launch.__file__))
_EXIT_TIMEOUT_S = 20.0
_TAIL_LINES = 12
_PANIC = "Kernel panic"

Say = Callable[[str], None]


class GuestFailure(CapacityError):
    """A guest did not boot, died, fell silent or could not do its job."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a guest may take to come up, and then be silent, in seconds."""

    boot_s: float
    silence_s: float


@dataclass(frozen=True, slots=True)
class Ending:
    """How a guest came to its end.

    `status` is the job's exit status, None when it was not started because MemAvailable was outside
    the wanted range.  `available_bytes` and `total_bytes` are those before the job, None for a
    guest that was only to come up.
    """

    status: int | None
    total_bytes: int | None
    available_bytes: int | None
    boot_s: float
    errors: tuple[str, ...]


class Guest:
    """A QEMU process; a context manager."""

    def __init__(self, argv: Sequence[str], console: Path, patience: Patience) -> None:
        self._argv = argv
        self._console = console
        self._patience = patience
        self._started_s = time.monotonic()
        self._boot_s: float | None = None
        self._memory_bytes: tuple[int | None, int | None] = (None, None)
        self._output: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if shutil.which(self._argv[0]) is None:
            raise CapacityError(
                f"{self._argv[0]} is not installed: on Debian, install qemu-system-x86"
            )
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", _LAUNCH, str(os.getpid()), "--", *self._argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the harness, which then ends the guest
        )
        return self

    def __exit__(self, *_: object) -> None:
        process = self._running()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    @property
    def pid(self) -> int:
        """Of QEMU."""
        return self._running().pid

    def start_ticks(self, roots: Roots) -> int | None:
        """When QEMU started: with its pid, its name in a journal."""
        return read_start_ticks(roots, self.pid)

    def run(self, say: Say) -> Ending:
        """Wait for the end; each line of the job's goes to `say` at once."""
        for line in self._lines():
            word, _, rest = line.removeprefix(PREFIX).partition(" ")
            if not line.startswith(PREFIX):
                self._output.append(line)
                say(line)
            elif word == "up":
                self._come_up(rest)
            elif word == "stopped":
                raise self._failure(f"the guest {rest}")
            elif word in ("gauge", "ended"):
                return self._ended(word, rest)
        return self._silent_end()

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise CapacityError("the guest is not started")
        return self._process

    def _come_up(self, rest: str) -> None:
        self._boot_s = time.monotonic() - self._started_s
        if rest:
            total_kb, available_kb = rest.split()
            self._memory_bytes = int(total_kb) * 1024, int(available_kb) * 1024

    def _ended(self, word: str, rest: str) -> Ending:
        status = int(rest) if word == "ended" else None
        self._await_exit()
        return self._ending(status)

    def _ending(self, status: int | None) -> Ending:
        assert self._boot_s is not None
        return Ending(status, *self._memory_bytes, self._boot_s, tuple(self._output[-_TAIL_LINES:]))

    def _silent_end(self) -> Ending:
        """End of output without a verdict: a probe that was only to come up, or a death."""
        status = self._running().wait(_EXIT_TIMEOUT_S)
        if _PANIC in self._console_text():
            raise self._failure("the guest's kernel panicked")
        if status == 0 and self._boot_s is not None and self._memory_bytes == (None, None):
            return self._ending(None)
        if status != 0:
            said = self._output[-1] if self._output else "it said nothing"
            raise self._failure(f"QEMU ended with status {status} ({said})")
        raise self._failure("the guest switched off before its job was done")

    def _await_exit(self) -> None:
        """It has unmounted its disk: one that does not switch off is ended."""
        try:
            self._running().wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._running().kill()

    def _lines(self) -> Iterator[str]:
        """Lines of the control channel until QEMU closes it; GuestFailure when it falls silent."""
        output = self._running().stdout
        assert output is not None
        pending = b""
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while True:
                if not selector.select(self._allowed_s()):
                    raise self._silence()
                chunk = os.read(output.fileno(), 1 << 16)
                if not chunk:
                    return
                *lines, pending = (pending + chunk).split(b"\n")
                yield from (line.decode(errors="replace").rstrip("\r") for line in lines)

    def _allowed_s(self) -> float:
        if self._boot_s is not None:
            return self._patience.silence_s
        return max(0.0, self._started_s + self._patience.boot_s - time.monotonic())

    def _silence(self) -> GuestFailure:
        if self._boot_s is None:
            return self._failure(f"the guest did not come up within {self._patience.boot_s:g} s")
        return self._failure(f"the guest said nothing for {self._patience.silence_s:g} s")

    def _console_text(self) -> str:
        if not self._console.exists():
            return ""
        return self._console.read_text(errors="replace").replace("\r", "")

    def _failure(self, what: str) -> GuestFailure:
        tail = "".join(f"\n    {line}" for line in console_tail(self._console_text()))
        end = f", which ends with:{tail}" if tail else ", which is empty"
        return GuestFailure(f"{what}; see its console {self._console}{end}")


def console_tail(text: str) -> list[str]:
    """The last lines of a console; from a panic on, for its cause stands before a long trace."""
    lines = [line for line in text.splitlines() if line.strip()]
    panics = [number for number, line in enumerate(lines) if _PANIC in line]
    start = max(0, panics[0] - 1) if panics else -_TAIL_LINES
    return lines[start:][:_TAIL_LINES]


def reap_guest(pid: int, start_ticks: int, roots: Roots) -> bool:
    """Kill the guest that a dead harness left; True when it was there and is gone now."""
    return reap_process(pid, start_ticks, {PROGRAM, _LAUNCH}, roots)
