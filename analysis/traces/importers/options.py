# SPDX-License-Identifier: Apache-2.0
"""What only the user can know about a file of routes, and the format of importers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.columns import Int64
from pagetier.analysis.traces.header import MAX_INT32
from pagetier.analysis.traces.importers.arrays import read_npy
from pagetier.analysis.traces.importers.routes import Routes
from pagetier.analysis.traces.importers.source import Source

__all__ = ["Format", "ImportOptions", "parse_columns", "parse_layers", "read_physical_map"]

_ROLES = ("request", "phase", "step", "layer", "experts", "weights")
_MAX_LAYERS = 1 << 16


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of ``trace import``; None means: as the file says.

    `layers` are the model's layers that route, in order: what the file calls layer layers[i] is
    layer i of the trace.  `axes` is the order of an array's axes: t position, l layer, k choice.
    `prompt_tokens` positions at the start of each request are prefill.  `positions` is the most
    token positions that one decode pass routes: wider passes are prefill.  `columns` maps roles
    (request, phase, step, layer, experts, weights) to the names they have in a table.
    """

    format: str | None = None
    model: str | None = None
    domain: str | None = None
    num_layers: int | None = None
    num_experts: int | None = None
    top_k: int | None = None
    layers: tuple[int, ...] | None = None
    axes: str = "tlk"
    prompt_tokens: int = 0
    positions: int = 2
    physical_map: Int64 | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    repair: bool = False


@dataclass(frozen=True, slots=True)
class Format:
    """One format: how it is known by its first bytes, and how it is read.

    `read` raises InputError for counts without order: they are tables, not traces.
    """

    name: str
    description: str
    detects: Callable[[Source], bool]
    read: Callable[[Source, ImportOptions], Routes]


def parse_layers(text: str) -> tuple[int, ...]:
    """Layers from "3-60" or "1,3,5-7"."""
    layers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        numbers = [first, last] if dash else [first]
        if not text.isascii() or not all(n.isdecimal() and len(n) < 9 for n in numbers):
            raise InputError(f"--layers {text}: expected layers such as 3-60 or 1,3,5")
        low, high = int(first), int(last if dash else first)
        if not low <= high < _MAX_LAYERS or (layers and low <= layers[-1]):
            raise InputError(f"--layers {text}: layers must rise and be below {_MAX_LAYERS}")
        layers += range(low, high + 1)
    return tuple(layers)


def read_physical_map(path: Path) -> Int64:
    """A map [layer, physical copy] of logical ids, from an npy file."""
    source = Source(path)
    array = read_npy(source)
    if array.ndim != 2 or array.dtype.kind not in "iu" or not array.size:
        raise source.error("a physical map is an npy table of whole numbers [layer, copy]")
    if array.min() < 0 or array.max() > MAX_INT32:
        raise source.error("a physical map holds logical ids of 0 and more")
    return array.astype(np.int64)


def parse_columns(text: str) -> dict[str, str]:
    """Roles of columns from "step=token_idx,layer=layer_idx"."""
    columns: dict[str, str] = {}
    for part in text.split(","):
        role, equals, name = part.strip().partition("=")
        if role not in _ROLES or not equals or not name:
            raise InputError(
                f"--columns {text}: expected ROLE=NAME pairs, with roles {', '.join(_ROLES)}"
            )
        columns[role] = name
    return columns
