# SPDX-License-Identifier: Apache-2.0
"""One pass of a cell: snapshots around it, a timeline during it, and the worker's own numbers."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pagetier.analysis.results import Iteration, Pass, Sample
from pagetier.bench.driver import Driver
from pagetier.bench.shared import Observer
from pagetier.bench.snapshot import Snapshots
from pagetier.bench.timeline import Timeline

__all__ = ["Replay", "Told", "Watcher", "observed_pass"]

# Readahead that was started and not waited for completes within this time of the last read.
SETTLE_S = 0.1

Watcher = Callable[[dict[str, Any]], None]
Told = tuple[dict[str, Any], tuple[Iteration, ...]]


def observed_pass(
    name: str,
    snapshots: Snapshots,
    observer: Observer,
    ask: Callable[[Watcher], dict[str, Any]],
    tell: Callable[[dict[str, Any]], Told],
) -> Pass:
    """A pass of a worker between two snapshots, sampled while it runs.

    `ask` has the worker do it and returns its event; `tell` makes result and iterations of that.
    """
    readers = snapshots.readers()
    before = snapshots.take()
    with Timeline(snapshots.sample) as timeline:

        def watch(event: dict[str, Any]) -> None:
            observer.advance(event, _device_bytes(before, timeline.latest()))

        event = ask(watch)
        samples = timeline.stop()
    time.sleep(SETTLE_S)
    after = snapshots.take()
    result, iterations = tell(event)
    return Pass(
        name=name,
        before=before,
        after=after,
        result={
            "others": snapshots.others_since(readers),
            "missed_ticks": timeline.missed_ticks,
            **result,
        },
        iterations=iterations,
        samples=tuple(Sample(sample["at_ns"], sample) for sample in samples),
    )


@dataclass(frozen=True, slots=True)
class Replay:
    name: str
    verify_every: int
    content_seed: int
    nominal_misses: list[int]
    audit: tuple[int, ...] = ()  # iterations after which the worker looks at what is resident

    def run(self, worker: Driver, snapshots: Snapshots, observer: Observer) -> Pass:
        def ask(watch: Watcher) -> dict[str, Any]:
            return worker.replay(
                verify_every=self.verify_every,
                content_seed=self.content_seed,
                hash_content=self.verify_every > 0,
                audit=self.audit,
                on_progress=watch,
            )

        return observed_pass(self.name, snapshots, observer, ask, self._tell)

    def _tell(self, event: dict[str, Any]) -> Told:
        result = {key: event[key] for key in _RESULT_KEYS}
        audit = {"audit": event["audit"]} if self.audit else {}
        return {**result, **audit}, _iterations(event, self.nominal_misses)


_RESULT_KEYS = (
    "start_ns",
    "user_ns",
    "system_ns",
    "verified_reads",
    "latency_histogram",
    "resident_bytes",
    "aligned_over_read_bytes",
    "arena_reads",
    "arena_bytes",
    "content_hash",
    "hints",
)


def _device_bytes(before: dict[str, Any], now: dict[str, Any] | None) -> int | None:
    if now is None or now["device"] is None or before["device"] is None:
        return None
    sectors: int = now["device"]["sectors_read"] - before["device"]["sectors_read"]
    return sectors * 512


def _iterations(event: dict[str, Any], nominal_misses: list[int]) -> tuple[Iteration, ...]:
    count = len(nominal_misses)
    columns = [
        event[key] if event[key] is not None else [None] * count
        for key in ("end_ns", "wall_ns", "bytes", "reads", "first_bytes", "repeat_bytes")
    ]
    rows = zip(range(count), *columns, nominal_misses, strict=True)
    return tuple(Iteration(*row) for row in rows)
