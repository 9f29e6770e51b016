# SPDX-License-Identifier: Apache-2.0
"""What a person sees while a campaign runs: on stderr, so that stdout stays for results.

On a terminal a live bar per pass; elsewhere one line per cell and pass, fit for a log file.
"""

import time
from collections.abc import Callable
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from pagetier.analysis.units import format_bytes
from pagetier.bench.shared import Spec

__all__ = ["ByteProgress", "CampaignProgress"]

Log = Callable[[str], None]


class CampaignProgress:
    """Cells done, the pass that runs, GB/s, device bytes so far, and the time left."""

    def __init__(self, console: Console, cells: int, iterations: int, log: Log) -> None:
        self._console = console
        self._iterations = iterations
        self._log = log
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._cells = self._bars.add_task("cells", total=cells, note="")
        self._pass: TaskID = self._bars.add_task("pass", total=iterations, note="")
        self._started_s = 0.0

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._bars.stop()

    def say(self, message: str) -> None:
        """A line for the person and for log.txt."""
        self._log(message)
        self._console.print(message, highlight=False, markup=False)

    def start_cell(self, number: int, spec: Spec) -> None:
        total = self._bars.tasks[self._cells].total or 0
        self.say(f"cell {number}/{total:.0f}: {spec.describe()}")

    def start_pass(self, name: str) -> None:
        self._started_s = time.monotonic()
        self._bars.reset(self._pass, description=name, total=self._iterations, note="")

    def advance(self, event: dict[str, Any], device_bytes: int | None) -> None:
        """`event` is the worker's progress, `device_bytes` what the device read in this pass."""
        elapsed_s = max(time.monotonic() - self._started_s, 1e-9)
        device = "" if device_bytes is None else f", device {format_bytes(device_bytes)}"
        note = f"{event['bytes'] / elapsed_s / 1e9:.2f} GB/s{device}"
        self._bars.update(self._pass, completed=event["iterations"], note=note)

    def end_cell(self, summary: str) -> None:
        self._bars.advance(self._cells)
        self.say(f"  {summary}")


class ByteProgress:
    """A bar over bytes, for making and checking pools; a context manager."""

    def __init__(self, console: Console, description: str) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bars.add_task(description, note="")
        self._started_s = time.monotonic()

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._bars.stop()

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        elapsed_s = max(time.monotonic() - self._started_s, 1e-9)
        note = (
            f"{format_bytes(done_bytes)} of {format_bytes(total_bytes)}, "
            f"{done_bytes / elapsed_s / 1e9:.2f} GB/s"
        )
        self._bars.update(self._task, completed=done_bytes, total=total_bytes, note=note)
