# SPDX-License-Identifier: Apache-2.0
"""A results directory while a campaign fills it, whatever its cells run.

Each finished cell is durable at once, so a run that was killed continues where it stopped; what is
continued must be the same campaign on the same host.
"""

import contextlib
import importlib.metadata
import json
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pagetier.analysis.errors import InputError
from pagetier.analysis.results import Cell, read_meta
from pagetier.bench.check.selftest import read_limit_counters
from pagetier.bench.device import Device
from pagetier.bench.host import host_facts
from pagetier.bench.inputs import RunRequest
from pagetier.bench.journal import state_dir
from pagetier.bench.preflight import is_for_boot_cells
from pagetier.bench.progress import CampaignProgress
from pagetier.bench.shared import Spec
from pagetier.bench.signals import terminate_like_interrupt
from pagetier.bench.store import Store
from pagetier.capacity.boot import parse_boot_profile
from pagetier.cgroups.roots import Roots

__all__ = [
    "directory_of",
    "measure_cells",
    "open_log",
    "open_store",
    "provenance",
]

# Facts that must not change between the cells of one results directory.
CONSTANT_FACTS = ("kernel", "machine", "page_bytes", "mem_total_bytes", "cgroup_memory", "device")


AnySpec = TypeVar("AnySpec", bound=Spec)


def directory_of(request: RunRequest, name: str) -> Path:
    """Where the results go; InputError where others lie already."""
    if request.output is not None:
        if (request.output / "results.db").exists() and not request.resume:
            raise InputError(
                f"{request.output}: holds results already; continue them with --resume or name "
                "another directory"
            )
        return request.output
    if request.resume:
        raise InputError("--resume continues a results directory; name it with -o DIR")
    return Path("pagetier-results") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


def provenance(device: Device, roots: Roots) -> dict[str, str]:
    """By what, when and on what host."""
    tested = read_limit_counters(state_dir(), roots)
    # Which global counters include limit reclaim, where `check --self-test` found out.
    counters = {"limit_reclaim_counters": None if tested is None else tested.counters}
    return {
        "created": _now(),
        "pagetier_version": importlib.metadata.version("pagetier"),
        "host": json.dumps({**host_facts(roots, device), **counters}),
    }


def open_store(directory: Path, resume: bool, meta: dict[str, str]) -> Store:
    """A new database, or the one to go on with; InputError where that is of something else."""
    if not resume or not (directory / "results.db").exists():
        return Store.create(directory, meta)
    before = read_meta(directory)
    for key in ("campaign_sha256", "plan_sha256", "pools", "pagetier_version"):
        if before[key] != meta[key]:
            raise InputError(
                f"{directory}: cannot resume: {key} was {before[key]} and is {meta[key]}; "
                "start a new results directory"
            )
    old, new = json.loads(before["host"]), json.loads(meta["host"])
    for fact in _constant_facts(old, new):
        if old.get(fact) != new.get(fact):
            raise InputError(
                f"{directory}: cannot resume: the host's {fact} was {old.get(fact)} and is "
                f"{new.get(fact)}; cells of different hosts are not pooled"
            )
    return Store(directory)


def _constant_facts(*hosts: dict[str, Any]) -> tuple[str, ...]:
    """A boot made for a capacity has its memory by design; it is checked against the capacity."""
    profiles = [parse_boot_profile(host.get("kernel_cmdline") or "") for host in hosts]
    if any(map(is_for_boot_cells, profiles)):
        return tuple(fact for fact in CONSTANT_FACTS if fact != "mem_total_bytes")
    return CONSTANT_FACTS


def measure_cells(
    cells: Sequence[AnySpec],
    measure: Callable[[AnySpec], Cell],
    store: Store,
    progress: CampaignProgress,
) -> bool:
    """True when Ctrl-C or SIGTERM cut the campaign short; finished cells are kept either way."""
    finished = store.finished_cells()
    with progress, terminate_like_interrupt():
        try:
            for number, cell in enumerate(cells, start=1):
                progress.start_cell(number, cell)
                if cell.id in finished:
                    progress.end_cell("measured before")
                    continue
                record = measure(cell)
                store.add_cell(record)
                progress.end_cell(_summary(record))
        except KeyboardInterrupt:
            progress.say("interrupted: this cell is dropped, finished cells are kept")
            return True
    return False


def _summary(cell: Cell) -> str:
    notes = "; ".join(cell.reasons or cell.labels)
    return f"{cell.state}: {notes}" if notes else cell.state


@contextlib.contextmanager
def open_log(directory: Path) -> Iterator[Callable[[str], None]]:
    """Writes lines with their time to ``log.txt``."""
    with (directory / "log.txt").open("a", encoding="utf-8") as file:

        def write(message: str) -> None:
            file.write(f"{_now()} {message}\n")
            file.flush()

        write(f"pagetier {importlib.metadata.version('pagetier')}, pid {os.getpid()}")
        yield write


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
