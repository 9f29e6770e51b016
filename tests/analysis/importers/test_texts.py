# SPDX-License-Identifier: Apache-2.0
"""Faults in texts and responses: one sentence, with the line or the place in the document."""

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pagetier.analysis.traces.importers import Imported, parse_columns, parse_layers

Ids = npt.NDArray[np.int32]
Import = Callable[..., Imported]
Fails = Callable[..., str]
Write = Callable[[str, str], Path]

# file, text to replace, by what, message
FAULTS = [
    ("colibri.txt", "3 0 2 0:0.6250", "3 0 2 0:0.62x0", ":8: weight is '0.62x0'"),
    ("colibri.txt", "3 0 2 0:0.6250", "3 0 2 0:-1", ":8: weight is '-1'"),
    ("colibri.txt", "3 0 2 0:0.6250", "3 0 2 -1:1", ":8: expert id is '-1'"),
    ("colibri.txt", "3 0 2 0:0.6250", "3 0 2 1_0:1", ":8: expert id is '1_0'"),
    ("colibri.txt", "3 0 2 0:0.6250", "3 1 2 0:0.6", ":8: call 3, row 1, layer 2 does not follow"),
    ("colibri.txt", "1 1 2 2:0.7000", "1 1 3 2:0.7", ":5: call 1, row 1, layer 3 does not follow"),
    ("colibri.txt", "3 0 2 0:0.6250 2:0.3750", "3 0 2", ":8: expected <call> <row> <layer>"),
    ("colibri.txt", "3 0 2 0:0.6250", "3 0 2 2:0.6250", ":8: an expert id appears twice"),
    ("colibri.txt", "5:0.4000\n", "5:0.4000\n\xff", ":2: call is"),
    ("bigmoe.csv", "0,1,3,1,1,3,", "0,1,3,1,2,3,", ":17: slot 2 comes where 1 should be"),
    ("bigmoe.csv", "0,1,3,1,1,3,0.5,0,4096,0", "0,1,3,1,1", ":17: the row is cut"),
    ("bigmoe.csv", "0,1,3,1,1,3,", "0,1,x,1,1,3,", ":17: step is 'x'"),
    ("bigmoe.csv", "0,1,3,1,1,3,", "0,1,-3,1,1,3,", ":17: step is '-3'"),
    ("bigmoe.csv", "n_expert=6", "n_expert=six", ":1: n_expert is 'six'"),
    ("cache_lab.jsonl", '"num_experts":6', '"num_experts":0', ":1: num_experts is 0"),
    ("cache_lab.jsonl", '"selected_experts":[0,2]', '"selected_experts":2', ":7: selected_experts"),
    ("llama_positions.csv", "1,2,2,0", "1,2", ":8: expected pos,layer,id,id,...: the row is cut"),
    ("llama_positions.csv", "1,2,2,0", "1,2,2,", ":8: expert id is ''"),
    ("llama_calls.csv", "2,0 2", "2,", ":9: expected layer_id,expert_ids: the row is cut"),
    ("llama_calls.csv", "2,0 2", "2,0 0", ":9: an expert id appears twice"),
    ("llama.log", "[0, 2]", "[]", ":3: a pass without experts"),
    ("llama.log", "[0, 2]", "[0, --2]", ":3: expert id is '--2'"),
    ("positions.jsonl", "[0, 2]", "[0, 2.5]", ":4: selected_ids must be a list of whole numbers"),
    ("wide.csv", "0,8,b,2,2,0,", "0,8,b,2,2,", ":8: 7 fields instead of 8"),
    ("wide.csv", "0,8,b,2,2,0,", "0,8,b,2,2,x,", ":8: expert id is 'x'"),
    ("wide.csv", "0,8,b,2,2,0,", "0,8,b,2,2,,", ":8: 2 weights for 1 experts"),  # by fuzzing
    ("wide.csv", "0,8,b,2,2,0,", '0,8,"b,2,2,0,', "not CSV"),
    ("wide.csv", "token_position", "when", "counts without positions are a table"),
    ("vllm.json", "[2, 0]", "[2, 0, 1]", "choices[0]: routed_experts [1][1] is one of 2 layers"),
    ("vllm.json", "[2, 0]", "2", "choices[0]: routed_experts [1][1] is no list of whole numbers"),
    ("vllm.json", "[2, 0]", "[2, 0.5]", "routed_experts [1][1] is no list of whole numbers"),
    ("vllm.json", "[2, 0]", "[2, -7]", "routed_experts [1][1] has an id out of range: [2, -7]"),
    ("vllm.json", "[[1, 3], [2, 0]]", "7", "routed_experts [1] is no list of layers"),
    ("vllm.json", '"usage"', '"usage', "not JSON"),
]


