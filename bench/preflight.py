# SPDX-License-Identifier: Apache-2.0
"""Which cells of a campaign this host can run, by the doctor, before anything is made."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagetier.analysis.errors import CapabilityError
from pagetier.analysis.units import format_bytes
from pagetier.bench.campaign import BalloonOptions, CellSpec, PoolSource
from pagetier.bench.doctor import doctor, requirements_for, warnings_of
from pagetier.bench.requirements import PoolFindings
from pagetier.capacity.balloon import plan_balloon
from pagetier.capacity.errors import CapacityError
from pagetier.capacity.meminfo import read_meminfo
from pagetier.cgroups.roots import Roots
from pagetier.tiers.pool import open_pool

__all__ = ["Preflight", "examine"]


@dataclass(frozen=True, slots=True)
class Preflight:
    """Which cells can run here, which cannot and why, and the advice not met, by pool."""

    runnable: list[CellSpec]
    not_run: list[dict[str, str]]
    warnings: dict[str, list[dict[str, Any]]]
    locks: dict[int, int]  # bytes a balloon will lock, by capacity

    def notes(self) -> list[str]:
        """Every warning once, what will be locked, then what cannot run: lines for people."""
        found = {
            f"note: {item['name']}: {item['found']}"
            for items in self.warnings.values()
            for item in items
        }
        locks = [
            f"note: a balloon will lock {format_bytes(lock)} of this host's memory to leave "
            f"{format_bytes(capacity)}"
            for capacity, lock in sorted(self.locks.items())
        ]
        missing = [f"not run: {item['cell']}: {item['reason']}" for item in self.not_run]
        return [*sorted(found), *locks, *missing]


def examine(
    cells: list[CellSpec], sources: list[PoolSource], balloon: BalloonOptions, roots: Roots
) -> Preflight:
    """Sort the cells; raises CapabilityError with reason and remedy when none can run."""
    reports = {source.path: _report(source, roots) for source in sources}
    warnings = {path: warnings_of(report) for path, report in reports.items()}
    result = Preflight([], [], warnings, {})
    for cell in cells:
        try:
            _require(reports[cell.pool], cell)
            if cell.mechanism == "balloon" and cell.capacity_bytes is not None:
                lock_bytes = plan_balloon(read_meminfo(roots), cell.capacity_bytes, balloon.floor)
                result.locks[cell.capacity_bytes] = lock_bytes
            result.runnable.append(cell)
        except (CapabilityError, CapacityError) as error:
            result.not_run.append({"cell": cell.describe(), "reason": str(error)})
    if not result.runnable:
        raise CapabilityError(f"no cell can run on this host: {result.not_run[0]['reason']}")
    return result


def _require(report: dict[str, Any], cell: CellSpec) -> None:
    failing = requirements_for(report, cell.mechanism, cell.tier, cell.read)
    if failing:
        raise CapabilityError(
            "; ".join(f"{item['name']}: {item['found']}: {item['remedy']}" for item in failing)
        )


def _report(source: PoolSource, roots: Roots) -> dict[str, Any]:
    """The doctor's report on a pool that is there, or on the place and geometry of one to make."""
    path = Path(source.path)
    if path.exists() or source.create is None:
        return doctor(roots, open_pool(path))
    made = source.create
    experts = made.layers * made.experts
    planned = PoolFindings(
        files=experts if made.layout == "files" else 1,
        expert_bytes=made.expert_bytes,
        layout=made.layout,
        planned_bytes=experts * made.expert_bytes,
    )
    place = next(folder for folder in path.absolute().parents if folder.exists())
    return doctor(roots, where=place, planned=planned)
