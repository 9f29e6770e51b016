# SPDX-License-Identifier: Apache-2.0
"""The two searches that calibration uses, on functions whose least point is known."""

import numpy as np
import pytest
from numpy.typing import NDArray

from pagetier.analysis.synth.minimise import bisect, nelder_mead


def test_the_simplex_finds_the_bottom_of_a_curved_valley() -> None:
    def rosenbrock(p: NDArray[np.float64]) -> float:
        return float((1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2)

    best = nelder_mead(rosenbrock, np.array([-1.2, 1.0]), 0.3, 400)
    assert best == pytest.approx([1, 1], abs=1e-3)


def test_the_simplex_never_ends_above_its_start() -> None:
    calls: list[float] = []

    def rough(p: NDArray[np.float64]) -> float:
        calls.append(float(np.sum(np.abs(np.sin(7 * p)) + p**2)))
        return calls[-1]

    best = nelder_mead(rough, np.array([1.0, 2.0, -1.0]), 0.5, 60)
    assert rough(best) <= calls[0]
    assert rough(best) == min(calls)
    assert len(calls) < 75


def test_halving_finds_where_a_rising_function_meets_its_target() -> None:
    assert bisect(lambda x: x**3, 0.2, 0, 1, 30) == pytest.approx(0.2 ** (1 / 3), abs=1e-8)


@pytest.mark.parametrize(("target", "end"), [(-1.0, 0.0), (9.0, 1.0)])
def test_halving_ends_at_an_end_where_the_target_is_out_of_reach(target: float, end: float) -> None:
    assert bisect(lambda x: x, target, 0, 1, 20) == pytest.approx(end, abs=1e-5)
