# SPDX-License-Identifier: Apache-2.0
"""What is resident against what a simulated LRU would hold."""

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.audit import audit_points, audit_stops, recency
from pagetier.analysis.page_exact import page_exact_facts
from pagetier.analysis.pages import page_layout
from pagetier.analysis.plans import Plan

NOTHING = np.zeros(0, dtype=np.uint32)


def plan_of(steps: list[list[int]], experts: int = 8) -> Plan:
    starts = np.cumsum([0, *map(len, steps)])
    return Plan(
        experts=np.array([expert for step in steps for expert in step], dtype=np.uint32),
        record_start=starts.astype(np.uint64),
        iteration_start=np.arange(len(steps) + 1, dtype=np.uint64),
        num_layers=1,
        num_experts=experts,
    )


@pytest.mark.parametrize(
    ("iterations", "hinted", "stops"),
    [
        (40, False, (9, 19, 29, 39)),
        (10, False, (1, 4, 6, 9)),
        (2, False, (0, 1)),
        (1, False, (0,)),
        (40, True, (39,)),
    ],
)
def test_looks_are_spread_and_end_with_the_plan(
    iterations: int, hinted: bool, stops: tuple[int, ...]
) -> None:
    assert audit_stops(iterations, hinted) == stops


@given(
    st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4), min_size=1, max_size=12),
    st.integers(0, 9),
    st.data(),
)
def test_the_latest_experts_are_what_an_lru_holds(
    steps: list[list[int]], capacity: int, data: st.DataObject
) -> None:
    plan = plan_of(steps)
    done = data.draw(st.integers(0, plan.num_reads))
    cache: OrderedDict[int, None] = OrderedDict()
    for expert in [*plan.experts.tolist(), *plan.experts[:done].tolist()]:
        cache.pop(expert, None)
        cache[expert] = None
        while len(cache) > capacity:
            cache.popitem(last=False)
    assert recency(plan, done)[:capacity] == list(reversed(cache))


def test_a_look_says_what_is_kept_instead() -> None:
    plan = plan_of([[0, 1], [2, 0], [3, 0]])
    # After the second step of the measured pass the order is 0 2 1 3; an LRU of two holds 0 and 2.
    pages = np.array([4, 4, 4, 4, 4, 4, 4, 4])
    audit = {"iterations": [1], "resident_pages": [[4, 0, 1, 3, 0, 2, 0, 0]]}
    points = audit_points(plan, NOTHING, pages, 4096, 2, audit)
    assert points is not None
    (point,) = points
    assert (point.resident_bytes, point.lru_bytes) == (10 * 4096, 8 * 4096)
    assert (point.overlap_bytes, point.overlap) == (5 * 4096, 5 / 8)
    assert point.same_size_overlap == 5 / 8, "ten pages hold two experts of four"
    assert (point.missing_bytes, point.kept_instead_bytes) == (3 * 4096, 5 * 4096)
    assert point.never_read_bytes == 2 * 4096, "expert 5, which the plan never reads"
    assert point.partial_experts == 3
    assert point.kept_instead_age == 3 / 2, "expert 3, fourth in the order, by a size of two"
    assert point.kept_instead_reads == pytest.approx((3 * 1 + 2 * 0) / 5)
    assert point.missing_reads == 1


def test_an_arena_is_no_part_of_the_comparison() -> None:
    plan = plan_of([[0, 1], [2, 0]])
    audit = {"iterations": [1], "resident_pages": [[0, 4, 4, 0, 0, 0, 0, 0]]}
    held = np.array([0], dtype=np.uint32)
    points = audit_points(plan, held, np.full(8, 4), 4096, 2, audit)
    assert points is not None and points[0].overlap == 1


def test_a_kernel_that_does_not_say_is_unknown() -> None:
    audit = {"iterations": [0], "resident_pages": [[None, 4]]}
    assert audit_points(plan_of([[0, 1]], 2), NOTHING, np.full(2, 4), 4096, 2, audit) is None


def test_no_capacity_is_no_overlap() -> None:
    audit = {"iterations": [0], "resident_pages": [[0, 4]]}
    points = audit_points(plan_of([[0, 1]], 2), NOTHING, np.full(2, 4), 4096, 0, audit)
    assert points is not None
    assert (points[0].overlap, points[0].kept_instead_age) == (None, None)
    assert points[0].same_size_overlap == 1
    assert points[0].kept_instead_bytes == 4 * 4096


@pytest.mark.parametrize("page_bytes", [4096, 16384, 65536])
def test_page_exact_misses_count_shared_pages_once(page_bytes: int) -> None:
    # Two experts of a page and a half in one file: three pages, the middle one of both.
    size = page_bytes * 3 // 2
    layout = page_layout([[(0, 0, size)], [(0, size, size)]], page_bytes)
    plan = plan_of([[0, 1]], 2)
    facts = page_exact_facts(plan, NOTHING, layout, 0)
    assert facts == {
        "page_bytes": page_bytes,
        "demand_pages": 4,
        "nominal_capacity_pages": 0,
        "nominal_miss_pages": 4,
    }
    assert page_exact_facts(plan, NOTHING, layout, None)["nominal_miss_pages"] == 0
    held = np.array([0], dtype=np.uint32)
    assert page_exact_facts(plan, held, layout, 0)["nominal_miss_pages"] == 2
