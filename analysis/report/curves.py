# SPDX-License-Identifier: Apache-2.0
"""Curves through measured points: straight between neighbours, and never beyond the ends.

A falling curve that bends upwards (time or bytes against capacity) lies below its chords, so that
what is read off a chord errs on the side of more.
"""

from collections.abc import Sequence
from itertools import pairwise

__all__ = ["CurvePoint", "falling_envelope", "value_at", "where_it_falls_to"]

CurvePoint = tuple[float, float]


def falling_envelope(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """By x; each y the greatest at its x or beyond: the least falling curve above all points."""
    envelope: list[CurvePoint] = []
    highest = float("-inf")
    for x, y in sorted(points, reverse=True):
        highest = max(highest, y)
        envelope.append((x, highest))
    return envelope[::-1]


def value_at(points: Sequence[CurvePoint], x: float) -> float | None:
    """y of the curve at `x`; None outside of the measured range."""
    points = sorted(points)
    for point in points:
        if point[0] == x:
            return point[1]
    for (left, above), (right, below) in pairwise(points):
        if left < x < right:
            return above + (below - above) * (x - left) / (right - left)
    return None


def where_it_falls_to(points: Sequence[CurvePoint], target: float) -> float | None:
    """Least x from which the falling envelope of `points` is at most `target`.

    None when it never is; the least measured x when it is there already.
    """
    envelope = falling_envelope(points)
    if not envelope or envelope[-1][1] > target:
        return None
    found = envelope[-1][0]
    for (left, above), (right, below) in pairwise(envelope):
        if above > target >= below:
            found = left + (right - left) * (above - target) / (above - below)
    return envelope[0][0] if envelope[0][1] <= target else found
