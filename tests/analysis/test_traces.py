# SPDX-License-Identifier: Apache-2.0
import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces import Trace, read_trace, trace_info, write_trace

WriteTrace = Callable[..., Path]
Records = list[dict[str, Any]]


@pytest.mark.parametrize("packed", [False, True])
def test_columns_of_a_small_trace(write_lines: WriteTrace, records: Records, packed: bool) -> None:
    path = write_lines(records, packed=packed)
    trace = read_trace(path)
    assert trace.header.model == "tiny"
    assert (trace.header.num_layers, trace.header.num_experts, trace.header.top_k) == (2, 5, 2)
    assert trace.requests == ("a", "b")
    assert trace.request.tolist() == [0, 0, 0, 0, 1, 1]
    assert trace.step.tolist() == [0, 0, 1, 1, 0, 0]
    assert trace.layer.tolist() == [0, 1, 0, 1, 0, 1]
    assert trace.record_start.tolist() == [0, 2, 4, 6, 8, 10, 12]
    assert trace.experts.tolist() == [4, 1, 0, 2, 1, 3, 2, 0, 1, 0, 4, 3]
    assert trace.iteration_start.tolist() == [0, 2, 4, 6]
    assert trace.weights is None
    assert trace.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    dtypes = [trace.request.dtype, trace.record_start.dtype, trace.experts.dtype]
    assert dtypes == [np.int32, np.uint64, np.uint32]


def test_last_line_without_newline_is_whole(write_lines: WriteTrace, records: Records) -> None:
    assert read_trace(write_lines(records, end="")).num_records == 6


def test_weights_stand_beside_the_ids(write_lines: WriteTrace, records: Records) -> None:
    for number, item in enumerate(records):
        item["weights"] = [0.5 + number, 0.25]
    trace = read_trace(write_lines(records))
    assert trace.weights is not None
    assert trace.weights[:4].tolist() == [0.5, 0.25, 1.5, 0.25]


def test_names_of_requests_may_be_numbers(write_lines: WriteTrace, records: Records) -> None:
    for item in records:
        item["req"] = 7 if item["req"] == "a" else "7"
    assert read_trace(write_lines(records)).requests == (7, "7")


