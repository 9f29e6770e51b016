# SPDX-License-Identifier: Apache-2.0
"""Which cells of a campaign this host can run, by the doctor, before anything is made."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pagetier.analysis.errors import CapabilityError
from pagetier.analysis.units import format_bytes
from pagetier.bench.campaign import PoolSource
from pagetier.bench.cells import CellSpec
from pagetier.bench.doctor import doctor, requirements_for, warnings_of
from pagetier.bench.inputs import Geometry, geometry_of
from pagetier.bench.readahead import is_settable
from pagetier.bench.requirements import PoolFindings
from pagetier.bench.tiering import budget_of, refusal
from pagetier.capacity.balloon import plan_balloon
from pagetier.capacity.boot import BootProfile, profile_problem, read_boot_profile
from pagetier.capacity.errors import CapacityError
from pagetier.capacity.meminfo import Meminfo, read_meminfo
from pagetier.cgroups.roots import Roots
from pagetier.tiers.kinds import TIERS
from pagetier.tiers.pool import open_pool
from pagetier.tiers.support import mode_problem

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
    cells: list[CellSpec],
    sources: list[PoolSource],
    balloon_floor_bytes: int,
    roots: Roots,
    named: Sequence[str] = (),
) -> Preflight:
    """Sort the cells; raises CapabilityError with reason and remedy when none can run.

    `named` are the user's own words for the disks of the pools.
    """
    sites = {source.path: _Site.of(source, roots, named) for source in sources}
    warnings = {path: warnings_of(site.report) for path, site in sites.items()}
    result = Preflight([], [], [], warnings, {})
    profile, meminfo = read_boot_profile(roots), read_meminfo(roots)
    for cell in cells:
        try:
            site = sites[cell.pool]
            _require(site.report, cell, roots)
            locked_bytes = _locked_bytes(cell, site, meminfo)
            problem = _other_boot(cell, profile, meminfo)
            if problem is not None:
                result.waiting.append(cell)
                raise CapabilityError(problem)
            if cell.mechanism == "balloon" and cell.capacity_bytes is not None:
                rest_bytes = cell.capacity_bytes - locked_bytes
                left = _after_locking(meminfo, locked_bytes)
                lock_bytes = plan_balloon(left, rest_bytes, balloon_floor_bytes)
                result.locks[cell.capacity_bytes] = lock_bytes
            result.runnable.append(cell)
        except (CapabilityError, CapacityError) as error:
            result.not_run.append({"cell": cell.describe(), "reason": str(error)})
    if not result.runnable and not result.waiting:
        raise CapabilityError(f"no cell can run on this host: {result.not_run[0]['reason']}")
    return result


def _locked_bytes(cell: CellSpec, site: "_Site", meminfo: Meminfo) -> int:
    """What the tier will lock; CapabilityError for a cell that would not measure its name."""
    geometry = site.geometry
    reason = refusal(cell, geometry.expert_bytes, geometry.experts)
    reason = reason or mode_problem(TIERS[cell.tier].mode or cell.read, site.place)
    if reason is not None:
        raise CapabilityError(reason)
    locked_bytes = budget_of(cell, geometry.expert_bytes, geometry.experts).locked_bytes
    available_bytes = meminfo.available_bytes
    if available_bytes is not None and locked_bytes >= available_bytes:
        raise CapabilityError(
            f"spine and arena would lock {format_bytes(locked_bytes)} of the "
            f"{format_bytes(available_bytes)} that are available: lower capacity or spine"
        )
    return locked_bytes


def _after_locking(meminfo: Meminfo, locked_bytes: int) -> Meminfo:
    """What a balloon will find, which goes up when arena and spine are there."""
    if meminfo.available_bytes is None:
        return meminfo
    left = {"MemAvailable": meminfo.available_bytes - locked_bytes}
    return replace(meminfo, bytes_by_name={**meminfo.bytes_by_name, **left})


def _require_read_ahead(report: dict[str, Any], roots: Roots) -> None:
    device = report["device"]
    bdi = None if device is None else device.get("bdi") or device["number"]
    if bdi is not None and not is_settable(bdi, roots):
        raise CapabilityError(
            f"read_ahead_kb of device {bdi} cannot be set here: run as root, or leave it out"
        )


def _require(report: dict[str, Any], cell: CellSpec, roots: Roots) -> None:
    used = {cell.mechanism, cell.tier, cell.read}
    used |= {"mglru"} if cell.mglru != "keep" else set()
    used |= {"arena"} if cell.arena is not None or cell.spine_bytes else set()
    used |= {"mmap"} if cell.read == "populate" else set()
    failing = requirements_for(report, cell.mechanism, cell.tier, *used)
    if cell.read_ahead_kb is not None:
        _require_read_ahead(report, roots)
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


@dataclass(frozen=True, slots=True)
class _Site:
    """A pool that is there, or the place and geometry of one to make, with the doctor's report;
    `place` is a file of the first, the folder of the second."""

    report: dict[str, Any]
    geometry: Geometry
    place: Path

    @classmethod
    def of(cls, source: PoolSource, roots: Roots, named: Sequence[str]) -> "_Site":
        path, geometry = Path(source.path), geometry_of(source)
        if path.exists() or source.create is None:
            pool = open_pool(path)
            return cls(doctor(roots, pool, named=named), geometry, pool.root / pool.files()[0])
        made = source.create
        planned = PoolFindings(
            files=geometry.experts if made.layout == "files" else 1,
            expert_bytes=made.expert_bytes,
            layout=made.layout,
            planned_bytes=geometry.experts * made.expert_bytes,
        )
        place = next(folder for folder in path.absolute().parents if folder.exists())
        report = doctor(roots, where=place, planned=planned, named=named)
        return cls(report, geometry, place)
