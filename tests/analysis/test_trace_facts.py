# SPDX-License-Identifier: Apache-2.0
"""Facts of traces against a second reading of their definitions, record by record."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces import Trace, TraceHeader, read_trace
from pagetier.analysis.traces.columns import starts_of
from pagetier.analysis.traces.facts import domain_jaccard, trace_facts, zipf_slope
from pagetier.analysis.traces.locality import failed_passes

Record = tuple[int, int, int, list[int]]


def make_trace(
    records: list[Record], layers: int, experts: int, top_k: int, weights: Any = None
) -> Trace:
    """A trace of (request, step, layer, experts) records."""
    return Trace(
        header=TraceHeader("tiny", layers, experts, top_k),
        requests=tuple(sorted({record[0] for record in records})),
        request=np.array([record[0] for record in records], dtype=np.int32),
        step=np.array([record[1] for record in records], dtype=np.int32),
        layer=np.array([record[2] for record in records], dtype=np.int32),
        record_start=starts_of(np.array([len(record[3]) for record in records])),
        experts=np.array([e for record in records for e in record[3]], dtype=np.uint32),
        weights=weights,
        sha256=None,
    )


def reuse_by_unions(records: list[Record], windows: list[int]) -> dict[str, float | None]:
    """W_n as it is worded: against the union of the n positions before."""
    shares: dict[int, list[float]] = {window: [] for window in windows}
    chains: dict[tuple[int, int], list[set[int]]] = {}
    for request, _, layer, chosen in records:
        chain = chains.setdefault((request, layer), [])
        for window in windows if chain else ():
            before = set().union(*chain[-window:])
            shares[window].append(len(before & set(chosen)) / len(chosen))
        chain.append(set(chosen))
    return {str(w): math.fsum(s) / len(s) if s else None for w, s in shares.items()}


def reuse_by_last_use(records: list[Record], windows: list[int]) -> dict[str, float | None]:
    """The same by the age of each expert's last use: fast enough for a real trace."""
    shares: dict[int, list[float]] = {window: [] for window in windows}
    positions: Counter[tuple[int, int]] = Counter()
    last: dict[tuple[int, int, int], int] = {}
    for request, _, layer, chosen in records:
        now = positions[request, layer]
        positions[request, layer] += 1
        ages = [now - last.get((request, layer, expert), -(10**9)) for expert in chosen]
        last.update(((request, layer, expert), now) for expert in chosen)
        for window in windows if now else ():
            shares[window].append(sum(age <= window for age in ages) / len(chosen))
    return {str(w): math.fsum(s) / len(s) if s else None for w, s in shares.items()}


def brute_force(records: list[Record], layers: int, experts: int) -> dict[str, Any]:
    """The other facts by their definitions, with loops and dictionaries alone."""
    counts = [Counter[int]() for _ in range(layers)]
    unions: dict[tuple[int, int, int], set[int]] = {}
    for request, step, layer, chosen in records:
        counts[layer].update(chosen)
        unions.setdefault((request, step, layer), set()).update(chosen)
    sizes = sorted(len(union) for union in unions.values())
    slopes = [np.polyfit(*_logs(count), 1)[0] for count in counts if len(count) > 1]
    top8 = [sum(n for _, n in c.most_common(8)) / c.total() for c in counts]
    every = sorted((c[e] for c in counts for e in range(experts)), reverse=True)
    return {
        "zipf_alpha": -sum(slopes) / len(slopes) if slopes else None,
        "top8_share": {"mean": sum(top8) / layers, "min": min(top8), "max": max(top8)},
        "coverage": sum(len(c) for c in counts) / (layers * experts),
        "step_union": {"mean": sum(sizes) / len(sizes), "p95": float(np.percentile(sizes, 95))},
        "hottest_share": {
            str(p): sum(every[: math.ceil(layers * experts * p / 100)]) / sum(every)
            for p in (10, 20, 30, 40)
        },
    }


def _logs(count: Counter[int]) -> tuple[list[float], list[float]]:
    ordered = sorted(count.values(), reverse=True)
    return [math.log(rank) for rank in range(1, len(ordered) + 1)], [math.log(n) for n in ordered]


