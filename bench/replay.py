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

__all__ = ["Replay"]

# Readahead that was started and not waited for completes within this time of the last read.
SETTLE_S = 0.1


@dataclass(frozen=True, slots=True)
class Replay:
    name: str
    verify_every: int
    content_seed: int
    nominal_misses: list[int]
    audit: tuple[int, ...] = ()  # iterations after which the worker looks at what is resident

    def run(self, worker: Driver, snapshots: Snapshots, observer: Observer) -> Pass:
        readers = snapshots.readers()
        before = snapshots.take()
        with Timeline(snapshots.sample) as timeline:
            event = worker.replay(
                verify_every=self.verify_every,
                content_seed=self.content_seed,
                hash_content=self.verify_every > 0,
                audit=self.audit,
                on_progress=self._watcher(before, timeline, observer),
            )
            samples = timeline.stop()
        time.sleep(SETTLE_S)
        after = snapshots.take()
        return Pass(
            name=self.name,
            before=before,
            after=after,
            result={
                "others": snapshots.others_since(readers),
                "missed_ticks": timeline.missed_ticks,
                **{key: event[key] for key in _RESULT_KEYS},
                **({"audit": event["audit"]} if self.audit else {}),
            },
            iterations=_iterations(event, self.nominal_misses),
            samples=tuple(Sample(sample["at_ns"], sample) for sample in samples),
        )

    def _watcher(
        self, before: dict[str, Any], timeline: Timeline, observer: Observer
    ) -> Callable[[dict[str, Any]], None]:
        def watch(event: dict[str, Any]) -> None:
            observer.advance(event, _device_bytes(before, timeline.latest()))

        return watch


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