def fails(path: Path, line: int | None, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(path)
    where = str(path) if line is None else f"{path}:{line}"
    assert str(caught.value).startswith(f"{where}: "), str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


BROKEN: list[tuple[Callable[[Records], object], int, str]] = [
    (lambda r: r[2].update(experts=[1, 5]), 4, "expert id 5 is out of range: ids are 0..4"),
    (lambda r: r[2].update(experts=[1, -3]), 4, "expert id -3 is negative"),
    (lambda r: r[2].update(experts=[1, 2**70]), 4, "expert id is out of range"),
    (lambda r: r[5].update(experts=[2, 2]), 7, "expert id 2 appears twice"),
    (lambda r: r[1].update(experts=[2]), 3, "wrong width: 1 experts, expected top_k 2"),
    (lambda r: r[1].update(experts=[]), 3, "wrong width: 0 experts"),
    (lambda r: r[1].update(experts=[0, 1, 2, 3, 4, 0]), 3, "wrong width: 6 experts"),
    (lambda r: r[1].update(experts=[0, True]), 3, "list of whole numbers"),
    (lambda r: r[1].update(experts=[0, 1.0]), 3, "list of whole numbers"),
    (lambda r: r[1].update(experts="01"), 3, "list of whole numbers"),
    (lambda r: r[1].pop("experts"), 3, "list of whole numbers"),
    (lambda r: r.pop(0), 2, "layer 0 is missing: step 0 goes on with layer 1"),
    (lambda r: r.pop(1), 3, "layer 1 is missing: step 0 ended after layer 0"),
    (lambda r: r.pop(2), 4, "layer 0 is missing: step 1 goes on with layer 1"),
    (lambda r: r.pop(5), 6, "the file ends in step 0 after layer 0: layer 1 of 0..1 is missing"),
    (lambda r: r[3].update(layer=2), 5, "layer 2 is out of range: 0..1"),
    (lambda r: r[3].update(layer=-1), 5, "layer -1 is negative"),
    (lambda r: r[3].update(layer=2**40), 5, "layer 1099511627776 is out of range"),
    (lambda r: r[3].update(layer="1"), 5, "layer is '1': expected a whole number"),
    (lambda r: r[3].update(layer=1.0), 5, "layer is 1.0: expected a whole number"),
    (lambda r: r[0].update(step=-1), 2, "step -1 is negative"),
    (lambda r: r[0].pop("step"), 2, "step is None"),
    (lambda r: [i.update(step=2) for i in r[2:4]], 4, "step 2 follows step 0: steps are not cont"),
    (lambda r: [i.update(step=1) for i in r[4:]], 6, "request 'b' starts at step 1, not 0"),
    (lambda r: r.extend(r[0:2]), 8, "request 'a' appears again after another one"),
    (lambda r: r.insert(4, dict(r[0])), 6, "step 0 comes after step 1: records are out of order"),
    (lambda r: r[0].pop("req"), 2, "req is None"),
    (lambda r: r[0].update(req=["a"]), 2, "req is ['a']"),
    (lambda r: r[0].update(req=True), 2, "req is True"),
    (lambda r: r[2].update(weights=[1, 0]), 4, "weights are present here but not in the records"),
    (lambda r: [i.update(weights=[1, 0]) for i in r[:3]], 5, "weights are missing here"),
    (lambda r: r[0].update(weights=[1, float("nan")]), 2, "not a finite number"),
    (lambda r: r[0].update(weights=[1, float("inf")]), 2, "not a finite number"),
    (lambda r: r[0].update(weights=[1, 10**400]), 2, "not a finite number"),
    (lambda r: r[0].update(weights=[1, -0.5]), 2, "a weight is negative: -0.5"),
    (lambda r: r[0].update(weights=[1]), 2, "1 weights for 2 experts"),
    (lambda r: r[0].update(weights=["1", "2"]), 2, "weights must be a list of numbers"),
    (lambda r: r[0].update(weights={}), 2, "weights must be a list of numbers"),
]


@pytest.mark.parametrize(("breaking", "line", "message"), BROKEN)
def test_each_broken_record_is_named_with_its_line(
    write_lines: WriteTrace,
    records: Records,
    breaking: Callable[[Records], object],
    line: int,
    message: str,
) -> None:
    breaking(records)
    fails(write_lines(records), line, message)


def test_layers_out_of_order(write_lines: WriteTrace, records: Records) -> None:
    header = {"num_layers": 3, "num_experts": 5, "top_k": 1, "model": "m"}
    header |= {"format": "moe-route-trace", "version": 1}
    items = [{"req": "a", "step": 0, "layer": layer, "experts": [1]} for layer in (0, 1, 0, 1, 2)]
    fails(write_lines(items, header=header), 4, "layer 0 comes after layer 1: layers are out of")


def test_the_first_of_several_faults_is_named(write_lines: WriteTrace, records: Records) -> None:
    records[4]["experts"] = [9, 1]
    records[1]["step"] = 5
    lines = [*map(json.dumps, records), "not json"]
    fails(write_lines(lines), 3, "step 5 follows step 0")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"format": "other"}, "no header"),
        ({"req": "a", "step": 0, "layer": 0, "experts": [1]}, "no header"),
        ({"version": 2}, "header version 2 is not known"),
        ({"model": None}, "the header has no model"),
        ({"model": 5}, "header model is 5"),
        ({"num_layers": 0}, "header num_layers is 0"),
        ({"num_experts": None}, "header num_experts is missing"),
        ({"top_k": 2.0}, "header top_k is 2.0"),
        ({"top_k": True}, "header top_k is True"),
        ({"top_k": 6}, "top_k 6 is more than num_experts 5"),
        ({"num_layers": 2**30}, "num_layers x num_experts"),
        ({"source": 1}, "header source is 1"),
    ],
)
def test_each_bad_header_is_named(
    write_lines: WriteTrace, records: Records, header: dict[str, Any], message: str
) -> None:
    base = {"format": "moe-route-trace", "version": 1, "model": "tiny"}
    base |= {"num_layers": 2, "num_experts": 5, "top_k": 2}
    whole = header if "req" in header else {**base, **header}
    fails(write_lines(records, header=whole), 1, message)


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        (["{broken}"], 2, "not JSON"),
        ([""], 2, "not JSON"),
        (["[1, 2]"], 2, "expected a JSON object, found list"),
        (['{"req": ' + "9" * 5000 + "}"], 2, "not JSON"),
        (["[" * 200_000], 2, "not JSON"),
    ],
)
def test_a_line_that_is_no_record(
    write_lines: WriteTrace, lines: list[str], line: int, message: str
) -> None:
    fails(write_lines(lines), line, message)