@st.composite
def traces(draw: st.DrawFn) -> tuple[list[Record], int, int]:
    """Requests of several steps; steps pass their layers once or twice, records vary in width."""
    layers, experts = draw(st.integers(1, 3)), draw(st.integers(2, 12))
    records: list[Record] = []
    for request in range(draw(st.integers(1, 3))):
        for step in range(draw(st.integers(1, 6))):
            for _ in range(draw(st.integers(1, 2))):
                for layer in range(layers):
                    ids = st.lists(st.integers(0, experts - 1), min_size=1, max_size=5, unique=True)
                    records.append((request, step, layer, draw(ids)))
    return records, layers, experts


@given(traces())
@settings(max_examples=150, deadline=None)
def test_facts_equal_a_brute_force(case: tuple[list[Record], int, int]) -> None:
    records, layers, experts = case
    windows = [1, 2, 3, 64]
    facts = trace_facts(make_trace(records, layers, experts, 1), reuse=windows)
    expected = {
        **brute_force(records, layers, experts),
        "reuse": reuse_by_unions(records, windows),
    }
    for name, value in expected.items():
        if value is None:
            assert facts[name] is None
        elif name == "reuse" and value["1"] is None:
            assert facts[name] == value
        else:
            assert facts[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


@pytest.mark.parametrize(
    ("name", "w1"),
    [
        ("gpt-oss-20b_decode_mixed", 0.429),
        ("gpt-oss-20b_decode_physics", 0.483),
        ("deepseek-v2-lite-chat_prefill_puffin", 0.267),
    ],
)
def test_facts_of_real_traces_equal_a_brute_force(traces: Path, name: str, w1: float) -> None:
    trace = read_trace(traces / f"{name}.jsonl.gz")
    facts = trace_facts(trace, reuse=[1, 8, 64])
    starts, ids = trace.record_start.tolist(), trace.experts.tolist()
    records = [
        (request, step, layer, ids[starts[r] : starts[r + 1]])
        for r, (request, step, layer) in enumerate(
            zip(trace.request.tolist(), trace.step.tolist(), trace.layer.tolist(), strict=True)
        )
    ]
    header = trace.header
    expected = {
        **brute_force(records, header.num_layers, header.num_experts),
        "reuse": reuse_by_last_use(records, [1, 8, 64]),
    }
    assert facts["reuse"]["1"] == pytest.approx(w1, abs=5e-4)
    for key, value in expected.items():
        assert facts[key] == pytest.approx(value, rel=1e-9), key


def test_reuse_does_not_cross_requests() -> None:
    trace = make_trace([(0, 0, 0, [1, 2]), (1, 0, 0, [1, 2]), (1, 1, 0, [2, 3])], 1, 4, 2)
    assert trace_facts(trace)["reuse"] == {"1": 0.5, "8": 0.5, "64": 0.5}


def test_reuse_of_single_positions_is_unknown() -> None:
    trace = make_trace([(0, 0, 0, [1]), (1, 0, 0, [1])], 1, 4, 1)
    facts = trace_facts(trace)
    assert facts["reuse"] == {"1": None, "8": None, "64": None}
    assert facts["layers"][0]["reuse"] == {"1": None, "8": None, "64": None}


def test_a_layer_that_uses_one_expert_has_no_slope() -> None:
    assert zipf_slope(np.array([0, 7, 0])) is None
    trace = make_trace([(0, 0, 0, [3]), (0, 1, 0, [3])], 1, 4, 1)
    assert trace_facts(trace)["zipf_alpha"] is None


def test_slope_of_an_exact_power_law() -> None:
    ranks = np.arange(1, 7)
    assert zipf_slope(3600 // ranks) == pytest.approx(1.0, abs=1e-12)
    assert zipf_slope(np.array([4, 4, 0, 4])) == pytest.approx(0, abs=1e-12)


def test_failed_passes_are_left_out_of_the_served_reuse() -> None:
    """A draft {1,2,3} fails; {1} is routed again: as issued W1 is (1 + 0)/2, served only 0."""
    records: list[Record] = [
        (0, 0, 0, [1, 2, 3]),
        (0, 0, 0, [1]),
        (0, 1, 0, [2]),
    ]
    trace = make_trace(records, 1, 4, 1)
    assert failed_passes(trace).tolist() == [True, False, False]
    facts = trace_facts(trace, reuse=[1])
    assert facts["reuse"] == {"1": 0.5}
    assert facts["reuse_without_failed_passes"] == {"1": 0.0}
    assert "one record is one position" in facts["reuse_method"]


def test_served_reuse_is_unknown_without_failed_passes() -> None:
    trace = make_trace([(0, 0, 0, [1]), (0, 1, 0, [1])], 1, 4, 1)
    assert trace_facts(trace)["reuse_without_failed_passes"] is None


def test_coverage_over_time_counts_first_uses() -> None:
    steps = [[0, 1], [1, 2], [2, 3], [0, 1], [0, 4]]
    trace = make_trace([(0, i, 0, ids) for i, ids in enumerate(steps)], 1, 10, 2)
    assert trace_facts(trace)["coverage_over_time"] == [
        {"iterations": 1, "coverage": 0.2},
        {"iterations": 2, "coverage": 0.3},
        {"iterations": 4, "coverage": 0.4},
        {"iterations": 5, "coverage": 0.5},
    ]


def test_gate_mass_ranks_by_weight_not_by_order() -> None:
    weights = np.array([1.0, 3.0, 0.9, 0.1, 0.0, 0.0])
    records: list[Record] = [(0, i, 0, [0, 1]) for i in range(3)]
    mass = trace_facts(make_trace(records, 1, 4, 2, weights))["gate_mass_by_rank"]
    assert mass == pytest.approx([(0.75 + 0.9) / 2, (0.25 + 0.1) / 2])


def test_gate_mass_of_absent_or_empty_weights_is_unknown() -> None:
    records: list[Record] = [(0, 0, 0, [0, 1])]
    assert trace_facts(make_trace(records, 1, 4, 2))["gate_mass_by_rank"] is None
    assert trace_facts(make_trace(records, 1, 4, 2, np.zeros(2)))["gate_mass_by_rank"] is None


def test_bytes_need_the_size_of_an_expert() -> None:
    trace = make_trace([(0, 0, 0, [0, 1]), (0, 1, 0, [0, 1])], 1, 4, 2)
    assert "bytes_per_iteration" not in trace_facts(trace)
    facts = trace_facts(trace, expert_bytes=1000)
    assert facts["bytes_per_iteration"] == 2000
    assert facts["bytes_per_accepted_token"] == 2000
    assert facts["reads_per_accepted_token"] == 2


def test_facts_are_plain_json() -> None:
    trace = make_trace([(0, 0, 0, [0, 1]), (0, 1, 0, [0, 2])], 1, 4, 2, np.ones(4))
    facts = trace_facts(trace, expert_bytes=7)
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts


@pytest.mark.parametrize("windows", [[], [0], [-1, 3]])
def test_impossible_windows_are_refused(windows: list[int]) -> None:
    trace = make_trace([(0, 0, 0, [0])], 1, 4, 1)
    with pytest.raises(InputError, match="whole numbers of 1 or more"):
        trace_facts(trace, reuse=windows)


def test_jaccard_of_hottest_sets() -> None:
    def used(*ids: int) -> Trace:
        return make_trace([(0, step, 0, [expert]) for step, expert in enumerate(ids)], 1, 8, 1)

    named = {"a": used(0, 0, 1, 1, 2), "b": used(1, 1, 3, 3, 2), "c": used(5)}
    pairs = domain_jaccard(named, top=2)["pairs"]
    assert [(pair["a"], pair["b"], pair["mean"]) for pair in pairs] == [
        ("a", "b", pytest.approx(1 / 3)),
        ("a", "c", 0.0),
        ("b", "c", 0.0),
    ]


def test_jaccard_refuses_traces_of_different_models() -> None:
    a = make_trace([(0, 0, 0, [0])], 1, 4, 1)
    b = make_trace([(0, 0, 0, [0])], 1, 5, 1)
    with pytest.raises(InputError, match="1 x 4, 1 x 5"):
        domain_jaccard({"a": a, "b": b})
