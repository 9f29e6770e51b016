# SPDX-License-Identifier: Apache-2.0
"""Logs of router passes: requests and iterations recovered, prefill and dry runs cut."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagetier.analysis.traces.importers import Imported

Rows = list[dict[str, Any]]
Import = Callable[..., Imported]
Fails = Callable[..., str]
Write = Callable[[str, str], Path]


def text(rows: Sequence[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def passes(*widths: int, layers: int = 2) -> Rows:
    """One pass over all layers for each width, every one with other ids."""
    return [
        {"layer": layer, "experts": [(number + i) % 40 for i in range(width)]}
        for number, width in enumerate(widths)
        for layer in range(layers)
    ]


@pytest.mark.parametrize(
    "names",
    [
        ("layer", "experts"),
        ("layer_id", "topk_ids"),
        ("layer_idx", "selected_experts"),
        ("layer_index", "expert_ids"),
    ],
)
def test_keys_go_by_many_names(bring: Import, write: Write, names: tuple[str, str]) -> None:
    rows = [dict(zip(names, row.values(), strict=True)) for row in passes(2, 2)]
    assert (
        bring(write("f", text(rows)), num_experts=40).trace.experts.tolist()
        == [0, 1] * 2
        + [
            1,
            2,
        ]
        * 2
    )


def test_other_keys_by_columns(bring: Import, fails: Fails, write: Write) -> None:
    rows = [{"l": row["layer"], "e": row["experts"], "t": 1.5} for row in passes(2, 2)]
    path = write("f", text(rows))
    assert "is in no format that is known" in fails(path)
    found = bring(
        path, format="engine-jsonl", columns={"layer": "l", "experts": "e"}, num_experts=9
    )
    assert found.trace.num_records == 4
    columns = {"layer": "l", "experts": "absent"}
    assert "has no column 'absent': it has e, l, t" in fails(
        path, format="engine-jsonl", columns=columns
    )
    assert "1: the first record has no layer and experts" in fails(path, format="engine-jsonl")


def test_prefill_passes_begin_requests(bring: Import, write: Write) -> None:
    """Two prompts of one pass and of two chunks; drafts of one token."""
    found = bring(write("f", text(passes(9, 2, 3, 2, 20, 11, 2, 2, 2, 2, 2, 2))), num_experts=40)
    trace = found.trace
    assert trace.requests == ("1:1", "1:2")
    assert trace.step.tolist() == [0, 0, 1, 1, 2, 2, *np.repeat(range(6), 2).tolist()]
    assert found.notes == ("f: 3 passes of more than 2 positions were left out as prefill",)


def test_many_wide_passes_are_no_prefill(bring: Import, fails: Fails, write: Write) -> None:
    path = write("f", text(passes(2, 5, 2, 5, 2)))
    assert "f:3: 2 of 5 passes route more than 2 positions of top-2: give --positions N" in fails(
        path, num_experts=40
    )
    assert bring(path, num_experts=40, positions=3).trace.num_records == 10


def test_phases_are_believed(bring: Import, write: Write) -> None:
    rows = passes(9, 9, 2, 2)
    for number, row in enumerate(rows):
        row["phase"] = "prefill" if number < 4 else "decode"
    found = bring(write("f", text(rows)), num_experts=40)
    assert found.trace.num_records == 4
    assert found.notes == ("f: 4 records of prefill were left out",)


def test_requests_by_name(bring: Import, write: Write) -> None:
    rows = [row | {"req_id": name} for name in ("x", 7) for row in passes(2, 2, 2)]
    rows[0]["experts"] = [9, 8]
    trace = bring(write("f", text(rows)), num_experts=40).trace
    assert trace.requests == ("x", 7)
    assert trace.step.tolist() == [0, 0, 1, 1, 2, 2] * 2


def test_steps_may_begin_anywhere_but_have_no_gap(
    bring: Import, fails: Fails, write: Write
) -> None:
    rows = [row | {"step": 10 + index // 2} for index, row in enumerate(passes(2, 2, 2))]
    assert bring(write("f", text(rows)), num_experts=40).trace.step.tolist() == [0, 0, 1, 1, 2, 2]
    del rows[2:4]
    path = write("f", text(rows))
    assert "f:3: step 2 follows step 0: steps are not contiguous" in fails(path, num_experts=40)
    assert bring(path, num_experts=40, repair=True).trace.step.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("layers", [1, 3])
def test_a_layer_that_is_missing(bring: Import, fails: Fails, write: Write, layers: int) -> None:
    rows = passes(2, 2, 2, 2, layers=3)
    del rows[3 + layers - 1]
    path = write("f", text(rows))
    assert "is missing" in fails(path, num_experts=40)
    found = bring(path, num_experts=40, repair=True)
    assert found.trace.step.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert "repaired: 1 of 4 iterations were left out, the first at" in found.notes[0]


def test_a_file_that_was_cut(bring: Import, fails: Fails, write: Write) -> None:
    whole = text(passes(2, 2, 2))
    path = write("f", whole[:-9])
    assert "f:6: the last line is truncated" in fails(path, num_experts=40)
    found = bring(path, num_experts=40, repair=True)
    assert found.trace.num_records == 4
    assert found.notes[0] == "f: repaired: the last line was cut and was left out"
    path = write("f", text(passes(2, 2, 2)[:-1]))
    assert "f:5: the file ends after layer 0 of 0..1: it was cut" in fails(path, num_experts=40)


def test_repair_leaves_a_sound_file_alone(bring: Import, write: Write) -> None:
    path = write("f", text(passes(2, 3, 2)))
    plain, repaired = (bring(path, num_experts=40, repair=repair) for repair in (False, True))
    assert repaired.notes == plain.notes == ()
    assert repaired.trace.step.tolist() == plain.trace.step.tolist()
    assert repaired.trace.experts.tolist() == plain.trace.experts.tolist()


def test_repair_invents_nothing(bring: Import, fails: Fails, write: Write) -> None:
    rows = passes(2, 2, 2)
    rows[2]["experts"] = [3, 3]
    rows[5]["experts"] = [1, 99]
    path = write("f", text(rows))
    assert "f:3: expert id 3 appears twice in one record" in fails(path, num_experts=40)
    found = bring(path, num_experts=40, repair=True)
    assert found.trace.experts.tolist() == [0, 1, 0, 1]
    assert "2 of 3 iterations were left out" in found.notes[0]
    for row in rows:
        row["experts"] = [1, 1]
    assert "no decode records are in the file" in fails(
        write("f", text(rows)), num_experts=40, repair=True
    )


def test_a_damaged_canonical_trace_is_repaired(bring: Import, write: Write) -> None:
    header = {"format": "moe-route-trace", "version": 1, "model": "m"}
    header |= {"num_layers": 2, "num_experts": 40, "top_k": 2}
    rows = [{"req": "a", "step": i // 2, **row} for i, row in enumerate(passes(2, 2, 2))]
    del rows[1]
    found = bring(write("f", text([header, *rows])), num_experts=None, repair=True)
    assert found.format == "moe-route-trace"
    assert found.trace.header.model == "m"
    assert found.trace.num_records == 4


def test_a_header_that_claims_many_layers(fails: Fails, write: Write) -> None:
    """Memory follows the records, not what a header says."""
    header = {"format": "moe-route-trace", "version": 1, "model": "m"}
    header |= {"num_layers": 2**30, "num_experts": 1, "top_k": 1}
    rows = [{"req": "a", "step": i, "layer": 0, "experts": [0]} for i in range(500)]
    path = write("f", text([header, *rows]))
    assert "no decode records" in fails(path, repair=True, num_experts=None)
    assert "layer 1 is missing" in fails(path, num_experts=None)
    rows[0]["layer"] = 2**30
    assert "f:1: layer 1073741824 is out of range" in fails(write("f", text(rows)), num_experts=9)


def test_a_dry_run_is_the_same_first_step_of_every_prompt(bring: Import, write: Write) -> None:
    rows = [row | {"req_id": str(n)} for n in range(4) for row in passes(2, 2 + n % 2, 2)]
    found = bring(write("f", text(rows)), num_experts=40)
    assert found.notes == (
        "the first step of all 4 requests was bit-identical, a scheduler's dry run, and was left"
        " out",
    )
    assert found.trace.step.tolist() == [0, 0, 1, 1] * 4
    assert found.trace.experts.tolist()[:4] == [1, 2, 1, 2]
    rows[0]["experts"] = [9, 8]
    assert bring(write("f", text(rows)), num_experts=40).notes == ()


def test_one_request_has_no_dry_run(bring: Import, write: Write) -> None:
    assert bring(write("f", text(passes(2, 2))), num_experts=40).notes == ()


def test_warm_up_with_dummy_tokens(bring: Import, write: Write) -> None:
    dummies = [{"layer": layer, "experts": [3, 9]} for _ in range(1000) for layer in range(2)]
    found = bring(write("f", text(dummies + passes(2, 2, 2))), num_experts=40)
    assert found.notes == ("1000 identical iterations at the start were left out as warm-up",)
    assert found.trace.step.tolist() == [0, 0, 1, 1, 2, 2]
    found = bring(write("f", text(dummies[:100] + passes(2))), num_experts=40)
    assert found.notes == ()


def test_the_first_fault_is_named(fails: Fails, write: Write) -> None:
    rows: list[Any] = [*passes(2, 2)]
    rows[2]["experts"] = [1, "2"]
    assert "f:3: experts must be a list of whole numbers" in fails(write("f", text(rows)))
    rows[1]["layer"] = -1
    assert "f:2: layer -1 is negative" in fails(write("f", text(rows)))


def test_no_model(fails: Fails, write: Write) -> None:
    path = write("f", text(passes(2, 2)))
    assert "give --num-experts (the highest id is 2)" in fails(path, num_experts=None)
    assert "is no model: check --num-experts" in fails(path, num_experts=2**31)
    assert "is no model: check --num-experts" in fails(path, num_experts=2, top_k=3)


def test_order_is_kept_as_issued(bring: Import, write: Write) -> None:
    """Ids are in no order of weight that an importer may assume."""
    rows = [{"layer": 0, "experts": [5, 1, 9]}, {"layer": 0, "experts": [0, 8, 3]}]
    trace = bring(write("f", text([rows[0], {"layer": 1, "experts": [7, 2, 4]}])), num_experts=10)
    assert trace.trace.experts.tolist() == [5, 1, 9, 7, 2, 4]
    assert np.diff(trace.trace.record_start.astype(int)).tolist() == [3, 3]
