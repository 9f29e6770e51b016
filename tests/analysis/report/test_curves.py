# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.report.curves import falling_envelope, value_at, where_it_falls_to

Points = list[tuple[float, float]]

points = st.dictionaries(
    st.integers(1, 50).map(float), st.integers(1, 40).map(float), min_size=1, max_size=8
).map(lambda found: list(found.items()))

CURVE: Points = [(64.0, 2.76), (128.0, 1.95), (256.0, 1.37)]


def test_between_points_the_curve_is_straight() -> None:
    assert value_at(CURVE, 96.0) == pytest.approx((2.76 + 1.95) / 2)
    assert value_at(CURVE, 128.0) == 1.95


@pytest.mark.parametrize("x", [63.9, 256.1])
def test_outside_of_the_points_there_is_no_curve(x: float) -> None:
    assert value_at(CURVE, x) is None


def test_where_it_falls_to() -> None:
    assert where_it_falls_to(CURVE, 1.95) == 128.0
    assert where_it_falls_to(CURVE, 2.0) == pytest.approx(64 + 64 * (2.76 - 2.0) / (2.76 - 1.95))
    assert where_it_falls_to(CURVE, 5.0) == 64.0
    assert where_it_falls_to(CURVE, 1.0) is None
    assert where_it_falls_to([], 1.0) is None


def test_a_point_above_its_smaller_neighbour_counts_against_it() -> None:
    # 2 s at 10, but 3 s at 20: what holds from 10 on is 3 s.
    assert falling_envelope([(10.0, 2.0), (20.0, 3.0), (30.0, 1.0)]) == [
        (10.0, 3.0),
        (20.0, 3.0),
        (30.0, 1.0),
    ]
    assert where_it_falls_to([(10.0, 2.0), (20.0, 3.0), (30.0, 1.0)], 2.0) == 25.0


@given(points, st.integers(1, 40).map(float))
def test_the_answer_is_measured_ground_and_meets_the_target_from_there_on(
    found: Points, target: float
) -> None:
    x = where_it_falls_to(found, target)
    envelope = falling_envelope(found)
    if x is None:
        assert max(found)[1] > target
        return
    assert min(found)[0] <= x <= max(found)[0]
    here = value_at(envelope, x)
    assert here is not None and here <= target + 1e-9
    assert all(y <= target for at, y in found if at >= x)
    # Nothing smaller does: just below, the envelope is above the target.
    below = value_at(envelope, x - 1e-3)
    assert below is None or below > target
