# SPDX-License-Identifier: Apache-2.0
"""How values are shown; a missing one is n/a, a value of a single repetition says n=1."""

from collections.abc import Callable
from typing import Any

from pagetier.analysis.derive import Spread
from pagetier.analysis.stats import Ratio
from pagetier.analysis.units import format_bytes

__all__ = [
    "capacity",
    "change",
    "factor",
    "percent",
    "plain",
    "ratio",
    "size",
    "spread_of",
    "three_digits",
]

MISSING = "n/a"


def _known(show: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: MISSING if value is None else show(value)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


plain = _known(_plain)
"""Text as it is, whole numbers with thousands apart."""

three_digits = _known(lambda value: f"{value:.3g}")
"""Three significant digits."""

percent = _known(lambda value: f"{value:.1%}")
"""A share."""

change = _known(lambda value: f"{value:+.1%}")
"""A relative difference with its sign."""

factor = _known(lambda value: f"{value:.2f}x")
"""A ratio."""

size = _known(format_bytes)
"""Bytes in decimal units."""


def capacity(value: int | None) -> str:
    """A capacity: none is no limit."""
    return "no limit" if value is None else format_bytes(value)


def spread_of(show: Callable[[Any], str]) -> Callable[[Any], str]:
    """Median and least to greatest, each by `show`; of one value it says so."""

    def text(spread: Spread | None) -> str:
        if spread is None:
            return MISSING
        if spread.count == 1:
            return f"{show(spread.median)} (n=1)"
        return f"{show(spread.median)} [{show(spread.min)}-{show(spread.max)}]"

    return text


def ratio(value: Ratio | None) -> str:
    """A ratio with its range, its interval where there is one, and the verdict."""
    if value is None:
        return MISSING
    text = f"{value.median:.3f}x"
    if value.count > 1:
        text += f" [{value.min:.3f}-{value.max:.3f}]"
    if value.interval is not None:
        bounds = f"{value.interval.low:.3f}-{value.interval.high:.3f}"
        text += f", {value.interval.confidence:.0%} interval {bounds}"
    return f"{text}, {value.verdict}"