def test_a_line_that_is_no_text(write_lines: WriteTrace) -> None:
    path = write_lines([])
    path.write_bytes(path.read_bytes() + b'{"req": "\xff\xfe"}\n')
    fails(path, 2, "not JSON")


def test_a_line_without_end_is_refused(write_lines: WriteTrace) -> None:
    fails(write_lines([" " * (5 << 20)], packed=True), 2, "the line is longer than")


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    fails(path, None, "the file is empty")
    path.write_bytes(gzip.compress(b""))
    fails(path, None, "the file is empty")


def test_header_alone(write_lines: WriteTrace) -> None:
    fails(write_lines([]), 1, "no records follow the header")


def test_truncated_last_line(write_lines: WriteTrace, records: Records) -> None:
    path = write_lines(records)
    path.write_bytes(path.read_bytes()[:-9])
    fails(path, 7, "the last line is truncated")


def test_every_cut_of_a_file_is_refused(write_lines: WriteTrace, records: Records) -> None:
    """A cut at the end of an iteration leaves a valid, shorter trace: nothing could tell."""
    whole = write_lines(records).read_bytes()
    ends = [offset for offset in range(len(whole)) if whole[offset : offset + 1] == b"\n"]
    complete = {end + extra for end in (ends[2], ends[4], ends[6]) for extra in (0, 1)}
    for length in range(len(whole)):
        path = write_lines(records)
        path.write_bytes(whole[:length])
        if length in complete:
            read_trace(path)
            continue
        with pytest.raises(InputError):
            read_trace(path)


def test_truncated_gzip(write_lines: WriteTrace, records: Records) -> None:
    path = write_lines(records, packed=True)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InputError, match=r"trace.jsonl:\d+: the gzip stream ends early"):
        read_trace(path)


def test_damaged_gzip(write_lines: WriteTrace, records: Records) -> None:
    path = write_lines(records, packed=True)
    damaged = bytearray(path.read_bytes())
    damaged[-8] ^= 0xFF  # the checksum
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="the gzip stream is damaged"):
        read_trace(path)


def test_every_flipped_byte_of_a_gzip_is_an_input_error_or_harmless(
    write_lines: WriteTrace, records: Records
) -> None:
    whole = write_lines(records, packed=True).read_bytes()
    for offset in range(len(whole)):
        path = write_lines(records)
        flipped = bytearray(whole)
        flipped[offset] ^= 0x10
        path.write_bytes(flipped)
        try:
            trace = read_trace(path)
        except InputError:
            continue
        assert trace.num_records == 6


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    fails(tmp_path / "absent", None, "No such file")
    fails(tmp_path, None, "Is a directory")


def test_first_steps_of_each_request(write_lines: WriteTrace, records: Records) -> None:
    for number, item in enumerate(records):
        item["weights"] = [number, 0.5]
    trace = read_trace(write_lines(records)).first_steps(1)
    assert trace.request.tolist() == [0, 0, 1, 1]
    assert trace.record_start.tolist() == [0, 2, 4, 6, 8]
    assert trace.experts.tolist() == [4, 1, 0, 2, 1, 0, 4, 3]
    assert trace.weights is not None
    assert trace.weights.tolist() == [0, 0.5, 1, 0.5, 4, 0.5, 5, 0.5]
    with pytest.raises(InputError, match="keep at least 1"):
        trace.first_steps(0)


@pytest.mark.parametrize("name", ["copy.jsonl", "copy.jsonl.gz", "copy.jsonl.zst"])
def test_what_is_written_reads_back(
    write_lines: WriteTrace, records: Records, tmp_path: Path, name: str
) -> None:
    for item in records:
        item["weights"] = [0.1, 1e-9]
    trace = read_trace(write_lines(records))
    write_trace(trace, tmp_path / name)
    again = read_trace(tmp_path / name)
    assert again.header == trace.header
    assert again.requests == trace.requests
    for column in ("request", "step", "layer", "record_start", "experts", "weights"):
        assert np.array_equal(getattr(again, column), getattr(trace, column)), column
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_packed_bytes_carry_no_time(
    write_lines: WriteTrace, records: Records, tmp_path: Path
) -> None:
    trace = read_trace(write_lines(records))
    write_trace(trace, tmp_path / "one.gz")
    write_trace(trace, tmp_path / "two.gz")
    packed = (tmp_path / "one.gz").read_bytes()
    assert packed == (tmp_path / "two.gz").read_bytes()
    assert packed[4:8] == bytes(4)  # RFC 1952: MTIME, 0 is "no time stamp"


