# SPDX-License-Identifier: Apache-2.0
"""How much a simulated cache may hold, and what of it each layer gets.

Under per-layer scope a budget of experts is that of every layer; bytes and fractions are totals,
divided equally, and what is left over goes to the lowest layers.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError
from pagetier.analysis.simulators.prepare import Prepared
from pagetier.analysis.units import format_bytes, parse_bytes

__all__ = ["Budget", "Capacity", "ExpertBytes", "capacity_of", "parse_budget"]

Int64 = npt.NDArray[np.int64]
Uint64 = npt.NDArray[np.uint64]
# One size, or a size per global expert id.
ExpertBytes = int | Int64

_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*%")


@dataclass(frozen=True, slots=True)
class Budget:
    """An amount of `unit`: experts (of each layer under per-layer scope), bytes, or a fraction of
    all experts of the model."""

    unit: Literal["experts", "bytes", "fraction"]
    amount: int | Fraction

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError(f"a budget of {self.amount} is negative")

    def __str__(self) -> str:
        if self.unit == "fraction":
            return f"{float(self.amount * 100):g} %"
        return str(self.amount) if self.unit == "experts" else format_bytes(int(self.amount))


@dataclass(frozen=True, slots=True, eq=False)
class Capacity:
    """What each cache of a replay holds: experts, or bytes where `expert_size` (by global id) is
    not None.  `experts` and `bytes` are those of all layers together."""

    of_part: Uint64
    expert_size: Int64 | None
    experts: int | None
    bytes: int | None


def parse_budget(text: str) -> Budget:
    """`32` experts, `7.5 GB`, or `40 %` of all experts."""
    cleaned = text.strip()
    if cleaned.isascii() and cleaned.isdigit() and len(cleaned) < 19:
        return Budget("experts", int(cleaned))
    percent = _PERCENT.fullmatch(cleaned)
    if percent is not None:
        share = Fraction(percent[1]) / 100
        if share > 1:
            raise InputError(f"{text!r} is more than all experts: give 100 % or less")
        return Budget("fraction", share)
    try:
        return Budget("bytes", parse_bytes(cleaned))
    except InputError as error:
        raise InputError(
            f"{text!r} is not a budget: write experts (32), bytes (7.5 GB) or a share (40 %)"
        ) from error


def capacity_of(prepared: Prepared, budget: Budget, sizes: ExpertBytes | None) -> Capacity:
    """The capacities of the caches of a replay; `sizes` are needed for a budget of bytes."""
    _check_sizes(prepared, sizes)
    if budget.unit == "bytes":
        return _of_bytes(prepared, int(budget.amount), sizes)
    layers = prepared.events.num_layers if prepared.contract.scope == "per-layer" else 1
    if budget.unit == "experts":
        quotas = np.full(layers, _bounded(int(budget.amount)), dtype=np.int64)
    else:
        # Nearest, halves up.
        total = int(Fraction(budget.amount) * prepared.events.total_experts + Fraction(1, 2))
        quotas = total // layers + (np.arange(layers) < total % layers)
    return _counted(prepared, quotas, sizes)


def _bounded(amount: int) -> int:
    return min(amount, 2**40)  # more experts than any model has: sums of quotas stay in 64 bits


def _check_sizes(prepared: Prepared, sizes: ExpertBytes | None) -> None:
    if sizes is None:
        return
    if isinstance(sizes, int):
        if sizes < 1:
            raise ValueError(f"an expert of {sizes} B")
    elif len(sizes) != prepared.events.total_experts or sizes.min() < 1:
        raise ValueError(f"{len(sizes)} sizes for {prepared.events.total_experts} experts")


def _counted(prepared: Prepared, quotas: Int64, sizes: ExpertBytes | None) -> Capacity:
    """Capacities in experts; their bytes are known when every expert has one size."""
    total = int(quotas.sum())
    return Capacity(
        of_part=_of_part(prepared, quotas),
        expert_size=None,
        experts=total,
        bytes=total * sizes if isinstance(sizes, int) else None,
    )


def _of_part(prepared: Prepared, quotas: Int64) -> Uint64:
    return quotas[np.maximum(prepared.part_layer, 0)].astype(np.uint64)


def _of_bytes(prepared: Prepared, total: int, sizes: ExpertBytes | None) -> Capacity:
    if sizes is None:
        raise InputError("a budget of bytes needs the size of an expert: give --expert-bytes")
    events = prepared.events
    table = sizes if not isinstance(sizes, int) else np.full(1, sizes, dtype=np.int64)
    if prepared.contract.scope == "global":
        if table.min() == table.max():
            return _exact(_counted(prepared, np.array([total // int(table[0])]), sizes), total)
        return _sized(prepared, np.array([total]), table, total)
    by_layer = np.broadcast_to(table, events.total_experts).reshape(events.num_layers, -1)
    if np.array_equal(by_layer.min(axis=1), by_layer.max(axis=1)):
        return _exact(_counted(prepared, _whole_experts(total, by_layer[:, 0]), sizes), total)
    layers = events.num_layers
    return _sized(
        prepared, total // layers + (np.arange(layers) < total % layers), by_layer.ravel(), total
    )


def _exact(capacity: Capacity, total: int) -> Capacity:
    return Capacity(capacity.of_part, capacity.expert_size, capacity.experts, total)


def _whole_experts(total: int, size_of_layer: Int64) -> Int64:
    """Equal shares of bytes in whole experts; what is left buys the lowest layers one more each."""
    quotas = total // len(size_of_layer) // size_of_layer
    left = total - int((quotas * size_of_layer).sum())
    for layer, size in enumerate(size_of_layer.tolist()):
        if size <= left:
            quotas[layer] += 1
            left -= size
    return quotas


def _sized(prepared: Prepared, quotas: Int64, table: Int64, total: int) -> Capacity:
    return Capacity(
        of_part=_of_part(prepared, quotas),
        expert_size=table,
        experts=None,
        bytes=total,
    )
