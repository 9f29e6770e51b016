# SPDX-License-Identifier: Apache-2.0
import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagetier.analysis.stats import (
    CONFIDENCE,
    MIN_FOR_DRIFT,
    MIN_FOR_INTERVAL,
    drift,
    median_interval,
    paired_ratio,
    relative_spread,
    unpaired_ratio,
)

positive = st.floats(min_value=0.01, max_value=1e6)


def test_spread_is_the_range_over_the_median() -> None:
    assert relative_spread([1.0, 4.0, 2.0]) == 1.5


@pytest.mark.parametrize("values", [[], [3.0], [-1.0, 0.0, 5.0]])
def test_no_spread_of_one_value_or_of_a_median_of_0(values: list[float]) -> None:
    assert relative_spread(values) is None


def test_no_interval_of_too_few_values() -> None:
    for count in range(MIN_FOR_INTERVAL):
        assert median_interval([1.0 + n for n in range(count)]) is None
    assert median_interval([1.0 + n for n in range(MIN_FOR_INTERVAL)]) is not None


def test_the_least_number_is_where_the_range_encloses_the_median_often_enough() -> None:
    def enclosed(count: int) -> float:
        """By enumeration: not all values on the same side of the median."""
        sides = list(itertools.product((0, 1), repeat=count))
        return sum(0 < sum(side) < count for side in sides) / len(sides)

    assert enclosed(MIN_FOR_INTERVAL) >= CONFIDENCE > enclosed(MIN_FOR_INTERVAL - 1)


@settings(deadline=None)
@given(st.lists(positive, min_size=MIN_FOR_INTERVAL, max_size=30))
def test_an_interval_lies_within_the_values_and_around_their_median(values: list[float]) -> None:
    found = median_interval(values)
    assert found is not None
    assert min(values) <= found.low <= found.high <= max(values)
    median = statistics.median(values)
    assert found.low <= median * (1 + 1e-9) and found.high >= median * (1 - 1e-9)
    assert found == median_interval(values)


def test_an_interval_holds_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(100):
        found = median_interval(rng.normal(5.0, 1.0, 15).tolist())
        assert found is not None
        held += found.low <= 5.0 <= found.high
    assert 88 <= held <= 100


# ---- ratios -------------------------------------------------------------------------------------


def test_a_paired_ratio_is_the_median_of_ratios_not_the_ratio_of_medians() -> None:
    # The host slowed down threefold between the pairs; each pair shows the same tenth.
    found = paired_ratio([1.1, 2.2, 9.9], [1.0, 2.0, 9.0])
    assert found is not None
    assert found.median == pytest.approx(1.1)
    assert found.count == 3
    odd = paired_ratio([2.0, 2.0, 9.0], [1.0, 4.0, 9.0])
    assert odd is not None
    assert odd.median == 1.0  # the medians' ratio would be 0.5


def test_a_single_pair_decides_nothing_and_has_no_interval() -> None:
    found = paired_ratio([3.0], [1.0])
    assert found is not None
    assert (found.interval, found.direction, found.verdict) == (None, None, "undecided (n=1)")


def test_pairs_on_both_sides_of_one_are_undecided() -> None:
    found = paired_ratio([1.1, 0.9, 1.2], [1.0, 1.0, 1.0])
    assert found is not None and found.verdict == "undecided"


@pytest.mark.parametrize("count", [2, 3, 5, 6])
def test_the_chance_of_pairs_on_one_side(count: int) -> None:
    found = paired_ratio([1.0 + n for n in range(1, count + 1)], [1.0] * count)
    sides = list(itertools.product((0, 1), repeat=count))
    assert found is not None
    assert found.chance == sum(sum(side) in (0, count) for side in sides) / len(sides)
    hint = found.chance > 1 - CONFIDENCE
    assert found.verdict == (
        "higher (a hint: chance 1 in %g)" % (1 / found.chance) if hint else "higher"
    )


@pytest.mark.parametrize(("above", "below"), [(2, 2), (3, 3), (2, 4), (4, 4)])
def test_the_chance_of_arms_apart(above: int, below: int) -> None:
    found = unpaired_ratio([9.0 + n for n in range(above)], [1.0 + n for n in range(below)])
    ranks = range(above + below)
    splits = list(itertools.combinations(ranks, above))
    apart = [s for s in splits if max(s) == above - 1 or min(s) == below]
    assert found is not None
    assert found.direction == "higher"
    assert found.chance == pytest.approx(len(apart) / len(splits))


def test_arms_that_overlap_are_undecided() -> None:
    found = unpaired_ratio([1.0, 3.0], [2.0, 4.0])
    assert found is not None
    assert (found.direction, found.verdict) == (None, "undecided")
    assert (found.min, found.max) == (0.25, 1.5)


def test_an_arm_of_one_value_decides_nothing() -> None:
    found = unpaired_ratio([9.0], [1.0, 2.0, 3.0])
    assert found is not None
    assert (found.interval, found.verdict) == (None, "undecided (n=1)")


def test_ratios_with_nothing_below_are_none() -> None:
    assert paired_ratio([], []) is None
    assert paired_ratio([1.0], [0.0]) is None
    assert unpaired_ratio([1.0], []) is None
    assert unpaired_ratio([1.0], [0.0, 1.0]) is None


def test_unequal_pairs_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="2 values paired with 1"):
        paired_ratio([1.0, 2.0], [1.0])


@settings(deadline=None)
@given(st.lists(positive, min_size=6, max_size=12), st.lists(positive, min_size=6, max_size=12))
def test_an_unpaired_ratio_lies_in_its_range(above: list[float], below: list[float]) -> None:
    found = unpaired_ratio(above, below)
    assert found is not None and found.interval is not None
    assert found.min <= found.median * (1 + 1e-9) and found.median <= found.max * (1 + 1e-9)
    assert found.min <= found.interval.low <= found.interval.high <= found.max


# ---- drift --------------------------------------------------------------------------------------


def test_a_trend_drifts() -> None:
    found = drift([1.0 + 0.01 * n for n in range(60)])
    assert found.state == "drifts"
    assert found.correlation == pytest.approx(1.0)
    assert found.change == pytest.approx((1.495 / 1.095) - 1)


def test_a_trend_too_small_to_matter_is_settled() -> None:
    found = drift([1.0 + 0.0001 * n for n in range(60)])
    assert found.state == "settled"
    assert found.chance is not None and found.chance < 1e-6


def test_too_few_values_are_undecided() -> None:
    assert drift([float(n) for n in range(MIN_FOR_DRIFT - 1)]).state == "undecided"
    assert drift([1.0 + n for n in range(MIN_FOR_DRIFT)]).state == "drifts"


def test_equal_values_are_settled() -> None:
    assert drift([2.0] * 20).state == "settled"


def test_noise_that_resembles_its_neighbour_is_rarely_called_a_drift() -> None:
    rng = np.random.default_rng(5)
    called = 0
    for _ in range(200):
        values, level = [], 0.0
        for step in rng.normal(0, 0.2, 200):
            level = 0.8 * level + step
            values.append(math.exp(level))
        called += drift(values).state == "drifts"
    assert called <= 10


def test_ties_share_their_rank() -> None:
    # Two levels, the higher in the second half: rank correlation with time by hand.
    found = drift([1.0] * 10 + [2.0] * 10)
    ranks, time = [4.5] * 10 + [14.5] * 10, list(range(20))
    assert found.correlation == pytest.approx(statistics.correlation(ranks, time))
