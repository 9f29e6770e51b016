# SPDX-License-Identifier: Apache-2.0
"""Which cells of a campaign this host can run, by the doctor, before anything is made."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagetier.analysis.errors import CapabilityError
from pagetier.analysis.units import format_bytes
from pagetier.bench.campaign import PoolSource
from pagetier.bench.cells import CellSpec
from pagetier.bench.doctor import doctor, requirements_for, warnings_of
from pagetier.bench.requirements import PoolFindings
from pagetier.capacity.balloon import plan_balloon
from pagetier.capacity.boot import BootProfile, profile_problem, read_boot_profile
from pagetier.capacity.errors import CapacityError
from pagetier.capacity.meminfo import Meminfo, read_meminfo
from pagetier.cgroups.roots import Roots
from pagetier.tiers.pool import open_pool

__all__ = ["Preflight", "examine", "is_for_boot_cells"]


@dataclass(frozen=True, slots=True)
class Preflight:
    """Which cells can run here, which cannot and why, and the advice not met, by pool.

    `waiting` cells, which are among those not run, lack nothing but another boot.
    """

    runnable: list[CellSpec]
    waiting: list[CellSpec]
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
        waiting = {cell.describe() for cell in self.waiting}
        missing = [
            f"not run: {item['cell']}: {item['reason']}"
            for item in self.not_run
            if item["cell"] not in waiting
        ]
        others = [f"note: {len(waiting)} cells are for another boot"] if waiting else []
        return [*sorted(found), *locks, *others, *missing]


def examine(
    cells: list[CellSpec], sources: list[PoolSource], balloon_floor_bytes: int, roots: Roots
) -> Preflight:
    """Sort the cells; raises CapabilityError with reason and remedy when none can run."""
    reports = {source.path: _report(source, roots) for source in sources}
    warnings = {path: warnings_of(report) for path, report in reports.items()}
    result = Preflight([], [], [], warnings, {})
    profile, meminfo = read_boot_profile(roots), read_meminfo(roots)
    for cell in cells:
        try:
            _require(reports[cell.pool], cell)
            problem = _other_boot(cell, profile, meminfo)
            if problem is not None:
                result.waiting.append(cell)
                raise CapabilityError(problem)
            if cell.mechanism == "balloon" and cell.capacity_bytes is not None:
                lock_bytes = plan_balloon(meminfo, cell.capacity_bytes, balloon_floor_bytes)
                result.locks[cell.capacity_bytes] = lock_bytes
            result.runnable.append(cell)
        except (CapabilityError, CapacityError) as error:
            result.not_run.append({"cell": cell.describe(), "reason": str(error)})
    if not result.runnable and not result.waiting:
        raise CapabilityError(f"no cell can run on this host: {result.not_run[0]['reason']}")
    return result


def _require(report: dict[str, Any], cell: CellSpec) -> None:
    switched = () if cell.mglru == "keep" else ("mglru",)
    failing = requirements_for(report, cell.mechanism, cell.tier, cell.read, *switched)
    if failing:
        raise CapabilityError(
            "; ".join(f"{item['name']}: {item['found']}: {item['remedy']}" for item in failing)
        )


def _other_boot(cell: CellSpec, profile: BootProfile | None, meminfo: Meminfo) -> str | None:
    """Why a cell needs another boot than the running one; None when this is the one."""
    if cell.mechanism == "boot" and cell.capacity_bytes is not None:
        if profile is None:
            return (
                "waits for its boot with mem=: `pagetier boot plan DIR` has the steps for this "
                "host, and `pagetier lab run` boots a guest instead"
            )
        return profile_problem(profile, meminfo, cell.capacity_bytes)
    if is_for_boot_cells(profile):
        return "this kernel was booted with mem= for boot cells: boot normally for all others"
    return None


def is_for_boot_cells(profile: BootProfile | None) -> bool:
    """Whether the kernel was booted for the boot cells of one capacity, and for no others."""
    return profile is not None and profile.capacity_bytes is not None


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
