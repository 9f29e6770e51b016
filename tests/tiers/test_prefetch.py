# SPDX-License-Identifier: Apache-2.0
"""Plans of the advisor: what each hints, and that the degraded one is as good as asked."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.errors import InputError
from pagetier.analysis.generate import default_trace
from pagetier.analysis.hints import plan_quality
from pagetier.analysis.plans import build_plan
from pagetier.analysis.traces import Trace
from pagetier.tiers.prefetch import PrefetchOptions, make_hints

TRACE = default_trace(layers=3, experts=8, top_k=2, iterations=20, seed=3)
PLAN = build_plan(TRACE)


def record(trace: Trace, at: int) -> list[int]:
    plan = build_plan(trace)
    start, end = int(plan.record_start[at]), int(plan.record_start[at + 1])
    return [int(expert) for expert in plan.experts[start:end]]


def hinted(options: PrefetchOptions, at: int, trace: Trace = TRACE) -> list[int]:
    hints = make_hints(trace, options)
    start, end = int(hints.record_start[at]), int(hints.record_start[at + 1])
    return [int(expert) for expert in hints.experts[start:end]]


def test_the_oracle_hints_the_next_record() -> None:
    options = PrefetchOptions("oracle")
    for at in range(TRACE.num_records - 1):
        assert hinted(options, at) == record(TRACE, at + 1)
    assert hinted(options, TRACE.num_records - 1) == []
    quality = plan_quality(PLAN, make_hints(TRACE, options))
    assert (quality.overall.recall, quality.overall.precision) == (1.0, 1.0)


def test_the_previous_token_hints_what_the_next_layer_read_a_step_before() -> None:
    options = PrefetchOptions("previous-token")
    assert [hinted(options, at) for at in (0, 1)] == [[], []]
    for at in range(2, TRACE.num_records - 1):
        assert hinted(options, at) == record(TRACE, at + 1 - 3)


def test_the_previous_token_is_of_the_same_request() -> None:
    requests = np.repeat([0, 1], TRACE.num_records // 2).astype(np.int32)
    step = np.tile(TRACE.step[: TRACE.num_records // 2], 2)
    both = Trace(
        header=TRACE.header,
        requests=("a", "b"),
        request=requests,
        step=step,
        layer=TRACE.layer,
        record_start=TRACE.record_start,
        experts=TRACE.experts,
        weights=None,
        sha256=None,
    )
    half = TRACE.num_records // 2
    options = PrefetchOptions("previous-token")
    assert [hinted(options, at, both) for at in range(half - 1, half + 2)] == [[], [], []]
    assert hinted(options, half + 2, both) == record(both, half)


@given(st.floats(0, 1), st.integers(0, 10**6))
def test_a_degraded_plan_has_the_recall_asked_for(recall: float, seed: int) -> None:
    options = PrefetchOptions("degraded", recall=recall, seed=seed)
    hints = make_hints(TRACE, options)
    overall = plan_quality(PLAN, hints).overall
    assert overall.hit == round(recall * overall.wanted)
    assert hints.num_hints == overall.wanted  # salted: the volume of hints stays
    assert (hints.experts // 8 == hints.target % 3).all()  # wrong, but of that layer


def test_a_degraded_plan_repeats_itself_and_depends_on_its_seed() -> None:
    first = make_hints(TRACE, PrefetchOptions("degraded", recall=0.5, seed=1)).experts.tolist()
    again = make_hints(TRACE, PrefetchOptions("degraded", recall=0.5, seed=1)).experts.tolist()
    other = make_hints(TRACE, PrefetchOptions("degraded", recall=0.5, seed=2)).experts.tolist()
    assert first == again != other


def test_no_hint_is_given_twice_in_a_record() -> None:
    for at in range(TRACE.num_records):
        hints = hinted(PrefetchOptions("degraded", recall=0.3, seed=5), at)
        assert len(set(hints)) == len(hints)


def test_where_all_experts_are_read_there_are_no_wrong_ones() -> None:
    trace = default_trace(layers=2, experts=2, top_k=2, iterations=4, seed=0)
    hints = make_hints(trace, PrefetchOptions("degraded", recall=0.5, seed=0))
    assert hints.num_hints == 7  # half of the 14 that could be hinted, thinned and not salted
    assert plan_quality(build_plan(trace), hints).overall.precision == 1.0


def test_a_recorded_plan_needs_its_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"prefetch\.trace is missing"):
        make_hints(TRACE, PrefetchOptions("recorded"))
    head = {"format": "moe-route-predictions", "version": 1, "num_layers": 3, "num_experts": 8}
    said = {"req": "synthetic:0", "step": 0, "layer": 0, "experts": [7]}
    path = tmp_path / "p.jsonl"
    path.write_text(f"{json.dumps(head)}\n{json.dumps(said)}\n")
    assert hinted(PrefetchOptions("recorded", predictions=str(path)), 0) == [8 + 7]


def test_badly_predicted_layers_are_suppressed() -> None:
    options = PrefetchOptions("previous-token")
    recalls = [row.recall or 0 for row in plan_quality(PLAN, make_hints(TRACE, options)).layers]
    least = sorted(recalls)[1]
    kept = make_hints(TRACE, PrefetchOptions("previous-token", min_layer_recall=least))
    after = [row.hinted for row in plan_quality(PLAN, kept).layers]
    assert [count > 0 for count in after] == [recall >= least for recall in recalls]
