# SPDX-License-Identifier: Apache-2.0
"""Tables of counts: three kinds of files, ties by id, and mistakes with file and line."""

from pathlib import Path

import numpy as np
import pytest

from pagetier.analysis.errors import InputError
from pagetier.analysis.generate import default_trace
from pagetier.analysis.plans import build_plan
from pagetier.analysis.traces import encode_trace
from pagetier.tiers.table import count_reads, most_frequent, read_counts


def test_equal_counts_are_ranked_by_id() -> None:
    counts = np.array([3, 9, 3, 0, 9, 1], dtype=np.int64)
    assert most_frequent(counts, 4).tolist() == [1, 4, 0, 2]
    assert most_frequent(counts, 99).tolist() == [1, 4, 0, 2, 5, 3]
    assert most_frequent(counts, 0).tolist() == []


def test_the_oracle_counts_the_plan_and_a_trace_file_the_same(tmp_path: Path) -> None:
    trace = default_trace(layers=2, experts=5, top_k=2, iterations=9, seed=1)
    counts = count_reads(build_plan(trace))
    assert counts.sum() == 36
    path = tmp_path / "t.jsonl"
    path.write_bytes(encode_trace(trace))
    assert read_counts(path, 2, 5).tolist() == counts.tolist()


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("0 1 5\n1 4 7\n", {1: 5, 9: 7}),  # .coli_usage without header records
        ("-1 2 5\n-2 1 9f3c\n0 1 5\n\n0 1 2\n", {1: 7}),
        ("layer,expert,count\n0,1,5\n1,4,7\n", {1: 5, 9: 7}),
        ("# shape 2x5\nexpert,count,layer\n1,5,0\n4,7,1\n", {1: 5, 9: 7}),
        ("layer,expert\n0,1\n0,1\n1,0\n", {1: 2, 5: 1}),
        ("0,1,5\n1,4,7\n", {1: 5, 9: 7}),
    ],
)
def test_count_files(tmp_path: Path, text: str, counts: dict[int, int]) -> None:
    path = tmp_path / "counts"
    path.write_text(text)
    found = read_counts(path, 2, 5)
    assert {at: int(count) for at, count in enumerate(found) if count} == counts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "counts: is empty"),
        ("0 1 0\n", "counts: counts no expert"),
        ("-1 3 5\n0 1 5\n", r"counts:1: counts layers and experts \[3, 5\], the plan has 2 layers"),
        ("0 1 5\n2 0 5\n", "counts:2: counts expert 0 of layer 2, the plan has 2 layers of 5"),
        ("0 5 1\n", "counts:1: counts expert 5 of layer 0"),
        ("0 1 -5\n", "counts:1: -5 is no count of reads"),
        ("0 1 x\n", "counts:1: expected layer, expert and count, found '0 1 x'"),
        ("0\n", "counts:1: expected layer, expert and count"),
        ("-7 1 2\n", "counts:1: layer -7 is negative"),
        ("layer,id,count\n0,1,5\n", "counts:1: a table of counts has the columns"),
        ("layer,expert,count\n0,1\n", "counts:2: 2 fields, expected 3"),
    ],
)
def test_mistakes_name_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "counts"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_counts(path, 2, 5)


def test_another_models_trace_and_missing_files_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(encode_trace(default_trace(3, 5, 2, 2, seed=1)))
    with pytest.raises(
        InputError, match=r"t\.jsonl:1: counts 3 layers of 5 experts, the plan has 2"
    ):
        read_counts(path, 2, 5)
    with pytest.raises(InputError, match="give a trace or a file of expert counts"):
        read_counts(tmp_path / "absent", 2, 5)
