# SPDX-License-Identifier: Apache-2.0
"""Plan quality by hand and against a brute force, and the suppression of badly predicted layers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.generate import default_trace
from pagetier.analysis.hints import HintPlan, plan_quality, record_layers, suppress
from pagetier.analysis.plans import Plan, build_plan


def plan_of(records: list[list[int]], layers: int, experts: int) -> Plan:
    """Records of layers 0, 1, 0, 1, ... with ids per layer."""
    layer = [at % layers for at in range(len(records))]
    flat = [at * experts + e for at, record in zip(layer, records, strict=True) for e in record]
    starts = np.cumsum([0, *map(len, records)]).astype(np.uint64)
    iterations = np.arange(0, len(records) + 1, layers, dtype=np.uint64)
    return Plan(np.array(flat, dtype=np.uint32), starts, iterations, layers, experts)


def hints_of(hints: dict[int, list[int]], records: int) -> HintPlan:
    """Hints by the record that they are for."""
    target = [record for record in sorted(hints) for _ in hints[record]]
    experts = [expert for record in sorted(hints) for expert in hints[record]]
    return HintPlan.for_records(
        np.array(experts, dtype=np.uint32), np.array(target, dtype=np.int64), records
    )


PLAN = plan_of([[0, 1], [2, 3], [1, 2], [3, 0]], layers=2, experts=4)


def test_hints_go_one_record_ahead() -> None:
    hints = hints_of({1: [6, 7], 3: [4]}, records=4)
    assert hints.record_start.tolist() == [0, 2, 2, 3, 3]
    assert hints.target.tolist() == [1, 1, 3]


def test_quality_by_hand() -> None:
    # Record 1 wants 6 and 7 and was hinted 6 and 5; record 2 nothing; record 3 wants 7 and 4.
    quality = plan_quality(PLAN, hints_of({1: [6, 5], 3: [4, 7, 5]}, records=4))
    zero, one = quality.layers
    assert (zero.wanted, zero.hinted, zero.hit) == (2, 0, 0)  # record 0 cannot be hinted
    assert (one.wanted, one.hinted, one.hit) == (4, 5, 3)
    assert (zero.recall, zero.precision) == (0.0, None)
    assert quality.overall.recall == pytest.approx(3 / 6)
    assert quality.overall.precision == pytest.approx(3 / 5)


def test_a_record_without_reads_has_no_layer() -> None:
    plan = plan_of([[0], [], [1], [2]], layers=2, experts=3)
    assert record_layers(plan).tolist() == [0, -1, 0, 1]


def test_no_hints_have_no_precision() -> None:
    quality = plan_quality(PLAN, hints_of({}, records=4))
    assert (quality.overall.recall, quality.overall.precision) == (0.0, None)


def test_layers_below_the_recall_get_no_hints() -> None:
    hints = hints_of({1: [6, 7], 2: [0, 3], 3: [7, 4]}, records=4)
    assert [row.recall for row in plan_quality(PLAN, hints).layers] == [0.0, 1.0]
    left = suppress(PLAN, hints, 0.5)
    assert (left.experts.tolist(), left.target.tolist()) == ([6, 7, 7, 4], [1, 1, 3, 3])
    assert suppress(PLAN, hints, 0.0).experts.tolist() == hints.experts.tolist()


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(2, 6), st.integers(1, 6))
def test_quality_is_what_counting_finds(
    seed: int, layers: int, experts: int, iterations: int
) -> None:
    plan = build_plan(default_trace(layers, experts, 1, iterations, seed))
    random = np.random.default_rng(seed)
    hints = {
        record: random.choice(layers * experts, size=random.integers(0, experts), replace=False)
        for record in range(1, plan.num_records)
    }
    made = hints_of({r: list(map(int, h)) for r, h in hints.items()}, plan.num_records)
    wanted = {
        record: set(
            plan.experts[
                int(plan.record_start[record]) : int(plan.record_start[record + 1])
            ].tolist()
        )
        for record in range(1, plan.num_records)
    }
    hit = sum(len(wanted[record] & set(hints[record].tolist())) for record in wanted)
    overall = plan_quality(plan, made).overall
    assert overall.hit == hit
    assert overall.wanted == sum(map(len, wanted.values()))
    assert overall.hinted == sum(map(len, hints.values()))