@pytest.mark.parametrize(("file", "old", "new", "message"), FAULTS)
def test_each_fault_is_named_with_its_place(
    data: Path, fails: Fails, write: Write, file: str, old: str, new: str, message: str
) -> None:
    content = (data / file).read_text()
    assert old in content
    path = write(file, content.replace(old, new, 1))
    assert message in fails(path)


def test_bytes_that_are_no_text(data: Path, fails: Fails, write: Callable[..., Path]) -> None:
    path = write("f", (data / "colibri.txt").read_bytes() + b"\xff\xfe\n")
    assert "f:13: the line is no text" in fails(path)


@pytest.mark.parametrize(
    "stages",
    [
        [{"routing_stage": "encoder", "num_experts": 6}],
        [{"routing_stage": "encoder"}, {"routing_stage": "decoder"}],
        [3],
        {},
    ],
)
def test_encoders_are_refused(data: Path, fails: Fails, write: Write, stages: Any) -> None:
    lines = (data / "cache_lab.jsonl").read_text().splitlines()
    first = json.dumps({**json.loads(lines[0]), "routing_stages": stages})
    path = write("f", "\n".join([first, *lines[1:]]))
    assert "f:1: traces of an encoder are not read" in fails(path)


def test_a_decoder_of_version_2(data: Path, bring: Import, write: Write) -> None:
    text = (data / "cache_lab.jsonl").read_text()
    text = text.replace('"prompt"', '"decoder_prompt"').replace(
        '"generated"', '"decoder_generated"'
    )
    stage = {"routing_stage": "decoder", "num_experts": 6, "assigned_experts_per_token": 2}
    stage["allows_unassigned"] = False
    first, rest = text.split("\n", 1)
    metadata = json.loads(first) | {"routing_stages": [stage], "format_version": 2}
    found = bring(write("f", json.dumps(metadata) + "\n" + rest), num_experts=None)
    assert found.trace.num_records == 6
    assert found.trace.header.top_k == 2


