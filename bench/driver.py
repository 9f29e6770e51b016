# SPDX-License-Identifier: Apache-2.0
"""The harness's end of the pipe to a worker: start it in a scope, ask for passes, end it."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from pagetier.analysis.errors import PagetierError
from pagetier.cgroups.scope import Scope

__all__ = ["Driver", "WorkerFailure"]

START_TIMEOUT_S = 120.0
# A replay that completes no read for so long is thrashing without an OOM kill (the limit is all
# unevictable) or its device is gone; either way there is no measurement to wait for.
STALL_TIMEOUT_S = 120.0
PATIENCE_S = 2.0


class WorkerFailure(PagetierError):
    """The worker died, stalled or reported an error; the message is the reason, in one sentence."""


class Driver:
    """A worker process; a context manager that never leaves it behind.

    `module` is the program that is run with the job and our pid; `work` is what a failure of it is
    called.
    """

    def __init__(
        self,
        job_dir: Path,
        scope: Scope | None,
        module: str = "pagetier.bench.worker",
        work: str = "replay",
    ) -> None:
        command = [sys.executable, "-m", module, str(job_dir), str(os.getpid())]
        self._work = work
        self._errors = job_dir / "worker.err"
        with self._errors.open("wb") as errors:
            # A session of its own: Ctrl-C reaches the harness alone, which then ends the worker.
            self._process = subprocess.Popen(
                command if scope is None else scope.command(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._buffer = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        os.set_blocking(self._process.stdout.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._end()
        self._selector.close()

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> dict[str, Any]:
        """Its first word, once what it holds is locked and loaded and every buffer touched."""
        return self._expect("ready", timeout_s, lambda _: None)

    def replay(
        self,
        *,
        verify_every: int,
        content_seed: int,
        hash_content: bool = False,
        audit: Sequence[int] = (),
        on_progress: Callable[[dict[str, Any]], None],
    ) -> dict[str, Any]:
        """One pass over the plan; returns the worker's ``pass`` event.

        `audit` are the iterations after which the pass stops to look at what is resident.
        """
        command = {
            "verify_every": verify_every,
            "content_seed": content_seed,
            "hash_content": hash_content,
            "audit": list(audit),
        }
        return self.ask(command, "pass", on_progress)

    def read_prompt(self) -> None:
        """What is read before a pass and is no part of it."""
        self.ask({"prompt": True}, "prompted")

    def ask(
        self,
        command: dict[str, Any],
        wanted: str,
        on_progress: Callable[[dict[str, Any]], None] = lambda _: None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Send a command; returns the event `wanted` that answers it.

        The time runs anew with every sign of progress.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death() from None
        return self._expect(wanted, timeout_s or STALL_TIMEOUT_S, on_progress)

    def _expect(
        self, wanted: str, timeout_s: float, on_progress: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        reads_before = -1
        while True:
            event = self._next_event(deadline)
            if event is None:
                raise WorkerFailure(
                    f"the worker completed no read for {timeout_s:.0f} s; it was ended"
                )
            if event["event"] == "error":
                raise WorkerFailure(f"the {self._work} failed: {event['message']}")
            if event["event"] == wanted:
                return event
            if event["reads"] != reads_before:
                reads_before = event["reads"]
                deadline = time.monotonic() + timeout_s
            on_progress(event)

    def _next_event(self, deadline: float) -> dict[str, Any] | None:
        """The next line of the worker, None when the deadline passes first."""
        while b"\n" not in self._buffer:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not self._selector.select(left_s):
                return None
            assert self._process.stdout is not None
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise self._death()
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event

    def _death(self) -> WorkerFailure:
        status = self._process.wait()
        if status == -signal.SIGKILL:
            return WorkerFailure(
                "the worker was killed (SIGKILL): out of memory inside its limit, or a user-space "
                "OOM killer"
            )
        lines = self._errors.read_text(errors="replace").strip().splitlines()
        detail = f": {lines[-1]}" if lines else ""
        return WorkerFailure(f"the worker ended with status {status}{detail}")

    def _end(self) -> None:
        """Closing its input ends an idle worker; a busy one gets SIGTERM, then SIGKILL."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it died before the last command was flushed
            self._process.stdin.close()
        for insist in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(PATIENCE_S)
                break
            except subprocess.TimeoutExpired:
                insist()
        self._process.wait()
        self._process.stdout.close()
