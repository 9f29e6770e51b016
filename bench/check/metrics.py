# SPDX-License-Identifier: Apache-2.0
"""The check in Prometheus' text format, for node_exporter's textfile collector.

Names and units by its conventions: base units, `_total` for counters, which are the kernel's own.
What could not be seen has no sample, never a 0.  The file is written under another name that the
collector does not read (it takes *.prom), then renamed; it is not brought to the disk by force,
for it is made anew every interval and an fsync each time would be traffic on a measured host.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pagetier.analysis.check import Assessment
from pagetier.analysis.check_figures import Figures, Observation
from pagetier.analysis.errors import InputError
from pagetier.analysis.reclaim import SOURCES, implementation_of

__all__ = ["publish", "render_metrics"]

Sample = tuple[dict[str, str], float | int | None]

_STATES = ("healthy", "suspect", "amplifying", "unknown")


def render_metrics(
    observation: Observation, figures: Figures | None, assessment: Assessment | None, now_s: float
) -> str:
    """The whole text; figures and state are None before the first interval has passed."""
    lines: list[str] = []
    for name, kind, text, samples in _families(observation, figures, assessment, now_s):
        present = [(labels, value) for labels, value in samples if value is not None]
        if not present:
            continue
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{_labels(labels)} {value!r}" for labels, value in present]
    return "\n".join(lines) + "\n"


def publish(path: Path, text: str) -> None:
    """Put the text at `path` in one step; InputError when that cannot be done."""
    try:
        descriptor, staged = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                # mkstemp makes 0600, but node_exporter runs as another user.
                os.fchmod(file.fileno(), 0o644)
            os.replace(staged, path)
        except BaseException:
            os.unlink(staged)
            raise
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}): name a file in the folder that "
            "node_exporter's --collector.textfile.directory names"
        ) from error


def _families(
    observation: Observation, figures: Figures | None, assessment: Assessment | None, now_s: float
) -> Iterator[tuple[str, str, str, list[Sample]]]:
    memory = observation.memory or {}
    if assessment is not None:
        states: list[Sample] = [({"state": s}, int(s == assessment.state)) for s in _STATES]
        yield "pagetier_check_state", "gauge", "1 for the state that the check found.", states
    yield _one("pagetier_check_timestamp_seconds", "gauge", "When the check last looked.", now_s)
    for name, key, text in _SIZES:
        yield _one(f"pagetier_memory_{name}_bytes", "gauge", text, memory.get(key))
    implementation = implementation_of(observation.mglru_enabled)
    yield (
        "pagetier_reclaim_info",
        "gauge",
        "Which implementation reclaims.",
        [({"implementation": implementation}, 1)],
    )
    yield from _reclaim(observation, figures)
    yield from _traffic(observation, figures)
    yield from _stalls(observation)


_SIZES = (
    ("total", "MemTotal", "Memory of the host."),
    ("available", "MemAvailable", "Memory that a new program could get."),
    ("unevictable", "Unevictable", "Memory that reclaim skips."),
    ("mlocked", "Mlocked", "Memory that programs have locked."),
    ("swap_total", "SwapTotal", "Swap of the host."),
    ("swap_free", "SwapFree", "Swap that is free."),
)


def _one(
    name: str, kind: str, text: str, value: float | int | None
) -> tuple[str, str, str, list[Sample]]:
    return name, kind, text, [({}, value)]


def _reclaim(
    observation: Observation, figures: Figures | None
) -> Iterator[tuple[str, str, str, list[Sample]]]:
    vmstat, cgroup = observation.vmstat or {}, observation.cgroup
    for verb, what in (("scan", "scanned"), ("steal", "stolen")):
        samples: list[Sample] = [
            ({"source": source, "where": "host"}, vmstat.get(f"pg{verb}_{source}"))
            for source in SOURCES
        ]
        if cgroup is not None:
            labels = {"source": "all", "where": cgroup.name}
            samples.append((labels, cgroup.stat.get(f"pg{verb}")))
        text = f"Pages that reclaim has {what}."
        yield f"pagetier_reclaim_{what}_pages_total", "counter", text, samples
    if figures is not None:
        ratios: list[Sample] = [
            ({"where": found.where, "source": "+".join(found.sources)}, found.ratio)
            for found in (figures.kswapd, figures.direct, figures.limited)
            if found is not None
        ]
        text = "Scanned per stolen page of the last interval, where enough were stolen."
        yield "pagetier_reclaim_scan_to_steal_ratio", "gauge", text, ratios
    refaults: list[Sample] = [({"where": "host"}, vmstat.get("workingset_refault_file"))]
    if cgroup is not None:
        refaults.append(({"where": cgroup.name}, cgroup.stat.get("workingset_refault_file")))
    page = observation.page_bytes
    in_bytes = [(labels, None if pages is None else pages * page) for labels, pages in refaults]
    yield (
        "pagetier_refault_bytes_total",
        "counter",
        "File pages read again after reclaim had evicted them.",
        in_bytes,
    )


def _traffic(
    observation: Observation, figures: Figures | None
) -> Iterator[tuple[str, str, str, list[Sample]]]:
    computed = observation.computed
    yield _one(
        "pagetier_device_read_bytes_total",
        "counter",
        "Read from the pool's disks, for anyone.",
        observation.device_bytes,
    )
    yield _one(
        "pagetier_reader_read_bytes_total",
        "counter",
        "Read from disks by the watched process or cgroup.",
        observation.reader_bytes,
    )
    yield _one(
        "pagetier_computed_miss_bytes_total",
        "counter",
        "Misses of an exact LRU that is fed with the routed experts.",
        None if computed is None else computed.miss_bytes,
    )
    yield _one(
        "pagetier_computed_capacity_bytes",
        "gauge",
        "Capacity of that LRU.",
        None if computed is None else computed.capacity_bytes,
    )
    ratio = None if figures is None else figures.amplification
    text = "Device bytes per computed miss byte of the last interval."
    yield _one("pagetier_read_amplification_ratio", "gauge", text, ratio)


def _stalls(observation: Observation) -> Iterator[tuple[str, str, str, list[Sample]]]:
    samples: list[Sample] = []
    for resource, totals in observation.pressures.items():
        for kind in ("some", "full"):
            total_us = (totals or {}).get(f"{kind}_total_us")
            labels = {"resource": resource, "kind": kind}
            samples.append((labels, None if total_us is None else total_us / 1e6))
    text = "Time that tasks were stalled."
    yield "pagetier_pressure_stalled_seconds_total", "counter", text, samples


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