def test_writing_to_nowhere(write_lines: WriteTrace, records: Records, tmp_path: Path) -> None:
    trace = read_trace(write_lines(records))
    with pytest.raises(InputError, match="cannot be written"):
        write_trace(trace, tmp_path / "absent" / "trace")


def test_info_of_a_plain_trace(write_lines: WriteTrace, records: Records) -> None:
    assert trace_info(read_trace(write_lines(records))) == {
        "model": "tiny",
        "num_layers": 2,
        "num_experts": 5,
        "top_k": 2,
        "batch": None,
        "requests": 2,
        "iterations": 3,
        "positions": 3,
        "accepted_tokens": 3,
        "iteration_types": {"normal": 3, "spec-accept": 0, "spec-fallback": 0},
        "records": 6,
        "record_types": {"normal": 6, "spec-accept": 0, "spec-fallback": 0},
        "reads": 12,
        "reads_per_iteration": 4.0,
    }


@pytest.mark.parametrize("order", [[0, 0, 1, 1], [0, 1, 0, 1]])
def test_speculative_records_are_typed_and_counted(
    write_lines: WriteTrace, order: list[int]
) -> None:
    """A step that passes each layer twice, at once or one pass after the other; a wide record."""
    items: Records = [{"req": "a", "step": 0, "layer": layer, "experts": [1, 2]} for layer in order]
    items += [{"req": "a", "step": 1, "layer": 0, "experts": [1, 2, 3]}]
    items += [{"req": "a", "step": 1, "layer": 1, "experts": [0, 4]}]
    info = trace_info(read_trace(write_lines(items)))
    assert info["record_types"] == {"normal": 1, "spec-accept": 1, "spec-fallback": 4}
    assert info["iteration_types"] == {"normal": 0, "spec-accept": 1, "spec-fallback": 1}
    assert (info["iterations"], info["positions"], info["accepted_tokens"]) == (2, 4, 3)


@pytest.mark.parametrize(
    ("name", "shape", "requests", "iterations", "records", "has_weights"),
    [
        ("gpt-oss-20b_decode_mixed", (24, 32, 4), 8, 8 * 511, 98_112, True),
        ("gpt-oss-20b_decode_physics", (24, 32, 4), 6, 6 * 511, 73_584, True),
        ("deepseek-v2-lite-chat_prefill_puffin", (26, 64, 6), 24, 24 * 256, 159_744, False),
    ],
)
def test_counts_of_real_traces(
    traces: Path,
    name: str,
    shape: tuple[int, int, int],
    requests: int,
    iterations: int,
    records: int,
    has_weights: bool,
) -> None:
    trace = read_trace(traces / f"{name}.jsonl.gz")
    info = trace_info(trace)
    assert (info["num_layers"], info["num_experts"], info["top_k"]) == shape
    assert (info["requests"], info["iterations"], info["records"]) == (
        requests,
        iterations,
        records,
    )
    assert info["record_types"]["normal"] == records
    assert info["reads"] == records * shape[2]
    assert info["accepted_tokens"] == iterations
    assert (trace.weights is not None) is has_weights
    assert _first_record(traces / f"{name}.jsonl.gz") == trace.experts[: shape[2]].tolist()


def _first_record(path: Path) -> list[int]:
    with gzip.open(path) as file:
        file.readline()
        experts: list[int] = json.loads(file.readline())["experts"]
        return experts


def test_a_cut_real_trace_keeps_its_requests(traces: Path) -> None:
    trace: Trace = read_trace(traces / "gpt-oss-20b_decode_mixed.jsonl.gz").first_steps(10)
    info = trace_info(trace)
    assert (info["requests"], info["iterations"], info["records"]) == (8, 80, 80 * 24)
