# SPDX-License-Identifier: Apache-2.0
"""The exact ordered reads of a trace.

An expert's global id is ``layer * num_experts + expert``.  A record is one router pass of one
layer; an iteration is one step of one request over all layers.  Requests are served one after
another, each step an iteration of its own.
"""

import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError
from pagetier.analysis.files import replace_file
from pagetier.analysis.traces import Trace, widths

__all__ = ["Plan", "build_plan", "load_plan", "save_plan"]

Int64 = npt.NDArray[np.int64]
Uint32 = npt.NDArray[np.uint32]
Uint64 = npt.NDArray[np.uint64]

_ARRAYS = {"experts": np.uint32, "record_start": np.uint64, "iteration_start": np.uint64}


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Record r reads experts[record_start[r]:record_start[r + 1]], in that order; iteration i is
    records iteration_start[i] to iteration_start[i + 1]."""

    experts: Uint32
    record_start: Uint64
    iteration_start: Uint64
    num_layers: int
    num_experts: int

    @property
    def num_reads(self) -> int:
        return len(self.experts)

    @property
    def num_records(self) -> int:
        return len(self.record_start) - 1

    @property
    def num_iterations(self) -> int:
        return len(self.iteration_start) - 1

    @property
    def read_start(self) -> Int64:
        """First read of each iteration, and the end of the last."""
        return self.record_start[self.iteration_start].astype(np.int64)

    @property
    def distinct_experts(self) -> int:
        """How many experts the plan reads at least once."""
        return len(np.unique(self.experts))

    @property
    def sha256(self) -> str:
        """Digest of geometry and reads: equal for plans that replay alike, on any machine."""
        digest = hashlib.sha256(f"pagetier plan {self.num_layers} {self.num_experts}".encode())
        for name, dtype in _ARRAYS.items():
            values = getattr(self, name)
            digest.update(f" {name} {len(values)} ".encode())
            digest.update(values.astype(np.dtype(dtype).newbyteorder("<")).tobytes())
        return digest.hexdigest()

    def demand_bytes(self, expert_bytes: Int64 | int) -> Int64:
        """Bytes each iteration reads, for one size or a size per global expert id."""
        if isinstance(expert_bytes, int):
            return np.diff(self.read_start) * expert_bytes
        sizes = np.asarray(expert_bytes, dtype=np.int64)[self.experts]
        return per_iteration(self, sizes)


def per_iteration(plan: Plan, per_read: npt.NDArray[np.integer | np.bool_]) -> Int64:
    """Sums of a per-read quantity over each iteration (an empty iteration sums to 0)."""
    total = np.zeros(len(per_read) + 1, dtype=np.int64)
    np.cumsum(per_read, out=total[1:])
    return np.diff(total[plan.read_start])


def build_plan(trace: Trace) -> Plan:
    """The reads of `trace` in recorded order."""
    width = widths(trace.record_start)
    base = np.repeat(trace.layer.astype(np.uint32) * np.uint32(trace.header.num_experts), width)
    return Plan(
        experts=base + trace.experts,
        record_start=trace.record_start,
        iteration_start=trace.iteration_start,
        num_layers=trace.header.num_layers,
        num_experts=trace.header.num_experts,
    )


def save_plan(plan: Plan, path: Path) -> None:
    """Write `plan` as an .npz archive of plain arrays."""
    arrays = {name: getattr(plan, name) for name in _ARRAYS}
    buffer = io.BytesIO()
    np.savez(buffer, geometry=np.array([plan.num_layers, plan.num_experts]), **arrays)
    replace_file(path, buffer.getvalue())


def load_plan(path: Path) -> Plan:
    """The plan that `save_plan` wrote; pickled objects are refused."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in _ARRAYS}
            geometry = archive["geometry"]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}: give a readable plan") from error
    except (ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not a plan ({error}): build it again from its trace") from error
    return _checked(path, arrays, geometry)


def _checked(path: Path, arrays: dict[str, npt.NDArray[np.generic]], geometry: Int64) -> Plan:
    for name, dtype in _ARRAYS.items():
        if arrays[name].dtype != dtype or arrays[name].ndim != 1:
            raise InputError(
                f"{path}: {name} is not a list of {np.dtype(dtype).name}: build it again"
            )
    if geometry.shape != (2,) or geometry.dtype.kind != "i" or geometry.min() < 1:
        raise InputError(f"{path}: geometry is not two counts: build the plan again from its trace")
    plan = Plan(
        experts=arrays["experts"].astype(np.uint32),
        record_start=arrays["record_start"].astype(np.uint64),
        iteration_start=arrays["iteration_start"].astype(np.uint64),
        num_layers=int(geometry[0]),
        num_experts=int(geometry[1]),
    )
    _check_starts(path, "record_start", plan.record_start, plan.num_reads)
    _check_starts(path, "iteration_start", plan.iteration_start, plan.num_records)
    if plan.num_reads and int(plan.experts.max()) >= plan.num_layers * plan.num_experts:
        raise InputError(f"{path}: an expert id lies outside the geometry: build the plan again")
    return plan


def _check_starts(path: Path, name: str, starts: Uint64, end: int) -> None:
    signed = starts.astype(np.int64)
    if len(signed) == 0 or signed[0] != 0 or signed[-1] != end or np.any(np.diff(signed) < 0):
        raise InputError(f"{path}: {name} does not run from 0 to {end}: build the plan again")
