# SPDX-License-Identifier: Apache-2.0
"""Routes in the responses of servers: ``routed_experts`` of vLLM and SGLang.

One JSON document, or one a line.  Each object with the key ``routed_experts`` is a request: nested
lists [position][layer][choice], or base64 of an npy file (newer vLLM), or base64 of bare int32
(SGLang), whose shape only the user knows.  ``prompt_routed_experts`` beside it is prefill.
Positions of -1 came from a prefix cache and have no routes; null is a request that was preempted.
"""

import base64
import binascii
import json
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.header import MAX_INT32
from pagetier.analysis.traces.importers.arrays import as_ids, decode_npy
from pagetier.analysis.traces.importers.options import Format, ImportOptions
from pagetier.analysis.traces.importers.routes import Geometry, Routes, join, regular_routes
from pagetier.analysis.traces.importers.source import Source

__all__ = ["RESPONSES"]

_KEY = "routed_experts"
_NPY_IN_BASE64 = "k05VTVBZ"
_MAX_DEPTH = 8
_MAX_DOCUMENT_BYTES = 128 << 20

Ids = npt.NDArray[np.integer]
Fail = Callable[[str], InputError]


@dataclass(frozen=True, slots=True)
class _Request:
    """One object with routes, and the place it has in the document."""

    place: str
    name: str | int
    value: object
    # Positions at the end that decode made, where the response counts its tokens.
    decoded: int | None


def _detects(source: Source) -> bool:
    return source.first_line[:1] in (b"{", b"[") and b'"routed_experts"' in source.head


def _read(source: Source, options: ImportOptions) -> Routes:
    found, preempted = [], 0
    for place, document in _documents(source):
        for request in _requests(place, document, 0):
            if request.value is None or request.value == []:
                preempted += 1
                continue
            found.append(_routes_of(request, options))
    if not found:
        raise source.error("no response has routed_experts: ask the server to return them")
    notes = (f"{preempted} requests without routes (preempted) were left out",)
    return join(found).with_notes(*notes[: bool(preempted)])


def _documents(source: Source) -> Iterator[tuple[str, Any]]:
    content = source.whole(_MAX_DOCUMENT_BYTES)
    try:
        yield f"{source.path}", json.loads(content)
        return
    except RecursionError as error:
        raise source.error("is nested too deep to be a response") from error
    except ValueError as error:
        if b"\n" not in content.strip():
            raise source.error(f"not JSON ({error}): save the response as it came") from error
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield f"{source.path}:{number}", json.loads(line)
        except (ValueError, RecursionError) as error:
            raise source.error(f"not JSON ({error}): one response a line", number) from error


def _requests(place: str, value: object, depth: int) -> Iterator[_Request]:
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, (dict, list)):
                yield from _requests(f"{place}[{index}]", item, depth + 1)
    elif isinstance(value, dict):
        if _KEY in value:
            yield _Request(place, _name(value, place), value[_KEY], _decoded(value))
        for key, item in value.items():
            if key != _KEY and isinstance(item, (dict, list)):
                yield from _requests(f"{place} {key!s:.40}", item, depth + 1)


def _decoded(value: dict[str, Any]) -> int | None:
    """The last token of a completion is never fed back: it has no routes."""
    tokens = value.get("completion_tokens")
    return max(tokens - 1, 0) if type(tokens) is int else None


def _name(value: dict[str, Any], place: str) -> str | int:
    for key in ("request_id", "id"):
        if type(value.get(key)) in (str, int):
            name: str | int = value[key]
            return name
    return place.rpartition("/")[2]


def _routes_of(request: _Request, options: ImportOptions) -> Routes:
    def fail(message: str) -> InputError:
        return InputError(f"{request.place}: routed_experts {message}")

    if isinstance(request.value, str):
        ids = _decode(request.value, options, fail)
    elif isinstance(request.value, list):
        ids = as_ids(_nested(request.value, fail), options.axes, fail)
    else:
        raise fail(f"is a {type(request.value).__name__}: expected lists or base64 text")
    routes = regular_routes(
        ids,
        lambda position, layer: f"{request.place}: routed_experts[{position}][{layer}]",
        request.name,
        Geometry(),
    )
    if request.decoded is None:
        return routes
    positions = np.repeat(np.arange(len(ids)), ids.shape[1])
    return routes.with_prefill(positions < len(ids) - request.decoded)


def _nested(value: list[Any], fail: Fail) -> Ids:
    """Lists of lists of lists as an array; they must be regular."""
    ids = array("i")
    shape: tuple[int, int] | None = None
    for position, layers in enumerate(value):
        if not isinstance(layers, list):
            raise fail(f"[{position}] is no list of layers")
        for layer, row in enumerate(layers):
            if not isinstance(row, list) or not {*map(type, row)} <= {int}:
                raise fail(f"[{position}][{layer}] is no list of whole numbers")
            shape = shape or (len(layers), len(row))
            if (len(layers), len(row)) != shape:
                raise fail(
                    f"[{position}][{layer}] is one of {len(layers)} layers and has {len(row)} ids,"
                    f" those before {shape[0]} and {shape[1]}: the response was cut"
                )
            if row and not -1 <= min(row) <= max(row) <= MAX_INT32:
                raise fail(f"[{position}][{layer}] has an id out of range: {row!s:.60}")
            ids.extend(row)
    layers, top_k = shape or (0, 0)
    return np.array(ids, np.int32).reshape(-1 if layers * top_k else 0, layers, top_k)


def _decode(text: str, options: ImportOptions, fail: Fail) -> Ids:
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise fail(f"is no base64 ({error}): save the response as it came") from error
    if text.startswith(_NPY_IN_BASE64):
        return as_ids(decode_npy(content, fail), options.axes, fail)
    if None in (options.num_layers, options.top_k, options.num_experts):
        raise fail("is bare numbers without a shape: give --num-layers, --top-k and --num-experts")
    shape = (-1, int(options.num_layers or 0), int(options.top_k or 0))
    for dtype in ("<i4", "<i2", "<i1"):
        if content and len(content) % (np.dtype(dtype).itemsize * shape[1] * shape[2]) == 0:
            ids = np.frombuffer(content, dtype).reshape(shape)
            if _are_routes(ids, int(options.num_experts or 0)):
                return ids
    raise fail(
        f"of {len(content)} B is not routes of {shape[1]} layers, top-{shape[2]}, of"
        f" {options.num_experts} experts: check the numbers given"
    )


def _are_routes(ids: Ids, num_experts: int) -> bool:
    """Whether each row has ids that are in range and differ, or was not recorded."""
    if ids.min() < -1 or ids.max() >= num_experts:
        return False
    ordered = np.sort(ids, axis=2)
    return bool(((np.diff(ordered, axis=2) != 0) | (ordered[..., 1:] == -1)).all())


RESPONSES = Format(
    name="responses",
    description="routed_experts in responses of vLLM and SGLang (JSON)",
    detects=_detects,
    read=_read,
)
