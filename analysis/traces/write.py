# SPDX-License-Identifier: Apache-2.0
"""Traces as ``moe-route-trace`` files."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import zstandard

from pagetier.analysis.files import replace_file
from pagetier.analysis.traces.columns import Trace
from pagetier.analysis.traces.header import FORMAT, VERSION

__all__ = ["encode_trace", "write_trace"]


def encode_trace(trace: Trace) -> bytes:
    """The trace as plain JSON Lines: the bytes that `write_trace` gives to a plain file."""
    known = {name: value for name, value in asdict(trace.header).items() if value is not None}
    header = {"format": FORMAT, "version": VERSION, **known}
    lines = [json.dumps(header, separators=(",", ":"))]
    lines += map(_encode_record, _records(trace))
    return ("\n".join(lines) + "\n").encode()


def _records(trace: Trace) -> Iterator[dict[str, Any]]:
    starts = trace.record_start.tolist()
    experts = trace.experts.tolist()
    weights = None if trace.weights is None else trace.weights.tolist()
    columns = zip(trace.request.tolist(), trace.step.tolist(), trace.layer.tolist(), strict=True)
    for record, (request, step, layer) in enumerate(columns):
        reads = slice(starts[record], starts[record + 1])
        fields = {"req": trace.requests[request], "step": step, "layer": layer}
        fields["experts"] = experts[reads]
        if weights is not None:
            fields["weights"] = weights[reads]
        yield fields


def _encode_record(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def write_trace(trace: Trace, path: Path) -> None:
    """Write `trace` to `path`, packed for ``.gz`` and ``.zst``; never a half file."""
    encoded = encode_trace(trace)
    if path.suffix == ".gz":
        # No time stamp inside: the same trace gives the same bytes.
        encoded = gzip.compress(encoded, mtime=0)
    elif path.suffix == ".zst":
        encoded = zstandard.compress(encoded)
    replace_file(path, encoded)
