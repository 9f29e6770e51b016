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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.header import MAX_INT32
from pagetier.analysis.traces.importers.arrays import as_ids, decode_npy
from pagetier.analysis.traces.importers.nested import Document, NestedText, parse
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
    """One object with routes (None: it has none), and the place it has in the document."""

    place: str
    name: str | int
    ids: Ids | None
    # Positions at the end that decode made, where the response counts its tokens.
    decoded: int | None


def _detects(source: Source) -> bool:
    return source.first_line[:1] in (b"{", b"[") and b'"routed_experts"' in source.head


def _read(source: Source, options: ImportOptions) -> Routes:
    found, preempted = [], 0
    for place, document in _documents(source):
        for request in _Requests(document, options).under(place, document.value, 0):
            if request.ids is None:
                preempted += 1
            else:
                found.append(_routes_of(request, request.ids))
    if not found:
        raise source.error("no response has routed_experts: ask the server to return them")
    notes = (f"{preempted} requests without routes (preempted) were left out",)
    return join(found).with_notes(*notes[: bool(preempted)])


def _documents(source: Source) -> Iterator[tuple[str, Document]]:
    content = source.whole(_MAX_DOCUMENT_BYTES)
    try:
        document = parse(content)
    except RecursionError as error:
        raise source.error("is nested too deep to be a response") from error
    except ValueError as error:
        if b"\n" not in content.strip():
            raise source.error(f"not JSON ({error}): save the response as it came") from error
    else:
        # Text in base64 is in the document a second time.
        del content
        yield f"{source.path}", document
        return
    for number, line in _lines(content):
        try:
            yield f"{source.path}:{number}", parse(line)
        except (ValueError, RecursionError) as error:
            raise source.error(f"not JSON ({error}): one response a line", number) from error


def _lines(content: bytearray) -> Iterator[tuple[int, bytearray]]:
    """Numbered lines that are not blank."""
    number = start = 0
    while start < len(content):
        number += 1
        end = content.find(b"\n", start)
        end = len(content) if end < 0 else end
        line = content[start:end]
        if line.strip():
            yield number, line
        start = end + 1


@dataclass(frozen=True, slots=True)
class _Requests:
    """The requests of one document."""

    document: Document
    options: ImportOptions

    def under(self, place: str, value: object, depth: int) -> Iterator[_Request]:
        """Those at this place of it and below."""
        if depth > _MAX_DEPTH:
            return
        if isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, (dict, list)):
                    yield from self.under(f"{place}[{index}]", item, depth + 1)
        elif isinstance(value, dict):
            if _KEY in value:
                yield self._request(place, value)
            for key, item in value.items():
                if key != _KEY and isinstance(item, (dict, list)):
                    yield from self.under(f"{place} {key!s:.40}", item, depth + 1)

    def _request(self, place: str, value: dict[str, Any]) -> _Request:
        def fail(message: str) -> InputError:
            return InputError(f"{place}: routed_experts {message}")

        # Out of the document: text as long as the routes need not outlive their decoding.
        found, value[_KEY] = self.document.lists_of(value[_KEY]), None
        ids = _ids(found, self.options, fail)
        return _Request(place, _name(value, place), ids, _decoded(value))


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


def _routes_of(request: _Request, ids: Ids) -> Routes:
    place = request.place
    routes = regular_routes(
        ids,
        lambda position, layer: f"{place}: routed_experts[{position}][{layer}]",
        request.name,
        Geometry(),
    )
    if request.decoded is None:
        return routes
    positions = np.repeat(np.arange(len(ids)), ids.shape[1])
    return routes.with_prefill(positions < len(ids) - request.decoded)


def _ids(value: object, options: ImportOptions, fail: Fail) -> Ids | None:
    """The ids in a value of the key; None when it has none."""
    if isinstance(value, NestedText):
        return _from_text(value, options, fail)
    if value is None or value == []:
        return None
    if isinstance(value, list):
        return as_ids(_nested(value, fail), options.axes, fail)
    if isinstance(value, str):
        return _decode(value, options, fail)
    raise fail(f"is a {type(value).__name__}: expected lists or base64 text")


def _from_text(text: NestedText, options: ImportOptions, fail: Fail) -> Ids | None:
    try:
        ids = _nested(text.items(), fail)
    except json.JSONDecodeError:
        # Of another depth than routes, or no JSON.
        return _ids(_parsed(text, fail), options, fail)
    except RecursionError as error:
        raise fail("is nested too deep to be routes") from error
    if ids.size:
        return as_ids(ids, options.axes, fail)
    return _ids(_parsed(text, fail), options, fail)


def _parsed(text: NestedText, fail: Fail) -> list[Any]:
    try:
        return text.whole()
    except RecursionError as error:
        raise fail("is nested too deep to be routes") from error
    except ValueError as error:
        raise fail(f"is not JSON ({error}): save the response as it came") from error


def _nested(value: Iterable[Any], fail: Fail) -> Ids:
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
    flat = np.frombuffer(ids, np.int32) if ids else np.empty(0, np.int32)
    return flat.reshape(-1 if layers * top_k else 0, layers, top_k)


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
