# SPDX-License-Identifier: Apache-2.0
"""Which cells of a campaign this host can run, by the doctor, before anything is made."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagetier.analysis.errors import CapabilityError
from pagetier.bench.campaign import CellSpec, PoolSource
from pagetier.bench.doctor import doctor, requirements_for, warnings_of
from pagetier.bench.requirements import PoolFindings
from pagetier.cgroups.roots import Roots
from pagetier.tiers.pool import open_pool

__all__ = ["Preflight", "examine"]


@dataclass(frozen=True, slots=True)
class Preflight:
    """Which cells can run here, which cannot and why, and the advice not met, by pool."""

    runnable: list[CellSpec]
    not_run: list[dict[str, str]]
    warnings: dict[str, list[dict[str, Any]]]

    def notes(self) -> list[str]:
        """Every warning once, then what cannot run: lines for people."""
        found = {
            f"note: {item['name']}: {item['found']}"
            for items in self.warnings.values()
            for item in items
        }
        missing = [f"not run: {item['cell']}: {item['reason']}" for item in self.not_run]
        return sorted(found) + missing


def examine(cells: list[CellSpec], sources: list[PoolSource], roots: Roots) -> Preflight:
    """Sort the cells; raises CapabilityError with reason and remedy when none can run."""
    reports = {source.path: _report(source, roots) for source in sources}
    runnable, not_run = [], []
    for cell in cells:
        failing = requirements_for(reports[cell.pool], cell.mechanism, cell.tier, cell.read)
        if not failing:
            runnable.append(cell)
            continue
        reason = "; ".join(f"{item['name']}: {item['found']}: {item['remedy']}" for item in failing)
        not_run.append({"cell": cell.describe(), "reason": reason})
    if not runnable:
        raise CapabilityError(f"no cell can run on this host: {not_run[0]['reason']}")
    warnings = {path: warnings_of(report) for path, report in reports.items()}
    return Preflight(runnable, not_run, warnings)


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
