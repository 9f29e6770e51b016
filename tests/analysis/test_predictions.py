# SPDX-License-Identifier: Apache-2.0
"""Recorded predictions: what they hint, and that every mistake names file and line."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pagetier.analysis.errors import InputError
from pagetier.analysis.generate import default_trace
from pagetier.analysis.predictions import read_predictions

TRACE = default_trace(layers=2, experts=5, top_k=2, iterations=3, seed=4)
REQ = "synthetic:0"
HEADER = {"format": "moe-route-predictions", "version": 1, "num_layers": 2, "num_experts": 5}


def said(step: Any, layer: Any, experts: Any, req: Any = REQ) -> dict[str, Any]:
    return {"req": req, "step": step, "layer": layer, "experts": experts}


def write(tmp_path: Path, *rows: Any, header: Any = HEADER, packed: bool = False) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in [header, *rows]).encode()
    path = tmp_path / "p.jsonl"
    path.write_bytes(gzip.compress(text) if packed else text)
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_prediction_is_for_the_next_layer(tmp_path: Path, packed: bool) -> None:
    path = write(
        tmp_path,
        said(0, 0, [3, 1]),
        said(0, 1, [4]),
        said(1, 0, []),
        said(2, 1, [0]),
        packed=packed,
    )
    hints = read_predictions(path, TRACE)
    # After layer 0 of step 0 two experts of layer 1; after layer 1 one of layer 0 of the next
    # step; nothing comes after the last record.
    assert hints.experts.tolist() == [5 + 3, 5 + 1, 4]
    assert hints.target.tolist() == [1, 1, 2]


def test_steps_beyond_a_cut_trace_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, said(0, 0, [1]), said(7, 0, [2]), said(0, 0, [2], req="other"))
    assert read_predictions(path, TRACE).experts.tolist() == [6]


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        ([said(9, 0, [1])], HEADER, "p.jsonl: predicts no record of the trace"),
        ([], {**HEADER, "format": "moe-route-trace"}, "p.jsonl:1: no header"),
        ([], {**HEADER, "num_experts": 6}, "p.jsonl:1: predicts 2 layers of 6 experts, the trace"),
        ([said(0, 0, [1]), said(0, 0, [2])], HEADER, "p.jsonl:3: step 0, layer 0 of .* again"),
        ([said(0, 2, [1])], HEADER, "p.jsonl:2: layer is 2: expected 0..1"),
        ([said(-1, 0, [1])], HEADER, "p.jsonl:2: step is -1"),
        ([said(0, 0, [5])], HEADER, "p.jsonl:2: an expert id is out of range: ids are 0..4"),
        ([said(0, 0, [1, 1])], HEADER, "p.jsonl:2: an expert id appears twice"),
        ([said(0, 0, "1")], HEADER, "p.jsonl:2: experts must be a list of ids"),
        ([said(0, 0, [True])], HEADER, "p.jsonl:2: experts must be a list of ids"),
        ([said(0, 0, [1], req=None)], HEADER, "p.jsonl:2: req is None"),
        (["x"], HEADER, "p.jsonl:2: expected a JSON object"),
    ],
)
def test_mistakes_name_file_and_line(
    tmp_path: Path, rows: list[Any], header: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_predictions(write(tmp_path, *rows, header=header), TRACE)


def test_missing_and_empty_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give the path of a readable prediction file"):
        read_predictions(tmp_path / "absent", TRACE)
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(InputError, match="empty:1: "):
        read_predictions(tmp_path / "empty", TRACE)
