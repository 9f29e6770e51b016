# SPDX-License-Identifier: Apache-2.0
"""Typed accounting: exact counts for constructed mixtures, and None where nothing can tell."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagetier.analysis.errors import InputError
from pagetier.analysis.plans import build_plan
from pagetier.analysis.traces import Trace, read_trace, trace_info
from pagetier.analysis.traces.accounting import ACCEPT, FALLBACK, NORMAL, account
from pagetier.analysis.traces.importers import ImportOptions, import_files

LAYERS, EXPERTS, TOP_K = 5, 96, 4

Rows = list[dict[str, Any]]


class Engine:
    """Issues passes as a speculating engine does, and knows what it served."""

    def __init__(self, seed: int, layers: int = LAYERS, top_k: int = TOP_K) -> None:
        self.random = np.random.default_rng(seed)
        self.layers, self.top_k = layers, top_k
        self.rows: list[tuple[int, int, list[int]]] = []  # iteration, layer, ids
        self.types: list[int] = []
        self.positions = self.accepted = 0

    def position(self) -> list[int]:
        chosen: list[int] = self.random.permutation(EXPERTS)[: self.top_k].tolist()
        return chosen

    def routed(self, positions: int) -> list[int]:
        """The set of a pass of one layer; its positions agree at times altogether."""
        rows = [self.position() for _ in range(positions)]
        if positions == 2 and self.random.random() < 0.2:
            rows[1] = rows[0][::-1]
        return list(dict.fromkeys(expert for row in rows for expert in row))

    def iterate(self, kind: int, interleaved: bool) -> None:
        iteration = len(self.types)
        passes = {NORMAL: [1], ACCEPT: [2], FALLBACK: [2, 1]}[kind]
        routed = [
            [(iteration, layer, self.routed(n)) for layer in range(self.layers)] for n in passes
        ]
        for n, rows in zip(passes, routed, strict=True):
            if n == 2:  # a pass of two positions is wider than k somewhere
                rows[0] = (iteration, 0, list(range(2 * self.top_k)))
        ordered = [list(rows) for rows in zip(*routed, strict=True)] if interleaved else routed
        self.rows += [row for group in ordered for row in group]
        self.types.append(kind)
        self.positions += sum(passes)
        self.accepted += {NORMAL: 1, ACCEPT: 2, FALLBACK: 1}[kind]


def write_rows(path: Path, engine: Engine, form: str) -> Path:
    """As a moe-route-trace, as engine JSONL with steps, or without."""
    header = {"format": "moe-route-trace", "version": 1, "model": "m"}
    header |= {"num_layers": engine.layers, "num_experts": EXPERTS, "top_k": engine.top_k}
    lines: Rows = [header] if form == "canonical" else []
    for iteration, layer, experts in engine.rows:
        place: dict[str, dict[str, Any]] = {
            "canonical": {"req": "a", "step": iteration},
            "steps": {"iteration": iteration},
            "bare": {},
        }
        lines.append({**place[form], "layer": layer, "experts": experts})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read(path: Path, form: str, top_k: int = TOP_K) -> Trace:
    if form == "canonical":
        return read_trace(path)
    found = import_files([path], ImportOptions(num_experts=EXPERTS, top_k=top_k))
    assert found.format == "engine-jsonl"
    return found.trace


def check(trace: Trace, engine: Engine) -> None:
    accounting = account(trace)
    assert accounting.iteration_type.tolist() == engine.types
    assert (accounting.iterations, accounting.positions, accounting.accepted_tokens) == (
        len(engine.types),
        engine.positions,
        engine.accepted,
    )
    # Every pass is replayed as issued.
    plan = build_plan(trace)
    issued = [layer * EXPERTS + expert for _, layer, ids in engine.rows for expert in ids]
    assert plan.experts.tolist() == issued
    assert plan.num_records == len(engine.rows)
    assert np.diff(plan.record_start.astype(int)).tolist() == [len(ids) for *_, ids in engine.rows]


@pytest.mark.parametrize(
    ("form", "interleaved"),
    [("canonical", True), ("canonical", False), ("steps", True), ("steps", False), ("bare", True)],
)
def test_the_production_mixture(tmp_path: Path, form: str, interleaved: bool) -> None:
    """285 iterations and 299 accepted tokens: 255 normal, 14 accepted, 16 fallbacks; 92 layers."""
    engine = Engine(seed=1, layers=92, top_k=16)
    kinds = [NORMAL] * 255 + [ACCEPT] * 14 + [FALLBACK] * 16
    for kind in engine.random.permutation(kinds):
        engine.iterate(int(kind), interleaved)
    trace = read(write_rows(tmp_path / "trace", engine, form), form, 16)
    check(trace, engine)
    info = trace_info(trace)
    assert (info["iterations"], info["accepted_tokens"], info["positions"]) == (285, 299, 331)
    assert info["iteration_types"] == {"normal": 255, "spec-accept": 14, "spec-fallback": 16}
    assert info["records"] == 92 * (285 + 16) == sum(info["record_types"].values())
    assert info["record_types"]["spec-fallback"] == 2 * 16 * 92


@settings(deadline=None, max_examples=60)
@given(
    kinds=st.lists(st.sampled_from([NORMAL, ACCEPT, FALLBACK]), min_size=1, max_size=25),
    seed=st.integers(0, 2**16),
    form=st.sampled_from(["canonical", "steps", "bare"]),
    interleaved=st.booleans(),
)
def test_any_mixture_is_counted_exactly(
    tmp_path_factory: pytest.TempPathFactory,
    kinds: Sequence[int],
    seed: int,
    form: str,
    interleaved: bool,
) -> None:
    engine = Engine(seed)
    for kind in kinds:
        # Without a step, only layers repeated at once are told from an iteration of their own.
        engine.iterate(kind, interleaved or form == "bare")
    path = tmp_path_factory.mktemp("mixture") / "trace"
    check(read(write_rows(path, engine, form), form), engine)


def make(write_lines: Callable[..., Path], passes: Sequence[Sequence[Sequence[int]]]) -> Trace:
    """passes[step] are the ids of layer 0, pass by pass; k = 2, one layer."""
    header = {"format": "moe-route-trace", "version": 1, "model": "m"}
    header |= {"num_layers": 1, "num_experts": 50, "top_k": 2}
    items = [
        {"req": "a", "step": step, "layer": 0, "experts": list(ids)}
        for step, routed in enumerate(passes)
        for ids in routed
    ]
    return read_trace(write_lines(items, header=header))


@pytest.mark.parametrize(
    ("passes", "positions", "accepted"),
    [
        ([[[1, 2, 3]]], 2, 2),
        ([[[1, 2, 3, 4]], [[1, 2]]], 3, 3),
        ([[range(6)], [range(4)]], 5, 5),  # every width a multiple of k: none overlap
        ([[range(5)]], None, None),  # 3 positions at least, but how many?
        ([[range(6)], [range(3)]], None, None),  # 3 ids may be 2 positions or 3
        ([[range(6), [1, 2]]], 4, None),  # how much of a draft of two held, nothing says
        ([[[1, 2], [3, 4]]], 2, 1),
        ([[[1, 2], [3, 4], [5, 6]]], 3, 1),
    ],
)
def test_what_can_be_told(
    write_lines: Callable[..., Path],
    passes: Sequence[Sequence[Sequence[int]]],
    positions: int | None,
    accepted: int | None,
) -> None:
    accounting = account(make(write_lines, passes))
    assert (accounting.positions, accounting.accepted_tokens) == (positions, accepted)


def test_a_partial_fallback(write_lines: Callable[..., Path], records: Rows) -> None:
    """One layer routed twice is enough."""
    items = [records[0], records[0] | {"experts": [0, 3]}, records[1]]
    accounting = account(read_trace(write_lines(items)))
    assert accounting.iteration_type.tolist() == [FALLBACK]
    assert accounting.record_type.tolist() == [FALLBACK, FALLBACK, NORMAL]
    assert (accounting.positions, accounting.accepted_tokens) == (2, 1)


MERGED = {
    "format": "moe-route-trace",
    "version": 1,
    "model": "tiny",
    "num_layers": 2,
    "num_experts": 5,
    "top_k": 2,
    "batch": 2,
    "accepted": [2, 3],
    "positions": [2, 4],
}


def test_a_merged_trace_counts_in_its_header(
    write_lines: Callable[..., Path], records: Rows
) -> None:
    records[1]["experts"] = [0, 1, 2, 3]
    trace = read_trace(write_lines(records[:4], header=MERGED))
    info = trace_info(trace)
    assert info["batch"] == 2
    assert (info["iterations"], info["positions"], info["accepted_tokens"]) == (2, 6, 5)
    assert info["iteration_types"] == {"normal": 2, "spec-accept": 0, "spec-fallback": 0}
    first = account(trace.first_steps(1))
    assert (first.positions, first.accepted_tokens) == (2, 2)
    unknown = dataclasses.replace(trace.header, accepted=None)
    assert account(dataclasses.replace(trace, header=unknown)).accepted_tokens is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": None}, "1: header accepted without batch"),
        ({"batch": 0}, "1: header batch is 0"),
        ({"accepted": [1]}, "1: header accepted counts 1 steps of 2"),
        ({"accepted": [1, -1]}, "1: header accepted has a number out of range"),
        ({"positions": [1, 2.0]}, "1: header positions must be a list of whole numbers"),
        ({"positions": "12"}, "1: header positions must be a list of whole numbers"),
    ],
)
def test_each_bad_account_is_named(
    write_lines: Callable[..., Path], records: Rows, change: dict[str, Any], message: str
) -> None:
    path = write_lines(records[:4], header=MERGED | change)
    with pytest.raises(InputError, match=f":{message}"):
        read_trace(path)


def test_a_merged_trace_is_one_request(write_lines: Callable[..., Path], records: Rows) -> None:
    path = write_lines(records, header=MERGED)
    with pytest.raises(InputError, match=":1: header batch: a merged trace has one request"):
        read_trace(path)
