# SPDX-License-Identifier: Apache-2.0
"""Every format: detected, read to the same routes, written and read again."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces import Trace, read_trace, write_trace
from pagetier.analysis.traces.importers import FORMATS, Imported, is_canonical

EXPERTS = [4, 1, 0, 2, 1, 3, 2, 0, 5, 1, 4, 3]
WEIGHTS = [0.75, 0.25, 0.625, 0.375, 0.5, 0.5, 0.875, 0.125, 0.5, 0.5, 0.625, 0.375]
LISTED = {"layer": "Layer ID", "step": "Position", "experts": "Activated Expert IDs"}
LAYERS = "layers 1-2 of the file are layers 0-1 here"
DENSE = "3 records of layers 0 were left out"
WIDE = "1 passes of more than 2 positions were left out as prefill"

# file, format, options, has weights, notes
CASES: list[tuple[str, str, dict[str, Any], bool, list[str]]] = [
    ("colibri.txt", "colibri", {}, True, [LAYERS, WIDE]),
    ("bigmoe.csv", "bigmoe", {}, False, [LAYERS, "3 records of prefill were left out"]),
    ("cache_lab.jsonl", "moe-cache-lab", {}, True, [LAYERS, "4 records of prefill were left out"]),
    ("engine.jsonl", "engine-jsonl", {}, False, [LAYERS, WIDE]),
    ("llama_calls.csv", "llama-calls", {}, False, [LAYERS, WIDE]),
    ("llama_positions.csv", "llama-positions", {}, False, [LAYERS, "4 records of prefill"]),
    ("llama.log", "llama-log", {}, False, [LAYERS]),
    ("positions.jsonl", "jsonl", {}, True, [LAYERS]),
    ("wide.csv", "csv", {}, True, [LAYERS]),
    ("listed.csv", "csv", {"format": "csv", "columns": LISTED}, False, [LAYERS]),
    ("vllm.json", "responses", {}, False, ["1 requests without routes (preempted)"]),
    ("recorder.pt", "sglang-recorder", {}, False, ["1 passes of prefill", LAYERS, DENSE]),
    ("sglang.json", "responses", {"num_layers": 2, "top_k": 2}, False, ["4 records of prefill"]),
]

Import = Callable[..., Imported]
Write = Callable[[str, bytes], Path]


def assert_is_the_routing(trace: Trace) -> None:
    header = trace.header
    assert (header.num_layers, header.num_experts, header.top_k) == (2, 6, 2)
    assert trace.request.tolist() == [0] * 6
    assert trace.step.tolist() == [0, 0, 1, 1, 2, 2]
    assert trace.layer.tolist() == [0, 1, 0, 1, 0, 1]
    assert trace.record_start.tolist() == [0, 2, 4, 6, 8, 10, 12]
    assert trace.experts.tolist() == EXPERTS


def test_every_format_has_a_file_here() -> None:
    tested = {name for _, name, *_ in CASES} | {"moe-route-trace", "npy", "npz"}
    assert tested == {known.name for known in FORMATS}


@pytest.mark.parametrize(("file", "name", "options", "has_weights", "notes"), CASES)
def test_routes_of_each_format(
    data: Path,
    bring: Import,
    file: str,
    name: str,
    options: dict[str, Any],
    has_weights: bool,
    notes: list[str],
) -> None:
    found = bring(data / file, **options)
    assert found.format == name
    assert_is_the_routing(found.trace)
    weights = found.trace.weights
    assert (weights.tolist() if weights is not None else None) == (WEIGHTS if has_weights else None)
    assert len(found.notes) == len(notes)
    for said, expected in zip(found.notes, notes, strict=True):
        assert said.startswith(f"{file}: {expected}")
    assert found.trace.header.source == f"imported from {name}: {file}"


@pytest.mark.parametrize(("file", "options"), [(case[0], case[2]) for case in CASES])
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_what_is_imported_reads_back(
    data: Path, bring: Import, tmp_path: Path, file: str, options: dict[str, Any], suffix: str
) -> None:
    trace = bring(data / file, **options).trace
    path = tmp_path / f"out{suffix}"
    write_trace(trace, path)
    assert is_canonical(path)
    again = read_trace(path)
    assert again.header == trace.header
    assert again.requests == trace.requests
    for column in ("request", "step", "layer", "record_start", "experts", "weights"):
        assert np.array_equal(getattr(again, column), getattr(trace, column)), column


@pytest.mark.parametrize(("file", "options"), [(case[0], case[2]) for case in CASES])
@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_packed_files_are_known_by_their_content(
    data: Path,
    bring: Import,
    write: Write,
    file: str,
    options: dict[str, Any],
    pack: Callable[[bytes], bytes],
) -> None:
    packed = write("misleading.bin", pack((data / file).read_bytes()))
    assert_is_the_routing(bring(packed, **options).trace)


@pytest.mark.parametrize(
    ("file", "options"), [(case[0], case[2]) for case in CASES if case[0] != "recorder.pt"]
)
def test_windows_line_ends_change_nothing(
    data: Path, bring: Import, write: Write, file: str, options: dict[str, Any]
) -> None:
    windows = write("copy", (data / file).read_bytes().replace(b"\n", b"\r\n"))
    assert_is_the_routing(bring(windows, **options).trace)


@pytest.mark.parametrize(
    "content",
    [
        "-1 2 6\n-2 1 99\n1 4 17\n",
        "1 4 17\n",
        b"IKU1\x01\0\0\0\x02\0\0\0",
        "layer,expert,count\n0,1,7\n",
        '{"layer_id": 0, "total_tokens": 9, "experts": [{"expert_id": 1, "activations": 7}]}',
    ],
)
def test_counts_are_refused_as_tables(
    write: Callable[[str, str | bytes], Path], fails: Callable[..., str], content: str | bytes
) -> None:
    assert "no order is left, and cannot be replayed" in fails(write("counts", content))


def test_the_coli_usage_fixture_is_a_table(data: Path, fails: Callable[..., str]) -> None:
    assert "counts of experts" in fails(data / "usage.coli_usage")


@pytest.mark.parametrize("content", ["", "hello\n", "[]", "{}", "\n\n", b"\xff\xfe\x00", "1,2\n"])
def test_what_is_in_no_format(
    write: Callable[[str, str | bytes], Path], fails: Callable[..., str], content: str | bytes
) -> None:
    assert "is in no format that is known: name it with --format" in fails(write("file", content))


def test_a_format_that_does_not_exist(data: Path, bring: Import) -> None:
    with pytest.raises(Exception, match="--format csvx is not known: it is one of moe-route-trace"):
        bring(data / "wide.csv", format="csvx")


def test_a_file_that_is_not_there(tmp_path: Path, fails: Callable[..., str]) -> None:
    assert "No such file" in fails(tmp_path / "absent")
    assert "Is a directory" in fails(tmp_path)


@pytest.mark.parametrize(
    "file", [case[0] for case in CASES if case[0] not in ("bigmoe.csv", "cache_lab.jsonl")]
)
def test_the_number_of_experts_is_never_guessed(
    data: Path, fails: Callable[..., str], file: str
) -> None:
    options = next(case[2] for case in CASES if case[0] == file)
    message = fails(data / file, **{**options, "num_experts": None})
    assert "give --num-" in message


# Each cut of each file: a trace with a prefix of the routes, or one sentence.
@pytest.mark.parametrize(("file", "options"), [(case[0], case[2]) for case in CASES])
def test_every_cut_is_refused_or_a_prefix(
    data: Path, bring: Import, write: Write, file: str, options: dict[str, Any]
) -> None:
    whole = (data / file).read_bytes()
    for length in range(0, len(whole), 3):
        path = write("cut", whole[:length])
        try:
            trace = bring(path, **options).trace
        except Exception as error:
            assert type(error).__name__ == "InputError", error
            assert str(path) in str(error)
            continue
        # A cut inside the last number of the last row is a row of its own.
        assert trace.num_records in (2, 4, 6) or trace.header.num_layers == 1


@pytest.mark.parametrize("name", [known.name for known in FORMATS])
@pytest.mark.parametrize("file", [*(case[0] for case in CASES), "usage.coli_usage", "other.npz"])
def test_a_format_by_name_on_any_file(
    tmp_path: Path, data: Path, bring: Import, file: str, name: str
) -> None:
    """Found by fuzzing: a header without the format's columns, an archive without its pickle."""
    if file == "other.npz":
        np.savez(tmp_path / file, other=np.zeros(3))
        data = tmp_path
    for columns in ({}, {"layer": "layer"}):
        try:
            bring(data / file, format=name, columns=columns)
        except InputError as error:
            assert str(error).startswith(str(data / file))
