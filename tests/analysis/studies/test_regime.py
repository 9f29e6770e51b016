# SPDX-License-Identifier: Apache-2.0
"""r(s, l) beside a count by hand, over scored events only."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.errors import InputError
from pagetier.analysis.simulators import Budget, Contract, prepare
from pagetier.analysis.simulators.contract import Start, Warm
from pagetier.analysis.studies import regime, workload_of_trace

Draw = Callable[..., Any]


def nearest_rank(values: list[Any]) -> Any:
    return sorted(values)[math.ceil(Fraction(95, 100) * len(values)) - 1]


def events_by_hand(requests: Any, warm: Warm, start: Start) -> list[tuple[int, int]]:
    """Layer and width of every scored event."""
    runs = requests if start == "per-request" else [[step for one in requests for step in one]]
    scored: list[Any] = []
    for steps in runs:
        first = 0 if isinstance(warm, str) else int(Fraction(str(warm)) * len(steps))
        scored += steps[first:]
    return [
        (layer, len(experts))
        for one in scored
        for routed in one.passes
        for layer, experts in enumerate(routed)
    ]


@given(
    seed=st.integers(0, 2**32),
    total=st.integers(3, 20),
    warm=st.sampled_from(["nothing", "pass", 0.6]),
    start=st.sampled_from(["once", "per-request"]),
)
def test_beside_a_count_by_hand(
    drawn: Draw, seed: int, total: int, warm: Warm, start: Start
) -> None:
    trace, requests = drawn(seed)
    quota = [total // 3 + (layer < total % 3) for layer in range(3)]
    events = events_by_hand(requests, warm, start)
    ratios = [Fraction(width, quota[layer]) for layer, width in events]
    prepared = prepare(workload_of_trace(trace).events, Contract(warm=warm, start=start))
    found = regime(prepared, Budget("fraction", Fraction(total, 27)))
    assert found.events == len(events)
    assert found.union_mean == pytest.approx(sum(w for _, w in events) / len(events))
    assert found.union_p95 == nearest_rank([width for _, width in events])
    assert found.capacity == (min(quota), max(quota))
    assert found.ratio_mean == pytest.approx(float(sum(ratios) / len(ratios)))
    assert found.ratio_p95 == float(nearest_rank(ratios))
    assert found.share_over_one == sum(r > 1 for r in ratios) / len(ratios)


def test_bytes_where_sizes_differ_inside_a_layer(drawn: Draw) -> None:
    trace, requests = drawn(5)
    sizes = np.arange(1, 28, dtype=np.int64)
    prepared = prepare(workload_of_trace(trace).events, Contract())
    found = regime(prepared, Budget("bytes", 90), sizes)
    widths = [
        sum(int(sizes[layer * 9 + expert]) for expert in experts)
        for steps in requests
        for one in steps
        for routed in one.passes
        for layer, experts in enumerate(routed)
    ]
    assert found.union_mean == pytest.approx(sum(widths) / len(widths))
    assert found.ratio_mean == pytest.approx(sum(widths) / 30 / len(widths))


def test_a_layer_that_holds_nothing_has_no_ratio(drawn: Draw) -> None:
    prepared = prepare(workload_of_trace(drawn(2)[0]).events, Contract())
    found = regime(prepared, Budget("fraction", Fraction(2, 27)))
    assert found.as_document()["capacity_min"] == 0
    assert (found.ratio_mean, found.ratio_p95, found.share_over_one) == (None, None, None)


@pytest.mark.parametrize("contract", [Contract("access"), Contract(scope="global")])
def test_other_contracts_have_no_regime(drawn: Draw, contract: Contract) -> None:
    prepared = prepare(workload_of_trace(drawn(2)[0]).events, contract)
    with pytest.raises(InputError, match="per-layer"):
        regime(prepared, Budget("experts", 2))
