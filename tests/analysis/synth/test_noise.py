# SPDX-License-Identifier: Apache-2.0
"""The noise: standard normal, independent by key, and the same bits everywhere."""

import numpy as np
import pytest

from pagetier.analysis.synth.noise import Noise, quantile


def test_the_stream_is_fixed_for_good() -> None:
    """Golden values: they hang on PCG64, SeedSequence and the normal's quantiles alone."""
    values = Noise(3, 1, 4).normal(5)
    words = np.random.PCG64(np.random.SeedSequence((3, 1, 4))).random_raw(2)
    shares = [((int(words[i // 4]) >> (16 * (i % 4))) & 0xFFFF) for i in range(5)]
    assert values.tolist() == quantile((np.array(shares) + 0.25) / 65536).tolist()
    assert values.dtype == np.float32
    assert values.tolist() == pytest.approx(GOLDEN, abs=1e-6)


GOLDEN = [0.6824098, -0.3645205, 0.6238439, 0.5869523, -0.7255341]


def test_values_are_standard_normal() -> None:
    values = Noise(0).normal(400, 500).astype(np.float64)
    assert abs(values.mean()) < 0.01
    assert values.std() == pytest.approx(1, abs=0.01)
    assert np.mean(np.abs(values) < 1) == pytest.approx(0.6827, abs=0.005)
    assert np.mean(values**4) == pytest.approx(3, abs=0.06)


def test_uniform_values_lie_inside_the_unit_interval() -> None:
    values = Noise(0).uniform(1000, 100)
    assert 0 < values.min() < 1e-4
    assert 1 - 1e-4 < values.max() < 1
    assert values.mean() == pytest.approx(0.5, abs=0.005)


def test_streams_of_other_keys_are_unrelated() -> None:
    first, second = Noise(1, 0).normal(50_000), Noise(1, 1).normal(50_000)
    assert abs(float(np.corrcoef(first, second)[0, 1])) < 0.02
    assert Noise(1, 0).normal(50_000).tolist() == first.tolist()


def test_quantiles_are_odd_and_rise() -> None:
    every = quantile((np.arange(1 << 16) + 0.5) / (1 << 16))
    assert np.all(np.diff(every) >= 0)
    assert np.array_equal(every, -every[::-1])
    assert every[-1] == pytest.approx(4.3249, abs=1e-4)