def test_probabilities_may_be_empty(data: Path, bring: Import, write: Write) -> None:
    lines = (data / "cache_lab.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines[1:]]
    bare = [json.dumps(record | {"selected_probabilities": []}) for record in records]
    assert bring(write("f", "\n".join([lines[0], *bare]))).trace.weights is None


def test_weights_of_bigmoe_when_all_are_known(data: Path, bring: Import, write: Write) -> None:
    path = write("f.csv", (data / "bigmoe.csv").read_text().replace("nan", "0.375"))
    weights = bring(path).trace.weights
    assert weights is not None
    assert weights.tolist()[:4] == [0.75, 0.25, 0.625, 0.375]


def test_rows_of_one_choice_each(bring: Import, write: Write) -> None:
    text = "position,layer,rank,expert\n" + "".join(
        f"{position},{layer},{rank},{(position + layer + rank) % 6}\n"
        for position in range(3)
        for layer in range(2)
        for rank in range(2)
    )
    trace = bring(write("f.csv", text)).trace
    assert trace.experts.tolist() == [0, 1, 1, 2, 1, 2, 2, 3, 2, 3, 3, 4]


def test_two_runs_of_llama_in_one_file(data: Path, bring: Import, write: Write) -> None:
    rows = (data / "llama_positions.csv").read_text()
    changed = rows.replace("0,1,4,1", "0,1,3,1")
    trace = bring(write("f", rows + changed)).trace
    assert trace.requests == (0, 1)
    assert trace.step.tolist() == [0, 0, 1, 1, 2, 2] * 2


def encoded(content: bytes) -> str:
    return json.dumps({"choices": [{"routed_experts": base64.b64encode(content).decode()}]})


def test_base64_of_an_npy_file(bring: Import, write: Write, ids: Ids) -> None:
    buffer = io.BytesIO()
    np.save(buffer, ids.astype(np.int16))
    trace = bring(write("f.json", encoded(buffer.getvalue()))).trace
    assert trace.experts.tolist() == ids.reshape(-1).tolist()


@pytest.mark.parametrize("dtype", ["<i4", "<i2", "<i1"])
def test_base64_of_bare_numbers_of_any_width(
    bring: Import, fails: Fails, write: Write, ids: Ids, dtype: str
) -> None:
    path = write("f.json", encoded(ids.astype(dtype).tobytes()))
    found = bring(path, num_layers=2, top_k=2)
    assert found.trace.experts.tolist() == ids.reshape(-1).tolist()
    assert "give --num-layers, --top-k and --num-experts" in fails(path, num_layers=2)
    assert "is not routes of 5 layers, top-2" in fails(path, num_layers=5, top_k=2)
    assert "is not routes of 2 layers" in fails(path, num_layers=2, top_k=2, num_experts=5)


@pytest.mark.parametrize("value", ["no base64!", "", "AAAA", "k05VTVBZAAAA", 7, True, {"a": 1}])
def test_values_that_are_no_routes(fails: Fails, write: Write, value: Any) -> None:
    path = write("f.json", json.dumps({"choices": [{"routed_experts": value}]}))
    message = fails(path, num_layers=2, top_k=2)
    assert (
        "f.json 'choices'[0]: routed_experts" in message or "f.json choices[0]: routed" in message
    )


def test_responses_line_by_line(data: Path, bring: Import, fails: Fails, write: Write) -> None:
    one = json.dumps(json.loads((data / "vllm.json").read_text()))
    found = bring(write("f.jsonl", f"{one}\n\n{one}\n"))
    assert found.trace.requests == ("f.jsonl:1 choices[0]", "f.jsonl:3 choices[0]")
    assert "f.jsonl:2: not JSON" in fails(write("f.jsonl", f"{one}\n{one[:-3]}\n"))


def test_no_response_has_routes(fails: Fails, write: Write) -> None:
    text = '{"choices": [{"routed_experts": null}, {"routed_experts": []}]}'
    assert "no response has routed_experts: ask the server" in fails(write("f.json", text))
    deep = '{"routed_experts": ' + "[" * 5000
    assert "f.json" in fails(write("f.json", deep))


@pytest.mark.parametrize(
    ("text", "layers"), [("3", (3,)), ("3-5", (3, 4, 5)), ("0, 2-3 ,9", (0, 2, 3, 9))]
)
def test_layers_of_an_option(text: str, layers: tuple[int, ...]) -> None:
    assert parse_layers(text) == layers


@pytest.mark.parametrize(
    "text", ["", "a", "3-", "-3", "5-3", "3,3", "4,2", "1-99999999", "9" * 5000, "\u0663"]
)
def test_bad_layers_of_an_option(text: str) -> None:
    with pytest.raises(Exception, match=r"--layers .*: (expected layers|layers must rise)"):
        parse_layers(text)


def test_columns_of_an_option() -> None:
    assert parse_columns("layer=Layer ID, step=t") == {"layer": "Layer ID", "step": "t"}
    for text in ("", "layer", "layer=", "colour=red"):
        with pytest.raises(Exception, match="expected ROLE=NAME pairs"):
            parse_columns(text)
