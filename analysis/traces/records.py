# SPDX-License-Identifier: Apache-2.0
"""Records of JSON Lines as columns, collected line by line.

Plain records are parsed in C, a block at a time; every other line goes through the full JSON
parser, which takes it or says what is wrong with it.  Types are checked here, values and the rules
between records later, array-wise.
"""

import json
import math
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.columns import Float64, Int32
from pagetier.analysis.traces.header import MAX_INT32, json_object, short
from pagetier.native.routes import Block, NameChange, RouteKeys, RouteParser

__all__ = ["NameColumn", "RecordColumns"]

Name = str | int


class NameColumn:
    """Names numbered as they first appear."""

    def __init__(self) -> None:
        self._numbers: dict[Name, int] = {}
        self._tokens: dict[bytes, int] = {}
        self._column = array("i")

    @property
    def names(self) -> tuple[Name, ...]:
        return tuple(self._numbers)

    @property
    def numbers(self) -> Int32:
        return _as_int32(self._column)

    def append(self, name: Name) -> None:
        """One more record of `name`."""
        self._column.append(self._numbers.setdefault(name, len(self._numbers)))

    def extend(self, changes: Sequence[NameChange], records: int) -> None:
        """The names of a block of records."""
        starts = [change.record for change in changes] + [records]
        for change, start, end in zip(changes, starts[:-1], starts[1:], strict=True):
            self._column.extend([self._number(change.token)] * (end - start))

    def _number(self, token: bytes) -> int:
        if token not in self._tokens:
            name = json.loads(token)
            self._tokens[token] = self._numbers.setdefault(name, len(self._numbers))
        return self._tokens[token]


class RecordColumns:
    """The columns of records with these keys, first line `first_line` of `path`."""

    def __init__(self, path: Path, keys: RouteKeys, first_line: int) -> None:
        self.path = path
        self.keys = keys
        self.first_line = first_line
        self._parser: RouteParser | None = None
        self.request = NameColumn()
        self.phase = NameColumn()
        self._step = array("i")
        self._layer = array("i")
        self._width = array("i")
        self._experts = array("i")
        self._weights = array("d")

    def __len__(self) -> int:
        return len(self._width)

    @property
    def step(self) -> Int32:
        return _as_int32(self._step)

    @property
    def layer(self) -> Int32:
        return _as_int32(self._layer)

    @property
    def width(self) -> Int32:
        return _as_int32(self._width)

    @property
    def experts(self) -> Int32:
        return _as_int32(self._experts)

    @property
    def weights(self) -> Float64 | None:
        return np.frombuffer(self._weights, np.float64) if self._weights else None

    def where(self, record: int) -> str:
        """File and line of a record."""
        return f"{self.path}:{record + self.first_line}"

    def add_block(self, block: bytes) -> None:
        """Parse the lines of `block`."""
        at = 0
        while at < len(block):
            at += self._add_plain(memoryview(block)[at:])
            end = block.find(b"\n", at) + 1 or len(block)
            if at < end:
                self._add(block[at:end])
            at = end

    def _add_plain(self, lines: memoryview) -> int:
        if self._parser is None:
            return 0
        block = self._parser.parse(lines)
        self._extend(block)
        return block.taken_bytes

    def _extend(self, block: Block) -> None:
        records = len(block.width)
        if self.keys.request is not None:
            self.request.extend(block.requests, records)
        if self.keys.phase is not None:
            self.phase.extend(block.phases, records)
        if self.keys.step is not None:
            self._step.frombytes(block.step.tobytes())
        self._layer.frombytes(block.layer.tobytes())
        self._width.frombytes(block.width.tobytes())
        self._experts.frombytes(block.experts.tobytes())
        if self._weights:
            self._weights.frombytes(block.weights.tobytes())

    def _add(self, line: bytes) -> None:
        where = self.where(len(self))
        record = json_object(where, line)
        self._add_names(where, record)
        step = None if self.keys.step is None else _index(where, record, self.keys.step)
        layer = _index(where, record, self.keys.layer)
        experts = _expert_ids(where, record, self.keys.experts)
        self._add_weights(where, record, len(experts))
        if step is not None:
            self._step.append(step)
        self._layer.append(layer)
        self._width.append(len(experts))
        self._experts.extend(experts)
        if self._parser is None:
            # Whether there are weights is known from the first record on.
            self._parser = RouteParser(self._keys_of_blocks())

    def _keys_of_blocks(self) -> RouteKeys:
        return self.keys if self._weights else replace(self.keys, weights=None)

    def _add_names(self, where: str, record: dict[str, Any]) -> None:
        request, phase = self.keys.request, self.keys.phase
        for column, key in ((self.request, request), (self.phase, phase)):
            if key is None:
                continue
            name = record.get(key)
            if type(name) is not str and type(name) is not int:
                raise InputError(f"{where}: {key} is {short(name)}: expected a name or a number")
            column.append(name)

    def _add_weights(self, where: str, record: dict[str, Any], width: int) -> None:
        key = self.keys.weights
        weights = None if key is None else record.get(key)
        if (weights is None) is bool(self._weights) and self._width:
            state = "missing" if weights is None else "present"
            raise InputError(f"{where}: weights are {state} here but not in the records before")
        if weights is None:
            return
        if not isinstance(weights, list) or not {*map(type, weights)} <= {int, float}:
            raise InputError(f"{where}: weights must be a list of numbers")
        if len(weights) != width:
            raise InputError(f"{where}: {len(weights)} weights for {width} experts: give one each")
        if not all(map(_is_finite, weights)):
            raise InputError(f"{where}: a weight is not a finite number: {short(weights)}")
        if min(weights, default=0) < 0:
            raise InputError(f"{where}: a weight is negative: {short(min(weights))}")
        self._weights.extend(weights)


def _as_int32(column: "array[int]") -> Int32:
    return np.frombuffer(column, np.int32) if column else np.empty(0, np.int32)


def _is_finite(weight: float) -> bool:
    try:
        return math.isfinite(weight)
    except OverflowError:  # an integer beyond the range of a double
        return False


def _index(where: str, record: dict[str, Any], name: str) -> int:
    value = record.get(name)
    if type(value) is not int:
        raise InputError(f"{where}: {name} is {short(value)}: expected a whole number")
    if value < 0:
        raise InputError(f"{where}: {name} {short(value)} is negative")
    if value > MAX_INT32:
        raise InputError(f"{where}: {name} {short(value)} is out of range")
    return value


def _expert_ids(where: str, record: dict[str, Any], name: str) -> list[int]:
    experts = record.get(name)
    if not isinstance(experts, list) or not {*map(type, experts)} <= {int}:
        raise InputError(f"{where}: {name} must be a list of whole numbers")
    if experts and not -MAX_INT32 <= min(experts) <= max(experts) <= MAX_INT32:
        raise InputError(f"{where}: an expert id is out of range: {short(experts)}")
    return experts
