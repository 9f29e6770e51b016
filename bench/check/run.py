# SPDX-License-Identifier: Apache-2.0
"""Looks at a host once, or interval by interval, and makes one document of each look."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pagetier.analysis.check import Assessment, assess
from pagetier.analysis.check_figures import Figures, figures_between
from pagetier.analysis.mitigations import mitigations
from pagetier.analysis.reclaim import Reclaim
from pagetier.bench.check.host import Subject, Watcher
from pagetier.bench.check.metrics import publish, render_metrics
from pagetier.bench.check.selftest import LimitCounters, read_limit_counters
from pagetier.bench.doctor import doctor, requirements_for, warnings_of
from pagetier.bench.timeline import next_tick
from pagetier.cgroups.roots import Roots
from pagetier.tiers.pool import open_pool

__all__ = ["Look", "looks"]


@dataclass(frozen=True, slots=True)
class Look:
    """How to look: every `interval_s`, with metrics into `textfile` where one is named."""

    subject: Subject
    interval_s: float
    textfile: Path | None
    state_dir: Path


def looks(
    look: Look, roots: Roots, sleep: Callable[[float], None] = time.sleep
) -> Iterator[dict[str, Any]]:
    """One document per interval, for as long as the caller asks for them.

    The mitigations of a document are looked up anew when its state differs from the one before:
    that takes a walk over all processes.
    """
    tested = read_limit_counters(look.state_dir, roots)
    includes = None if tested is None else tested.includes_limits
    notes = _notes(look.subject, roots)
    remedies: list[dict[str, Any]] = []
    state = None
    with Watcher(look.subject, roots) as watcher:
        before = watcher.observe()
        for _ in _ticks(look.interval_s, sleep):
            after = watcher.observe()
            figures = figures_between(before, after, includes)
            assessment = assess(figures)
            if look.textfile is not None:
                publish(look.textfile, render_metrics(after, figures, assessment, time.time()))
            if assessment.state != state:
                state = assessment.state
                remedies = [asdict(item) for item in mitigations(watcher.situation(after))]
            document = _document(figures, assessment, watcher, tested)
            yield {**document, "mitigations": remedies, "requirements": notes}
            before = after


def _ticks(interval_s: float, sleep: Callable[[float], None]) -> Iterator[int]:
    """On a grid from now on, so that the schedule does not drift."""
    start_ns, interval_ns, tick = time.monotonic_ns(), round(interval_s * 1e9), 0
    while True:
        tick, _ = next_tick(start_ns, interval_ns, tick, time.monotonic_ns())
        sleep(max(0.0, (start_ns + tick * interval_ns - time.monotonic_ns()) / 1e9))
        yield tick


def _notes(subject: Subject, roots: Roots) -> list[dict[str, Any]]:
    """What the doctor says against this host's figures: the advice not met."""
    pool = None if subject.pool is None else open_pool(subject.pool)
    document = doctor(roots, pool, named=subject.device)
    return [*requirements_for(document, "check", ""), *warnings_of(document)]


def _document(
    figures: Figures, assessment: Assessment, watcher: Watcher, tested: LimitCounters | None
) -> dict[str, Any]:
    device = watcher.device
    return {
        "state": assessment.state,
        "evidence": list(assessment.evidence),
        "figures": _figures(figures),
        "unseen": watcher.unseen,
        "device": None if device is None else device.as_dict(),
        "cgroup": figures.cgroup_name,
        "mglru": {"enabled": figures.mglru_enabled},
        "limit_reclaim_counters": None if tested is None else asdict(tested),
    }


def _figures(figures: Figures) -> dict[str, Any]:
    rate = figures.per_second
    return {
        "seconds": figures.seconds,
        "unevictable_share": figures.unevictable_share,
        "available_bytes": figures.available_bytes,
        "swap_used_bytes": figures.swap_used_bytes,
        "swap_in_bytes_per_s": rate(figures.swap_in_bytes),
        "read_bytes_per_s": rate(figures.read_bytes),
        "device_bytes_per_s": rate(figures.device_bytes),
        "reader_bytes_per_s": rate(figures.reader_bytes),
        "miss_bytes_per_s": rate(figures.miss_bytes),
        "first_touch_bytes_per_s": rate(figures.first_touch_bytes),
        "capacity_bytes": figures.capacity_bytes,
        "amplification": figures.amplification,
        "refault_bytes_per_s": rate(figures.refault_bytes),
        "reclaim": {
            **{source: _reclaim(one, figures) for source, one in figures.by_source.items()},
            "cgroup": _reclaim(figures.limited, figures),
            **{
                f"cgroup_{source}": _reclaim(one, figures)
                for source, one in figures.limited_by_source.items()
            },
        },
        "cgroup_limit_bytes": figures.cgroup_limit_bytes,
        "stalled": figures.stalled,
    }


def _reclaim(reclaim: Reclaim | None, figures: Figures) -> dict[str, Any] | None:
    if reclaim is None:
        return None
    return {
        "scanned_pages_per_s": figures.per_second(reclaim.scanned_pages),
        "stolen_pages_per_s": figures.per_second(reclaim.stolen_pages),
        "ratio": reclaim.ratio,
        "label": reclaim.label,
    }
