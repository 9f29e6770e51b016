# SPDX-License-Identifier: Apache-2.0
"""Choosing tokens: the softmax that was asked for, and the same ids for the same seed."""

import numpy as np
import pytest

from pagetier.analysis.errors import InputError
from pagetier.bench.engine.sampling import Chooser, Sampling

LOGITS = np.array([0.0, 1.0, -2.0, 1.0, 0.5], dtype=np.float32)


def draws(sampling: Sampling, count: int) -> list[int]:
    choose = Chooser(sampling)
    return [choose(LOGITS) for _ in range(count)]


def test_greedy_takes_the_lowest_of_the_likeliest() -> None:
    assert draws(Sampling(), 3) == [1, 1, 1]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_draws_follow_the_softmax(temperature: float) -> None:
    weights = np.exp(LOGITS.astype(np.float64) / temperature)
    expected = weights / weights.sum()
    count = 20_000
    found = np.bincount(draws(Sampling(temperature, 1), count), minlength=5) / count
    # Five standard deviations of a share of so many draws.
    assert np.abs(found - expected).max() < 5 * np.sqrt(0.25 / count)


def test_a_seed_is_a_sequence() -> None:
    assert draws(Sampling(1.0, 4), 50) == draws(Sampling(1.0, 4), 50)
    assert draws(Sampling(1.0, 4), 50) != draws(Sampling(1.0, 5), 50)


def test_extreme_logits_neither_overflow_nor_miss() -> None:
    choose = Chooser(Sampling(1e-3, 0))
    assert choose(np.array([-3e38, 3e38, 0], dtype=np.float32)) == 1
    assert {choose(np.array([5.0], dtype=np.float32)) for _ in range(100)} == {0}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0, 0)])
def test_what_is_no_number_is_refused(bad: float, sampling: Sampling) -> None:
    with pytest.raises(InputError, match="not finite"):
        Chooser(sampling)(np.array([0, bad], dtype=np.float32))
