# SPDX-License-Identifier: Apache-2.0
"""Which experts an arena should hold: the most frequent ones, by a table of counts.

The counts are those of the evaluated plan (``oracle``, which knows what a deployed system cannot),
or come from a file: another trace, the ``.coli_usage`` of an engine, or a CSV with the columns
layer, expert and count (count may be absent: then each line counts once).  Equal counts are ranked
by global expert id, the smaller first; experts that no line names have count 0 and rank last.
"""

import csv
import io
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError
from pagetier.analysis.plans import Plan, Uint32, build_plan
from pagetier.analysis.traces import read_trace
from pagetier.analysis.traces.stream import lines_of

__all__ = ["ORACLE", "count_reads", "most_frequent", "read_counts"]

ORACLE = "oracle"

Counts = npt.NDArray[np.int64]

_MAX_COUNT = 2**53


def count_reads(plan: Plan) -> Counts:
    """Reads of every expert, by global id."""
    return np.bincount(plan.experts, minlength=plan.num_layers * plan.num_experts)


def most_frequent(counts: Counts, experts: int) -> Uint32:
    """The ids of the `experts` most frequent experts, most frequent first."""
    ranked = np.lexsort((np.arange(len(counts)), -counts))
    return ranked[:experts].astype(np.uint32)


def read_counts(path: Path, num_layers: int, num_experts: int) -> Counts:
    """The counts in a file of any of the three kinds, told apart by its first line.

    InputError with file and line for another geometry and for what is no count.
    """
    try:
        with open(path, "rb") as file:
            lines = _significant(path, file)
            first = next(lines, None)
            if first is None:
                raise InputError(f"{path}: is empty: give a trace or a file of expert counts")
            if first[1].startswith("{"):
                return _counts_of_trace(path, num_layers, num_experts)
            rows = (_csv_rows if "," in first[1] else _usage_rows)(path, first, lines)
            counts = _add_up(rows, num_layers, num_experts)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{path}: {reason}: give a trace or a file of expert counts") from error
    if not counts.any():
        raise InputError(f"{path}: counts no expert: give a table with at least one read")
    return counts


_Line = tuple[int, str]  # its number, its text


def _significant(path: Path, file: io.BufferedReader) -> Iterator[_Line]:
    """The lines that are neither empty nor a comment."""
    for number, line in enumerate(lines_of(path, file), start=1):
        text = line.decode("utf-8", "replace").strip()
        if text and not text.startswith("#"):
            yield number, text


def _counts_of_trace(path: Path, num_layers: int, num_experts: int) -> Counts:
    plan = build_plan(read_trace(path))
    if (plan.num_layers, plan.num_experts) != (num_layers, num_experts):
        raise _other_geometry(
            f"{path}:1: counts {plan.num_layers} layers of {plan.num_experts} experts",
            num_layers,
            num_experts,
        )
    return count_reads(plan)


_Row = tuple[str, list[str]]  # where it stands, its fields


def _usage_rows(path: Path, first: _Line, lines: Iterator[_Line]) -> Iterator[_Row]:
    for number, text in itertools.chain([first], lines):
        yield f"{path}:{number}", text.split()


def _csv_rows(path: Path, first: _Line, lines: Iterator[_Line]) -> Iterator[_Row]:
    """Lines after the head, in the order layer, expert, count."""
    head = _fields(first[1])
    order = _columns(f"{path}:{first[0]}", head)
    for number, text in itertools.chain([first] if _is_number(head[0]) else [], lines):
        fields = _fields(text)
        if len(fields) < len(head):
            raise InputError(f"{path}:{number}: {len(fields)} fields, expected {len(head)}")
        yield f"{path}:{number}", [fields[column] for column in order]


def _fields(text: str) -> list[str]:
    return next(csv.reader([text]))


def _columns(where: str, head: list[str]) -> list[int]:
    """Where layer, expert and count stand; a file without a head has them in this order."""
    if _is_number(head[0]):
        return list(range(min(len(head), 3)))
    names = [name.strip().lower() for name in head]
    if "layer" not in names or "expert" not in names:
        raise InputError(f"{where}: a table of counts has the columns layer, expert and count")
    return [names.index(name) for name in ("layer", "expert", "count") if name in names]


def _is_number(text: str) -> bool:
    return text.strip().lstrip("-").isdecimal()


def _add_up(rows: Iterator[_Row], num_layers: int, num_experts: int) -> Counts:
    counts = np.zeros(num_layers * num_experts, dtype=np.int64)
    for where, fields in rows:
        layer, *values = _numbers(where, fields)
        if layer < 0:
            _check_header_record(where, layer, values, num_layers, num_experts)
            continue
        expert, count = values[0], values[1] if len(values) > 1 else 1
        if layer >= num_layers or not 0 <= expert < num_experts:
            raise _other_geometry(
                f"{where}: counts expert {expert} of layer {layer}", num_layers, num_experts
            )
        if not 0 <= count <= _MAX_COUNT:
            raise InputError(f"{where}: {count} is no count of reads: expected 0..{_MAX_COUNT}")
        counts[layer * num_experts + expert] += count
    return counts


def _numbers(where: str, fields: list[str]) -> list[int]:
    """Layer, expert and maybe a count; the identity record of .coli_usage ends in a hash."""
    try:
        numbers = [int(field) for field in fields[:2]]
        if numbers[0] != _IDENTITY:
            numbers += [int(field) for field in fields[2:3]]
    except (ValueError, IndexError):
        numbers = []
    if len(numbers) < 2:
        raise InputError(
            f"{where}: expected layer, expert and count, found {' '.join(fields)[:80]!r}"
        )
    return numbers


# Header records of .coli_usage: "-1 layers experts" and "-2 version hash".
_DIMENSIONS, _IDENTITY = -1, -2


def _check_header_record(
    where: str, kind: int, values: list[int], num_layers: int, num_experts: int
) -> None:
    if kind not in (_DIMENSIONS, _IDENTITY):
        raise InputError(f"{where}: layer {kind} is negative and no header record (-1 or -2)")
    if kind == _DIMENSIONS and values != [num_layers, num_experts]:
        raise _other_geometry(
            f"{where}: counts layers and experts {values}", num_layers, num_experts
        )


def _other_geometry(found: str, num_layers: int, num_experts: int) -> InputError:
    return InputError(
        f"{found}, the plan has {num_layers} layers of {num_experts} experts: give a table of the "
        "same model"
    )
