# SPDX-License-Identifier: Apache-2.0
"""Router traces in the ``moe-route-trace`` format: JSON Lines, plain or gzip.

Line 1 is the header; each other line is a record, ``{"req","step","layer","experts"[,"weights"]}``,
in the order (request, step, layer).  Requests come one after another, steps count from 0, layers
from 0; each step passes every layer.  A layer that a step passes twice (speculation and its
fallback) has two records.  Expert ids are per layer.  Anything else raises InputError with the
file and the line; nothing is repaired.
"""

import gzip
import hashlib
import io
import json
import math
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError
from pagetier.analysis.files import replace_file

__all__ = [
    "Trace",
    "TraceHeader",
    "encode_trace",
    "read_trace",
    "trace_info",
    "widths",
    "write_trace",
]

FORMAT = "moe-route-trace"
VERSION = 1
_GZIP_MAGIC = b"\x1f\x8b"
# A record of 896 experts with weights is about 20 KB; a "line" without end is a decompression bomb.
_MAX_LINE_BYTES = 1 << 22
_MAX_INT32 = 2**31 - 1

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Uint32 = npt.NDArray[np.uint32]
Uint64 = npt.NDArray[np.uint64]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """Line 1 of a trace: the model's routed geometry and where the records come from."""

    model: str
    num_layers: int
    num_experts: int
    top_k: int
    source: str | None = None
    license: str | None = None
    phase: str | None = None
    domain: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """The records of a trace as columns, one entry per record.

    `request` indexes `requests`.  Record r selected experts[record_start[r]:record_start[r + 1]]
    of its layer, in recorded order.  `sha256` is that of the file's bytes as they lie on disk.
    """

    header: TraceHeader
    requests: tuple[str | int, ...]
    request: Int32
    step: Int32
    layer: Int32
    record_start: Uint64
    experts: Uint32
    weights: Float64 | None
    sha256: str | None

    @property
    def num_records(self) -> int:
        return len(self.request)

    @property
    def num_reads(self) -> int:
        return len(self.experts)

    @property
    def iteration_start(self) -> Uint64:
        """First record of each iteration, one per (request, step), and the end of the last."""
        return _iteration_start(self.request, self.step)

    def first_steps(self, count: int) -> "Trace":
        """The first `count` steps of each request; `sha256` still names the file it came from."""
        if count < 1:
            raise InputError(f"a trace of {count} steps is empty: keep at least 1")
        keep = self.step < count
        width = widths(self.record_start)
        kept_reads = np.repeat(keep, width)
        return replace(
            self,
            request=self.request[keep],
            step=self.step[keep],
            layer=self.layer[keep],
            record_start=_starts(width[keep]),
            experts=self.experts[kept_reads],
            weights=None if self.weights is None else self.weights[kept_reads],
        )


def widths(starts: Uint64) -> Int64:
    """Length of each item of an array of starts."""
    signed = starts.astype(np.int64)
    return signed[1:] - signed[:-1]


def _starts(lengths: Int64) -> Uint64:
    starts = np.zeros(len(lengths) + 1, dtype=np.uint64)
    np.cumsum(lengths, out=starts[1:], dtype=np.uint64)
    return starts


def _iteration_start(request: Int32, step: Int32) -> Uint64:
    changed = (np.diff(request) != 0) | (np.diff(step) != 0)
    return np.concatenate(([0], np.flatnonzero(changed) + 1, [len(request)])).astype(np.uint64)


# ---- reading ------------------------------------------------------------------------------------


