# SPDX-License-Identifier: Apache-2.0
"""Least values of functions without derivatives: a simplex in several unknowns, halving in one."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["bisect", "nelder_mead"]

Float64 = npt.NDArray[np.float64]


def nelder_mead(
    loss: Callable[[Float64], float], start: Float64, step: float, evaluations: int
) -> Float64:
    """The best point that a simplex of this first size finds in about that many evaluations."""
    points = np.vstack([start, start + step * np.eye(len(start))])
    losses = np.array([loss(point) for point in points])
    spent = len(points)
    while spent < evaluations:
        order = np.argsort(losses, kind="stable")
        points, losses = points[order], losses[order]
        centre = points[:-1].mean(axis=0)
        candidate, value, cost = _candidate(loss, centre, points[-1], losses)
        spent += cost
        if value < losses[-1]:
            points[-1], losses[-1] = candidate, value
            continue
        points[1:] = (points[1:] + points[0]) / 2
        losses[1:] = [loss(point) for point in points[1:]]
        spent += len(points) - 1
    return np.asarray(points[np.argmin(losses)], dtype=np.float64)


def _candidate(
    loss: Callable[[Float64], float], centre: Float64, worst: Float64, losses: Float64
) -> tuple[Float64, float, int]:
    """What is to replace the worst point: its reflection, or one further out or further in."""
    away = centre - worst
    reflected = centre + away
    value = loss(reflected)
    if losses[0] <= value < losses[-2]:
        return reflected, value, 1
    other = centre + (2 * away if value < losses[0] else -0.5 * away)
    if losses[-2] <= value < losses[-1]:
        other = centre + 0.5 * away
    other_value = loss(other)
    return (other, other_value, 2) if other_value < value else (reflected, value, 2)


def bisect(
    measured: Callable[[float], float], target: float, low: float, high: float, halvings: int
) -> float:
    """Where a function that rises from `low` to `high` reaches `target`; an end if it does not."""
    for _ in range(halvings):
        middle = (low + high) / 2
        if measured(middle) < target:
            low = middle
        else:
            high = middle
    return (low + high) / 2
