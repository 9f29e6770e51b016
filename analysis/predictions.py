# SPDX-License-Identifier: Apache-2.0
"""What a router predictor said, recorded: JSON Lines, plain or gzip.

Line 1 is ``{"format": "moe-route-predictions", "version": 1, "num_layers", "num_experts"}``; each
other line is ``{"req", "step", "layer", "experts"}``: once `layer` has routed in that step of that
request, these experts are expected of the next layer (after the last layer, of layer 0 of the next
step).  Ids are per layer.  A record may be absent and a list empty: nothing was predicted then.
Anything else raises InputError with the file and the line.
"""

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError
from pagetier.analysis.hints import HintPlan
from pagetier.analysis.traces import Trace
from pagetier.analysis.traces.header import MAX_INT32, json_object, short
from pagetier.analysis.traces.stream import lines_of

__all__ = ["read_predictions"]

FORMAT = "moe-route-predictions"
VERSION = 1

_Key = tuple[str | int, int, int]


def read_predictions(path: Path, trace: Trace) -> HintPlan:
    """The hints of a recorded predictor for the records of `trace`.

    Predictions for steps that the trace does not have (it may be cut) are left out; InputError when
    that leaves none, or when the geometry is another.
    """
    try:
        with open(path, "rb") as file:
            return _parse(path, lines_of(path, file), trace)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"{path}: {reason}: give the path of a readable prediction file"
        ) from error


def _parse(path: Path, lines: Iterator[bytes], trace: Trace) -> HintPlan:
    first = next(lines, b"")
    _check_header(f"{path}:1", first, trace)
    records = _records_of(trace)
    hinted: dict[int, array[int]] = {}
    for number, line in enumerate(lines, start=2):
        where = f"{path}:{number}"
        key, experts = _prediction(where, json_object(where, line), trace)
        for record in records.get(key, ()):
            if record in hinted:
                raise InputError(f"{where}: step {key[1]}, layer {key[2]} of {key[0]!r} again")
            hinted[record] = experts
    if not hinted:
        raise InputError(
            f"{path}: predicts no record of the trace: its requests and steps are of another one"
        )
    return _as_hints(hinted, trace)


def _check_header(where: str, line: bytes, trace: Trace) -> None:
    header = json_object(where, line)
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        raise InputError(
            f'{where}: no header: the first line must be an object with "format": "{FORMAT}" and'
            f' "version": {VERSION}'
        )
    shape = header.get("num_layers"), header.get("num_experts")
    wanted = trace.header.num_layers, trace.header.num_experts
    if shape != wanted:
        raise InputError(
            f"{where}: predicts {short(shape[0])} layers of {short(shape[1])} experts, the trace"
            f" has {wanted[0]} of {wanted[1]}: give the predictions made for it"
        )


def _records_of(trace: Trace) -> dict[_Key, list[int]]:
    """Which records a prediction stands at; both passes of a fallback have the same key."""
    records: dict[_Key, list[int]] = {}
    columns = zip(trace.request.tolist(), trace.step.tolist(), trace.layer.tolist(), strict=True)
    for record, (request, step, layer) in enumerate(columns):
        records.setdefault((trace.requests[request], step, layer), []).append(record)
    return records


def _prediction(where: str, record: dict[str, Any], trace: Trace) -> "tuple[_Key, array[int]]":
    name, step, layer = record.get("req"), record.get("step"), record.get("layer")
    if type(name) is not str and type(name) is not int:
        raise InputError(f"{where}: req is {short(name)}: expected the name of a request")
    for field, value, end in (
        ("step", step, MAX_INT32),
        ("layer", layer, trace.header.num_layers - 1),
    ):
        if type(value) is not int or not 0 <= value <= end:
            raise InputError(f"{where}: {field} is {short(value)}: expected 0..{end}")
    assert isinstance(step, int) and isinstance(layer, int)
    return (name, step, layer), _experts(where, record.get("experts"), trace.header.num_experts)


def _experts(where: str, experts: object, num_experts: int) -> "array[int]":
    if not isinstance(experts, list) or not {*map(type, experts)} <= {int}:
        raise InputError(f"{where}: experts must be a list of ids")
    if any(not 0 <= expert < num_experts for expert in experts):
        raise InputError(f"{where}: an expert id is out of range: ids are 0..{num_experts - 1}")
    if len(set(experts)) != len(experts):
        raise InputError(f"{where}: an expert id appears twice in one record")
    return array("I", experts)


def _as_hints(hinted: "dict[int, array[int]]", trace: Trace) -> HintPlan:
    last = trace.num_records - 1
    at = [record for record in sorted(hinted) if record < last]
    sizes = [len(hinted[record]) for record in at]
    target = np.repeat(np.array(at, dtype=np.int64) + 1, sizes)
    local = np.concatenate([np.zeros(0, np.uint32), *(_ids(hinted[record]) for record in at)])
    layer = trace.layer[target].astype(np.uint32)
    return HintPlan.for_records(
        layer * np.uint32(trace.header.num_experts) + local, target, trace.num_records
    )


def _ids(experts: "array[int]") -> npt.NDArray[np.uint32]:
    return np.array(experts, dtype=np.uint32)
