# SPDX-License-Identifier: Apache-2.0
"""Target against achieved: the verdicts, the built-in models, and the control without locality."""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from pagetier.analysis.synth import (
    check_predictions,
    check_targets,
    draw_all,
    draw_domain,
    load_spec,
    uniform,
)
from pagetier.analysis.synth.check import PredictionRow, TargetRow
from pagetier.analysis.synth.generate import draw_accepted
from pagetier.analysis.synth.spec import ModelSpec
from pagetier.analysis.traces import Trace, read_trace, trace_info, write_trace


@pytest.mark.parametrize(
    ("achieved", "verdict"),
    [
        ({"a": 1.0, "b": 2.0}, "inside"),
        ({"a": 0.9, "b": 2.0}, "near"),
        ({"a": 1.0, "b": 2.2}, "near"),
        ({"a": 0.89, "b": 1.5}, "missed"),
        ({"a": 1.5, "b": 2.21}, "missed"),
    ],
)
def test_verdicts_go_by_the_value_furthest_out(achieved: dict[str, float], verdict: str) -> None:
    assert TargetRow("statistic", (1.0, 2.0), achieved).verdict == verdict


def test_predictions_have_an_error_and_no_verdict() -> None:
    assert PredictionRow("misses", 4.0, 5.0).error == 0.25


TABLE_1 = ("zipf_alpha", "reuse_1", "reuse_64", "jaccard")


@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3-30b-a3b", "gpt-oss-20b"])
def test_built_in_models_meet_their_targets(name: str) -> None:
    spec = load_spec(name)
    assert spec.parameters is not None
    traces = draw_all(spec, spec.parameters, seed=1)
    rows = check_targets(spec, spec.parameters, traces, seed=1)
    assert {row.statistic for row in rows} >= set(TABLE_1)
    assert [row.statistic for row in rows if row.verdict == "missed"] == []


def test_kimi_meets_table_1_and_the_facts() -> None:
    spec = load_spec("kimi-k3")
    assert spec.parameters is not None
    traces = draw_all(spec, spec.parameters, seed=1)
    rows = {row.statistic: row for row in check_targets(spec, spec.parameters, traces, seed=1)}
    assert [name for name, row in rows.items() if row.verdict == "missed"] == []
    reuse = ("accepted_reuse_1", "accepted_reuse_8", "accepted_reuse_64")
    table = ["zipf_alpha", *reuse, "jaccard", "top8_share", "coverage"]
    assert [name for name in table if rows[name].verdict != "inside"] == []
    assert rows["reads_per_iteration"].achieved["prose"] == pytest.approx(1663, rel=0.003)

    info = trace_info(traces["prose"])
    assert info["iteration_types"] == {"normal": 255, "spec-accept": 14, "spec-fallback": 16}
    assert (info["iterations"], info["accepted_tokens"], info["records"]) == (285, 299, 301 * 92)
    assert [trace_info(trace)["accepted_tokens"] for trace in traces.values()] == [299] * 4

    predicted = {row.figure: row for row in check_predictions(spec, traces)}
    assert predicted["batch_accepted_tokens"].predicted == 1078
    assert [row.figure for row in predicted.values() if row.informed] == [
        "batch_bytes_per_step",
        "batch_accepted_tokens",
    ]
    assert all(abs(row.error) < 0.05 for row in predicted.values())


def test_the_accepted_tokens_of_a_trace() -> None:
    """The tokens that a trace served, in order: each is part of the passes of its iteration."""
    spec = small_kimi()
    assert spec.parameters is not None
    trace = draw_domain(spec, spec.parameters, "prose", 2)
    accepted = draw_accepted(spec, spec.parameters, "prose", 2)
    assert accepted is not None
    assert trace_info(accepted)["iteration_types"]["normal"] == 299
    per_token = accepted.experts.reshape(299, 3, 4)
    served = np.split(trace.experts, trace.record_start[1:-1])
    places = zip(trace.step.tolist(), trace.layer.tolist(), served, strict=True)
    last_pass = {(step, layer): set(record.tolist()) for step, layer, record in places}
    token = 0
    for step in range(285):
        width = 1 + any(len(last_pass[step, layer]) > 4 for layer in range(3))
        for layer in range(3):
            tokens = per_token[token : token + width, layer]
            assert last_pass[step, layer] == set(tokens.ravel().tolist())
        token += width
    assert token == 299


def test_without_speculation_there_are_no_other_positions() -> None:
    spec = load_spec("gpt-oss-20b")
    assert spec.parameters is not None
    assert draw_accepted(spec, spec.parameters, "prose", 2) is None


def test_the_control_hits_by_capacity_alone() -> None:
    """Under uniform selection an LRU of c of E experts a layer hits c / E of the time.

    A record's experts are distinct: for the j-th of them, j places of the cache and j of the
    experts are out of the question.
    """
    spec = load_spec("gpt-oss-20b")
    control = uniform(spec)
    assert control.parameters is not None
    trace = draw_domain(control, control.parameters, "prose", 3, iterations=400)
    for capacity in (8, 16, 24):
        chance = sum((capacity - j) / (32 - j) for j in range(4)) / 4
        assert hit_rate(trace, capacity) == pytest.approx(chance, abs=0.01)
    real = draw_domain(spec, spec.parameters or control.parameters, "prose", 3, iterations=400)
    assert hit_rate(real, 8) > 0.5


def hit_rate(trace: Trace, capacity: int) -> float:
    """Of one LRU a layer, in recorded order; experts shuffled, since ids ascend in a record."""
    rng = np.random.default_rng(0)
    hits = reads = 0
    caches = [OrderedDict[int, None]() for _ in range(trace.header.num_layers)]
    starts = trace.record_start.tolist()
    for record, layer in enumerate(trace.layer.tolist()):
        cache = caches[layer]
        for expert in rng.permutation(trace.experts[starts[record] : starts[record + 1]]).tolist():
            hits, reads = hits + (expert in cache), reads + 1
            cache[expert] = None
            cache.move_to_end(expert)
            if len(cache) > capacity:
                cache.popitem(last=False)
    return hits / reads


def test_a_trace_survives_its_file(tmp_path: Path) -> None:
    spec = small_kimi()
    assert spec.parameters is not None
    trace = draw_domain(spec, spec.parameters, "prose", 2)
    write_trace(trace, tmp_path / "t.jsonl.gz")
    read = read_trace(tmp_path / "t.jsonl.gz")
    assert np.array_equal(read.experts, trace.experts)
    assert read.header == trace.header
    assert read.header.domain == "prose" and "seed 2" in str(read.header.source)
    write_trace(draw_domain(spec, spec.parameters, "prose", 2), tmp_path / "again.jsonl.gz")
    assert (tmp_path / "again.jsonl.gz").read_bytes() == (tmp_path / "t.jsonl.gz").read_bytes()


def test_other_lengths_keep_the_mixture() -> None:
    spec = small_kimi()
    assert spec.parameters is not None
    info = trace_info(draw_domain(spec, spec.parameters, "prose", 2, iterations=570))
    assert info["iteration_types"] == {"normal": 510, "spec-accept": 28, "spec-fallback": 32}


def small_kimi() -> ModelSpec:
    return load_spec("kimi-k3").model_copy(update={"layers": 3, "experts": 64, "top_k": 4})