class _HashingFile(io.RawIOBase):
    """Hashes the bytes that pass, so that the digest is of what was parsed, not of a later read."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._raw.read(len(buffer))
        self.digest.update(block)
        buffer[: len(block)] = block
        return len(block)


def read_trace(path: Path) -> Trace:
    """The trace in `path`, checked record by record."""
    try:
        with open(path, "rb", buffering=0) as raw:
            hashing = _HashingFile(raw)
            stream = io.BufferedReader(hashing, 1 << 18)
            columns = _parse(path, _lines(path, stream))
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{path}: {reason}: give the path of a readable trace file") from error
    return columns.trace(hashing.digest.hexdigest())


def _lines(path: Path, stream: "io.BufferedReader[Any]") -> Iterator[bytes]:
    if stream.peek(2)[:2] != _GZIP_MAGIC:
        yield from _bounded_lines(path, stream)
        return
    number = 0
    try:
        with gzip.GzipFile(fileobj=stream, mode="rb") as unpacked:
            for line in _bounded_lines(path, unpacked):
                yield line
                number += 1
    except EOFError as error:
        raise InputError(
            f"{path}:{number + 1}: the gzip stream ends early, the file is truncated: copy it again"
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{path}:{number + 1}: the gzip stream is damaged ({error}): copy the file again"
        ) from error


def _bounded_lines(path: Path, stream: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    number = 0
    while line := stream.readline(_MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > _MAX_LINE_BYTES:
            raise InputError(
                f"{path}:{number}: the line is longer than {_MAX_LINE_BYTES} B, as no record is"
            )
        yield line


def _parse(path: Path, lines: Iterator[bytes]) -> "_Columns":
    first = next(lines, None)
    if first is None:
        raise InputError(f"{path}: the file is empty: a trace starts with a header line")
    columns = _Columns(path, _parse_header(path, first))
    try:
        for line in lines:
            columns.add(line)
    except InputError:
        # What is wrong with an earlier record comes first, whichever check finds it.
        columns.check()
        raise
    columns.check()
    columns.check_end()
    return columns


def _json_object(where: str, line: bytes) -> dict[str, Any]:
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


def _parse_header(path: Path, line: bytes) -> TraceHeader:
    where = f"{path}:1"
    header = _json_object(where, line)
    if header.get("format") != FORMAT:
        raise InputError(
            f'{where}: no header: the first line must be an object with "format": "{FORMAT}"'
        )
    if header.get("version") != VERSION:
        raise InputError(
            f"{where}: header version {_short(header.get('version'))} is not known:"
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
    )
    if parsed.top_k > parsed.num_experts:
        raise InputError(
            f"{where}: header top_k {parsed.top_k} is more than num_experts {parsed.num_experts}"
        )
    if parsed.num_layers * parsed.num_experts > _MAX_INT32:
        raise InputError(f"{where}: header num_layers x num_experts is more than {_MAX_INT32}")
    return parsed


def _header_count(where: str, header: dict[str, Any], name: str) -> int:
    count = header.get(name)
    if type(count) is not int or not 1 <= count <= _MAX_INT32:
        shown = "missing" if count is None else _short(count)
        raise InputError(f"{where}: header {name} is {shown}: expected a whole number of 1 or more")
    return count


def _header_text(where: str, header: dict[str, Any], name: str) -> str | None:
    text = header.get(name)
    if text is not None and not isinstance(text, str):
        raise InputError(f"{where}: header {name} is {_short(text)}: expected text")
    return text


class _Columns:
    """Collects records into typed columns; the rules between records are checked array-wise."""

    def __init__(self, path: Path, header: TraceHeader) -> None:
        self._path = path
        self.header = header
        self._requests: dict[str | int, int] = {}
        self._request = array("i")
        self._step = array("i")
        self._layer = array("i")
        self._width = array("q")
        self._experts = array("q")
        self._weights = array("d")

    def _where(self, record: int) -> str:
        return f"{self._path}:{record + 2}"

    def add(self, line: bytes) -> None:
        """Parse one record; the types are checked here, the values in check()."""
        where = self._where(len(self._width))
        record = _json_object(where, line)
        name = record.get("req")
        if type(name) is not str and type(name) is not int:
            raise InputError(f"{where}: req is {_short(name)}: expected the name of a request")
        step, layer = _index(where, record, "step"), _index(where, record, "layer")
        experts = _expert_ids(where, record)
        self._add_weights(where, record, len(experts))
        self._request.append(self._requests.setdefault(name, len(self._requests)))
        self._step.append(step)
        self._layer.append(layer)
        self._width.append(len(experts))
        self._experts.extend(experts)

    def _add_weights(self, where: str, record: dict[str, Any], width: int) -> None:
        weights = record.get("weights")
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
            raise InputError(f"{where}: a weight is not a finite number: {_short(weights)}")
        if min(weights, default=0) < 0:
            raise InputError(f"{where}: a weight is negative: {_short(min(weights))}")
        self._weights.extend(weights)

    def check(self) -> None:
        """Raise for the first record that breaks a rule."""
        if not self._width:
            return
        found = [problem for rule in _RULES if (problem := rule(self._view())) is not None]
        if found:
            record, message = min(found, key=lambda problem: problem[0])
            raise InputError(f"{self._where(record)}: {message}")

    def check_end(self) -> None:
        """Raise when the file ends before its last iteration does."""
        if not self._width:
            raise InputError(
                f"{self._path}:1: no records follow the header: record the trace again"
            )
        last, layers = self._layer[-1], self.header.num_layers
        if last != layers - 1:
            raise InputError(
                f"{self._where(len(self._width) - 1)}: the file ends in step {self._step[-1]} after"
                f" layer {last}: layer {last + 1} of 0..{layers - 1} is missing"
            )

    def _view(self) -> "_View":
        return _View(
            header=self.header,
            names=tuple(self._requests),
            request=np.array(self._request, dtype=np.int32),
            step=np.array(self._step, dtype=np.int32),
            layer=np.array(self._layer, dtype=np.int32),
            width=np.array(self._width, dtype=np.int64),
            experts=np.array(self._experts, dtype=np.int64),
        )

    def trace(self, sha256: str) -> Trace:
        view = self._view()
        return Trace(
            header=self.header,
            requests=view.names,
            request=view.request,
            step=view.step,
            layer=view.layer,
            record_start=_starts(view.width),
            experts=view.experts.astype(np.uint32),
            weights=np.array(self._weights, dtype=np.float64) if self._weights else None,
            sha256=sha256,
        )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _is_finite(weight: float) -> bool:
    try:
        return math.isfinite(weight)
    except OverflowError:  # an integer beyond the range of a double
        return False


def _index(where: str, record: dict[str, Any], name: str) -> int:
    value = record.get(name)
    if type(value) is not int:
        raise InputError(f"{where}: {name} is {_short(value)}: expected a whole number")
    if value < 0:
        raise InputError(f"{where}: {name} {_short(value)} is negative")
    if value > _MAX_INT32:
        raise InputError(f"{where}: {name} {_short(value)} is out of range")
    return value


def _expert_ids(where: str, record: dict[str, Any]) -> list[int]:
    experts = record.get("experts")
    if not isinstance(experts, list) or not {*map(type, experts)} <= {int}:
        raise InputError(f"{where}: experts must be a list of whole numbers")
    if experts and not -_MAX_INT32 <= min(experts) <= max(experts) <= _MAX_INT32:
        raise InputError(f"{where}: an expert id is out of range: {_short(experts)}")
    return experts


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    header: TraceHeader
    names: tuple[str | int, ...]
    request: Int32
    step: Int32
    layer: Int32
    width: Int64
    experts: npt.NDArray[np.int64]

    def record_of_read(self, read: int) -> int:
        return int(np.searchsorted(np.cumsum(self.width), read, side="right"))


_Problem = tuple[int, str]  # record, message


def _first(bad: npt.NDArray[np.bool_]) -> int | None:
    return int(np.argmax(bad)) if bad.any() else None


def _check_widths(view: _View) -> _Problem | None:
    top_k, num_experts = view.header.top_k, view.header.num_experts
    bad = _first((view.width < top_k) | (view.width > num_experts))
    if bad is None:
        return None
    return bad, (
        f"wrong width: {view.width[bad]} experts, expected top_k {top_k}"
        f" (or more in a speculative record, at most {num_experts})"
    )


def _check_ids(view: _View) -> _Problem | None:
    num_experts = view.header.num_experts
    bad = _first((view.experts < 0) | (view.experts >= num_experts))
    if bad is None:
        return None
    expert = view.experts[bad]
    problem = "is negative" if expert < 0 else "is out of range"
    return view.record_of_read(bad), f"expert id {expert} {problem}: ids are 0..{num_experts - 1}"


def _check_distinct(view: _View) -> _Problem | None:
    record = np.repeat(np.arange(len(view.width)), view.width)
    order = np.lexsort((view.experts, record))
    same = (np.diff(record[order]) == 0) & (np.diff(view.experts[order]) == 0)
    bad = _first(same)
    if bad is None:
        return None
    return int(
        record[order[bad]]
    ), f"expert id {view.experts[order[bad]]} appears twice in one record"


def _check_requests(view: _View) -> _Problem | None:
    # Requests are numbered as they first appear, so the number may only stay or rise by one.
    bad = _first(~np.isin(np.diff(view.request, prepend=0), (0, 1)))
    if bad is None:
        return None
    name = view.names[view.request[bad]]
    return bad, f"request {name!r} appears again after another one: keep its records together"


def _check_steps(view: _View) -> _Problem | None:
    starts = np.diff(view.request, prepend=-1) != 0
    rise = np.diff(view.step, prepend=0)
    bad = _first(np.where(starts, view.step != 0, ~np.isin(rise, (0, 1))))
    if bad is None:
        return None
    if starts[bad]:
        return (
            bad,
            f"request {view.names[view.request[bad]]!r} starts at step {view.step[bad]}, not 0",
        )
    before, step = view.step[bad - 1], view.step[bad]
    if step < before:
        return bad, f"step {step} comes after step {before}: records are out of order"
    return bad, f"step {step} follows step {before}: steps are not contiguous"


def _check_layers(view: _View) -> _Problem | None:
    last_layer = view.header.num_layers - 1
    bad = _first(view.layer > last_layer)
    found = (
        [] if bad is None else [(bad, f"layer {view.layer[bad]} is out of range: 0..{last_layer}")]
    )
    starts = (np.diff(view.request, prepend=-1) != 0) | (np.diff(view.step, prepend=-1) != 0)
    before = np.concatenate(([last_layer], view.layer[:-1]))
    ended_early = starts & (before != last_layer)
    opened_late = starts & (view.layer != 0)
    # A fallback repeats each layer at once, or passes all layers a second time.
    again = (view.layer == before) | ((before == last_layer) & (view.layer == 0))
    jumped = ~starts & (view.layer != before + 1) & ~again
    bad = _first(ended_early | opened_late | jumped)
    if bad is not None:
        expected = 0 if opened_late[bad] and not ended_early[bad] else int(before[bad]) + 1
        found.append((bad, _layer_message(view, bad, expected, bool(ended_early[bad]))))
    return min(found, default=None, key=lambda problem: problem[0])


def _layer_message(view: _View, record: int, expected: int, ended_early: bool) -> str:
    layer = view.layer[record]
    if ended_early:
        step = view.step[record - 1]
        return f"layer {expected} is missing: step {step} ended after layer {expected - 1}"
    if layer > expected:
        return f"layer {expected} is missing: step {view.step[record]} goes on with layer {layer}"
    return f"layer {layer} comes after layer {expected - 1}: layers are out of order"


_RULES: tuple[Callable[[_View], _Problem | None], ...] = (
    _check_widths,
    _check_ids,
    _check_distinct,
    _check_requests,
    _check_steps,
    _check_layers,
)


# ---- writing ------------------------------------------------------------------------------------


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
    """Write `trace` to `path`, packed when its name ends in ``.gz``; never a half file."""
    encoded = encode_trace(trace)
    if path.suffix == ".gz":
        # No time stamp inside: the same trace gives the same bytes.
        encoded = gzip.compress(encoded, mtime=0)
    replace_file(path, encoded)


# ---- facts --------------------------------------------------------------------------------------


def trace_info(trace: Trace) -> dict[str, Any]:
    """Counts of the trace, in the shape of ``trace info --json``.

    `positions` and `accepted_tokens` are None when speculation left records that no event tag
    explains: a guess would bias every figure that is divided by them.
    """
    types = _record_types(trace)
    iterations = len(trace.iteration_start) - 1
    plain = types["normal"] == trace.num_records
    return {
        "model": trace.header.model,
        "num_layers": trace.header.num_layers,
        "num_experts": trace.header.num_experts,
        "top_k": trace.header.top_k,
        "requests": len(trace.requests),
        "iterations": iterations,
        "positions": iterations if plain else None,
        "accepted_tokens": iterations if plain else None,
        "records": trace.num_records,
        "record_types": types,
        "reads": trace.num_reads,
        "reads_per_iteration": trace.num_reads / iterations,
    }


def _record_types(trace: Trace) -> dict[str, int]:
    """A layer passed twice in a step marks a fallback; else more than top_k ids, an acceptance."""
    iteration_widths = widths(trace.iteration_start)
    iteration = np.repeat(np.arange(len(iteration_widths)), iteration_widths)
    place = iteration * trace.header.num_layers + trace.layer
    repeated = np.bincount(place)[place] > 1
    wide = widths(trace.record_start) > trace.header.top_k
    return {
        "normal": int(np.sum(~repeated & ~wide)),
        "spec-accept": int(np.sum(~repeated & wide)),
        "spec-fallback": int(np.sum(repeated)),
    }
