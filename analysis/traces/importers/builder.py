# SPDX-License-Identifier: Apache-2.0
"""Collects routes that come record by record, with the line each came from."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.columns import Float64
from pagetier.analysis.traces.header import MAX_INT32
from pagetier.analysis.traces.importers.routes import Geometry, Routes
from pagetier.analysis.traces.importers.source import Source

__all__ = ["Record", "RouteBuilder", "as_union", "weight_number", "whole_number"]

_MAX_WEIGHT = 1e9


@dataclass(frozen=True, slots=True)
class Record:
    """One router pass of one layer; `line` is where it stands.

    Weights are as many as experts, or none; NaN is an unknown one.
    """

    line: int
    layer: int
    experts: Sequence[int]
    weights: Sequence[float] = ()
    request: str | int = "1"
    step: int = 0
    prefill: bool = False
    positions: int = 1


def whole_number(source: Source, text: str, what: str, line: int, least: int = 0) -> int:
    """The number that `text` is; an InputError for anything but a plain whole one."""
    digits = text.strip()
    try:
        value = int(digits)
    except ValueError:
        value = least - 1
    if not least <= value <= MAX_INT32 or not digits.isascii() or "_" in digits:
        problem = f"{what} is {digits!r:.60}: expected a whole number of {least} or more"
        raise source.error(problem, line)
    return value


class RouteBuilder:
    """Columns that grow by records; `steps` says whether the records know theirs."""

    def __init__(self, source: Source, *, steps: bool) -> None:
        self._source = source
        self._steps = steps
        self._names: dict[str | int, int] = {}
        self._request, self._step, self._layer = array("i"), array("i"), array("i")
        self._width, self._positions, self._experts = array("i"), array("i"), array("i")
        self._weights = array("d")
        self._prefill = array("b")
        self._line = array("q")

    def add(self, record: Record) -> None:
        """One more record."""
        if record.weights and len(record.weights) != len(record.experts):
            weights, experts = len(record.weights), len(record.experts)
            message = f"{weights} weights for {experts} experts: give one each"
            raise self._source.error(message, record.line)
        if bool(record.weights) is not bool(self._weights) and self._width:
            raise self._source.error("only some of the records have weights", record.line)
        self._request.append(self._names.setdefault(record.request, len(self._names)))
        self._step.append(record.step)
        self._layer.append(record.layer)
        self._width.append(len(record.experts))
        self._experts.extend(record.experts)
        self._weights.extend(record.weights)
        self._prefill.append(record.prefill)
        self._positions.append(record.positions)
        self._line.append(record.line)

    def routes(self, geometry: Geometry) -> Routes:
        """What was collected."""
        line, path = self._line, self._source.path
        return Routes(
            where=lambda record: f"{path}:{line[record]}",
            names=tuple(self._names),
            request=_int32(self._request),
            step=_int32(self._step) if self._steps else None,
            layer=_int32(self._layer),
            width=_int32(self._width),
            experts=_int32(self._experts),
            weights=self._known_weights(),
            prefill=np.array(self._prefill, np.bool_),
            positions=_int32(self._positions),
            geometry=geometry,
        )

    def _known_weights(self) -> Float64 | None:
        """None where one of them is not known: half a column would be read as a whole one."""
        weights = np.array(self._weights, np.float64)
        return weights if len(weights) and not np.isnan(weights).any() else None


def weight_number(source: Source, text: str, line: int) -> float:
    """A gate's weight: a number of 0 or more, or NaN where it is unknown."""
    try:
        weight = float(text)
    except ValueError:
        weight = -1.0
    if weight < 0 or weight > _MAX_WEIGHT:
        raise source.error(f"weight is {text!r:.60}: expected a number of 0 or more", line)
    return weight


def _int32(column: "array[int]") -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    return np.frombuffer(column, np.int32) if column else np.empty(0, np.int32)


def as_union(
    source: Source, line: int, rows: Sequence[tuple[Sequence[int], Sequence[float]]]
) -> tuple[list[int], list[float]]:
    """Ids of the positions of one pass as a set in order of appearance, their weights added up."""
    mass: dict[int, float] = {}
    for experts, weights in rows:
        if len(set(experts)) < len(experts):
            raise InputError(f"{source.path}:{line}: an expert id appears twice in one position")
        for expert, weight in zip(experts, weights or [0.0] * len(experts), strict=True):
            mass[expert] = mass.get(expert, 0.0) + weight
    has_weights = all(weights for _, weights in rows)
    return list(mass), list(mass.values()) if has_weights else []
