# SPDX-License-Identifier: Apache-2.0
"""Line 1 of a ``moe-route-trace`` file, and what every line of it has to be."""

import json
from pathlib import Path
from typing import Any

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.columns import TraceHeader

__all__ = ["FORMAT", "MAX_INT32", "VERSION", "json_object", "parse_header", "short"]

FORMAT = "moe-route-trace"
VERSION = 1
MAX_INT32 = 2**31 - 1


def json_object(where: str, line: bytes) -> dict[str, Any]:
    """The object on one line; `where` is its file and line."""
    try:
        value = json.loads(line)
    # ValueError: bad JSON, bad UTF-8, or an integer of more than 4300 digits.
    except (ValueError, RecursionError) as error:
        if not line.endswith(b"\n"):
            raise InputError(
                f"{where}: the last line is truncated: the file was cut, copy or record it again"
            ) from error
        raise InputError(f"{where}: not JSON ({error}): expected one JSON object a line") from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected a JSON object, found {type(value).__name__}")
    return value


def parse_header(path: Path, line: bytes) -> TraceHeader:
    """Line 1 of `path`, every field checked."""
    where = f"{path}:1"
    header = json_object(where, line)
    if header.get("format") != FORMAT:
        raise InputError(
            f'{where}: no header: the first line must be an object with "format": "{FORMAT}"'
        )
    if header.get("version") != VERSION:
        raise InputError(
            f"{where}: header version {short(header.get('version'))} is not known:"
            f" this program reads {VERSION}"
        )
    model = _header_text(where, header, "model")
    if model is None:
        raise InputError(f"{where}: the header has no model: add its name")
    parsed = TraceHeader(
        model=model,
        num_layers=_header_count(where, header, "num_layers"),
        num_experts=_header_count(where, header, "num_experts"),
        top_k=_header_count(where, header, "top_k"),
        source=_header_text(where, header, "source"),
        license=_header_text(where, header, "license"),
        phase=_header_text(where, header, "phase"),
        domain=_header_text(where, header, "domain"),
        batch=None if header.get("batch") is None else _header_count(where, header, "batch"),
        accepted=_header_counts(where, header, "accepted"),
        positions=_header_counts(where, header, "positions"),
    )
    if parsed.top_k > parsed.num_experts:
        raise InputError(
            f"{where}: header top_k {parsed.top_k} is more than num_experts {parsed.num_experts}"
        )
    if parsed.num_layers * parsed.num_experts > MAX_INT32:
        raise InputError(f"{where}: header num_layers x num_experts is more than {MAX_INT32}")
    return parsed


def _header_count(where: str, header: dict[str, Any], name: str) -> int:
    count = header.get(name)
    if type(count) is not int or not 1 <= count <= MAX_INT32:
        shown = "missing" if count is None else short(count)
        raise InputError(f"{where}: header {name} is {shown}: expected a whole number of 1 or more")
    return count


def _header_counts(where: str, header: dict[str, Any], name: str) -> tuple[int, ...] | None:
    """One number for each step of a merged trace."""
    counts = header.get(name)
    if counts is None:
        return None
    if header.get("batch") is None:
        raise InputError(f"{where}: header {name} without batch: only merged traces have it")
    if not isinstance(counts, list) or not {*map(type, counts)} <= {int}:
        raise InputError(f"{where}: header {name} must be a list of whole numbers")
    if counts and not 0 <= min(counts) <= max(counts) <= MAX_INT32:
        raise InputError(f"{where}: header {name} has a number out of range")
    return tuple(counts)


def _header_text(where: str, header: dict[str, Any], name: str) -> str | None:
    text = header.get(name)
    if text is not None and not isinstance(text, str):
        raise InputError(f"{where}: header {name} is {short(text)}: expected text")
    return text


def short(value: object) -> str:
    """A value as a message shows it: never longer than a line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
