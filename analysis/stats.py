# SPDX-License-Identifier: Apache-2.0
"""What few repetitions can say, and what they cannot.

Values are of independent repetitions: the iterations of one pass follow from one another, so they
are one value (their median), not many.  A spread is (max - min) / median.  No interval is given
from fewer than `MIN_FOR_INTERVAL` values, nothing is decided from one value, and what overlaps is
undecided.  Random resampling has a fixed seed: the same values give the same figures anywhere.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = [
    "CONFIDENCE",
    "MIN_FOR_DRIFT",
    "MIN_FOR_INTERVAL",
    "Drift",
    "Interval",
    "Ratio",
    "drift",
    "median_interval",
    "paired_ratio",
    "relative_spread",
    "unpaired_ratio",
]

Float64 = npt.NDArray[np.float64]

CONFIDENCE = 0.95
# The least and the greatest of n values enclose the median of what they were drawn from with
# probability 1 - 2 * 0.5^n: from six values on that is more than 95 in 100, before that no interval
# of whatever kind is worth its name.
MIN_FOR_INTERVAL = 6
_RESAMPLES = 4000
_SEED = 20240229

# Below a dozen points a rank correlation moves with every one of them.
MIN_FOR_DRIFT = 12
_DRIFT_CHANCE = 0.01
_DRIFT_CHANGE = 0.05


def relative_spread(values: Sequence[float]) -> float | None:
    """(max - min) / median; None of fewer than two values or of a median of 0."""
    if len(values) < 2:
        return None
    median = statistics.median(values)
    return (max(values) - min(values)) / median if median else None


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds of a median, and how often such bounds hold."""

    low: float
    high: float
    confidence: float


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Percentile bootstrap of the median; None of fewer than `MIN_FOR_INTERVAL` values."""
    if len(values) < MIN_FOR_INTERVAL:
        return None
    sample = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(_SEED)
    medians = np.median(sample[rng.integers(len(sample), size=(_RESAMPLES, len(sample)))], axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Interval(float(low), float(high), confidence)


# ---- ratios -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ratio:
    """One arm over another.

    `min` and `max` are of the paired ratios; of unpaired arms, the least over the greatest and the
    greatest over the least value.  `direction` is None when the arms overlap or one of them is a
    single value: undecided.  `chance` is how often arms without any difference would lie apart so.
    """

    median: float
    min: float
    max: float
    count: int
    interval: Interval | None
    direction: str | None
    chance: float | None

    @property
    def verdict(self) -> str:
        """`higher` or `lower`, called a hint where chance alone would do it 1 time in 20 or more;
        else `undecided`."""
        if self.direction is None or self.chance is None:
            return "undecided" if self.count > 1 else "undecided (n=1)"
        if self.chance <= 1 - CONFIDENCE:
            return self.direction
        return f"{self.direction} (a hint: chance 1 in {1 / self.chance:.0f})"


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio | None:
    """Median of the ratios of arms that were measured side by side, pair by pair.

    Not the ratio of the medians: what disturbs both of a pair drops out.  None without pairs or
    with a denominator of 0.
    """
    if len(numerators) != len(denominators):
        raise ValueError(f"{len(numerators)} values paired with {len(denominators)}")
    if not numerators or 0 in denominators:
        return None
    ratios = [above / below for above, below in zip(numerators, denominators, strict=True)]
    direction = _side(min(ratios), max(ratios)) if len(ratios) > 1 else None
    return Ratio(
        median=statistics.median(ratios),
        min=min(ratios),
        max=max(ratios),
        count=len(ratios),
        interval=median_interval(ratios),
        direction=direction,
        chance=None if direction is None else 2 * 0.5 ** len(ratios),
    )


def unpaired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio | None:
    """Ratio of the medians of arms measured at different times, with the widest it can be.

    None without values or with a denominator of 0; `count` is of the smaller arm.
    """
    if not numerators or not denominators or min(denominators) <= 0:
        return None
    count = min(len(numerators), len(denominators))
    low, high = min(numerators) / max(denominators), max(numerators) / min(denominators)
    direction = _side(low, high) if count > 1 else None
    total = len(numerators) + len(denominators)
    return Ratio(
        median=statistics.median(numerators) / statistics.median(denominators),
        min=low,
        max=high,
        count=count,
        interval=_ratio_interval(numerators, denominators) if count >= MIN_FOR_INTERVAL else None,
        direction=direction,
        chance=None if direction is None else 2 / math.comb(total, len(numerators)),
    )


def _side(low: float, high: float) -> str | None:
    if low > 1:
        return "higher"
    return "lower" if high < 1 else None


def _ratio_interval(numerators: Sequence[float], denominators: Sequence[float]) -> Interval:
    rng = np.random.default_rng(_SEED)
    above, below = (
        np.median(sample[rng.integers(len(sample), size=(_RESAMPLES, len(sample)))], axis=1)
        for sample in (np.asarray(numerators, np.float64), np.asarray(denominators, np.float64))
    )
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(above / below, [tail, 1 - tail])
    return Interval(float(low), float(high), CONFIDENCE)


# ---- drift --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drift:
    """Whether a series still moves: the medians of its last third over its first, less 1, and the
    rank correlation with time, with the chance of so much of it in a series that goes nowhere."""

    change: float | None
    correlation: float | None
    chance: float | None
    count: int

    @property
    def state(self) -> str:
        """`drifts` when the change is beyond 5 % and chance would do it in less than 1 of 100;
        `settled` when not; `undecided` of too few points."""
        if self.chance is None or self.change is None:
            return "undecided"
        moves = abs(self.change) > _DRIFT_CHANGE and self.chance < _DRIFT_CHANCE
        return "drifts" if moves else "settled"


def drift(series: Sequence[float] | Float64) -> Drift:
    """The drift of values in the order of time.

    Neighbours that resemble each other count for less than their number: the chance is that of
    n (1 - r) / (1 + r) independent points, r the correlation of neighbours once the trend is out.
    """
    values = np.asarray(series, dtype=np.float64)
    if len(values) < MIN_FOR_DRIFT:
        return Drift(None, None, None, len(values))
    third = len(values) // 3
    first, last = float(np.median(values[:third])), float(np.median(values[-third:]))
    time, ranks = np.arange(len(values), dtype=np.float64), _ranks(values)
    correlation = _correlation(ranks, time)
    if correlation is None:  # all values are equal
        return Drift(0.0, 0.0, 1.0, len(values))
    rest = ranks - correlation * ranks.std() / time.std() * (time - time.mean())
    neighbours = max(_correlation(rest[:-1], rest[1:]) or 0.0, 0.0)
    effective = len(values) * (1 - neighbours) / (1 + neighbours)
    chance = math.erfc(abs(correlation) * math.sqrt(max(effective - 1, 0)) / math.sqrt(2))
    return Drift(last / first - 1 if first else None, correlation, chance, len(values))


def _ranks(values: Float64) -> Float64:
    """Ranks from 0; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Float64 = (ends - (counts + 1) / 2)[inverse.reshape(-1)]
    return ranks


def _correlation(left: Float64, right: Float64) -> float | None:
    left, right = left - left.mean(), right - right.mean()
    norm = math.sqrt(float(left @ left) * float(right @ right))
    return float(left @ right) / norm if norm else None
