# SPDX-License-Identifier: Apache-2.0
"""What is the same around every cell, whatever runs in it.

The MGLRU knob and the readahead window are set and put back; the pool is evicted and proven cold; a
failure becomes a fact with the evidence before it kept; the kernel log is read for OOM kills; the
verdict is from evidence alone.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pagetier.analysis.derive import judge
from pagetier.analysis.errors import CapabilityError
from pagetier.analysis.results import Cell, Pass
from pagetier.bench.cells import CellSpec
from pagetier.bench.driver import WorkerFailure
from pagetier.bench.kernel.kmsg import KernelLog, oom_kills, open_kernel_log
from pagetier.bench.kernel.text import read_count
from pagetier.bench.readahead import read_ahead
from pagetier.bench.shared import Bench
from pagetier.capacity.errors import CapacityError
from pagetier.capacity.mglru import MglruKnob
from pagetier.cgroups.errors import CgroupError
from pagetier.tiers.evict import evict_pool

__all__ = ["Evidence", "Named", "framed_cell"]


@dataclass(slots=True)
class Evidence:
    """What a cell has shown so far; a failure half way keeps the part before it."""

    pids: set[int] = field(default_factory=set)
    enforced: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    passes: dict[str, Pass] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Named:
    """Under what a cell is stored: its id, its place in the order, its whole specification."""

    id: str
    position: int
    spec: Mapping[str, Any]


def framed_cell(
    bench: Bench,
    spec: CellSpec,
    named: Named,
    evidence: Evidence,
    measure: Callable[[], None],
    derive: Callable[[], None],
) -> Cell:
    """Run `measure` on a cold pool, `derive` facts from what it left, and judge.

    A cell that fails is returned as rejected with its reason.
    """
    started = _now()
    log = open_kernel_log()
    try:
        with _mglru(bench, spec, evidence), _read_ahead(bench, spec, evidence):
            eviction = evict_pool(bench.pools[spec.pool], bench.roots.proc)
            evidence.facts["eviction"] = asdict(eviction)
            measure()
    except (WorkerFailure, CapabilityError, CapacityError, CgroupError) as error:
        evidence.facts["failure"] = str(error)
    if log is not None:
        evidence.facts |= _log_facts(log, evidence.pids)
    derive()
    unjudged = Cell(
        id=named.id,
        position=named.position,
        spec=named.spec,
        state="rejected",
        reasons=(),
        labels=(),
        started=started,
        finished=_now(),
        enforced=evidence.enforced,
        facts=evidence.facts,
        passes=evidence.passes,
    )
    verdict = judge(unjudged, bench.limits)
    return replace(unjudged, state=verdict.state, reasons=verdict.reasons, labels=verdict.labels)


@contextlib.contextmanager
def _mglru(bench: Bench, spec: CellSpec, evidence: Evidence) -> Iterator[None]:
    """The knob around a whole cell, with its mask before, during, and after the measured pass."""
    knob = MglruKnob(bench.roots)
    found = knob.show()
    facts = {"before": found.mask, "during": None, "after": None, "min_ttl_ms": found.min_ttl_ms}
    evidence.facts["mglru"] = facts
    with _noted(bench, spec, found.mask), knob.apply(spec.mglru) as during:
        facts["during"] = during.mask
        yield
        facts["after"] = knob.show().mask


def _noted(
    bench: Bench, spec: CellSpec, mask: int | None
) -> contextlib.AbstractContextManager[None]:
    if spec.mglru == "keep" or mask is None:
        return contextlib.nullcontext()
    return bench.journal.entry(kind="mglru", mask=mask)


@contextlib.contextmanager
def _read_ahead(bench: Bench, spec: CellSpec, evidence: Evidence) -> Iterator[None]:
    """The window of the pool's device, from before the worker opens a file to its end."""
    path = bench.device.read_ahead_path(bench.roots.sys)
    before_kb = read_count(path)
    evidence.facts["read_ahead_kb"] = before_kb
    if spec.read_ahead_kb is None or before_kb is None:  # the preflight has asked for the file
        yield
        return
    bdi = path.parent.name
    with (
        bench.journal.entry(kind="read_ahead", bdi=bdi, kb=before_kb),
        read_ahead(bdi, spec.read_ahead_kb, bench.roots) as found_kb,
    ):
        evidence.facts["read_ahead_kb"] = found_kb
        yield


def _log_facts(log: KernelLog, own_pids: set[int]) -> dict[str, Any]:
    """OOM kills of our own processes and of the whole host; other cgroups' are not ours.

    With records lost, an empty list is no proof: how many is noted beside it.
    """
    with log:
        kills = oom_kills(log.read())
        ours = [kill for kill in kills if kill.pid in own_pids or not kill.in_cgroup]
        return {"oom_kills": [kill.message for kill in ours], "kernel_log_lost": log.lost}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
