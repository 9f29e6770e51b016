# SPDX-License-Identifier: Apache-2.0
"""Arms: the repetitions of one cell specification, and their figures.

A figure of an arm is one value per kept repetition; as soon as one of them lacks it the arm has
none.  What reclaimed pages belongs to the arm: cells under MGLRU and under classic LRU are two.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any

from pagetier.analysis.counters import number
from pagetier.analysis.derive import CellFacts, Spread, derive_cell
from pagetier.analysis.naming import prefetch_name, reclaim_name, tier_name
from pagetier.analysis.report import formats
from pagetier.analysis.report.reading import Point, Study
from pagetier.analysis.results import Cell
from pagetier.analysis.stats import Ratio, paired_ratio, unpaired_ratio

__all__ = [
    "Arm",
    "FigureOf",
    "amplification",
    "arm_names",
    "arms_of",
    "device_bytes",
    "effective_capacity",
    "in_extent_amplification",
    "mean_of",
    "nominal_bytes",
    "over_read_share",
    "place",
    "ratio_of",
    "seconds",
    "together",
    "tokens_seconds",
]

FigureOf = Callable[[CellFacts], float | None]


@dataclass(frozen=True, eq=False)
class Arm:
    """`spec` is the first cell's; `points` are its kept repetitions in the order of repetition."""

    spec: Mapping[str, Any]
    reclaim: str | None
    points: tuple[Point, ...]
    cells: tuple[Cell, ...]

    @property
    def capacity_bytes(self) -> int | None:
        value = self.spec.get("capacity_bytes")
        return value if isinstance(value, int) else None

    @property
    def mechanism(self) -> str:
        return str(self.spec.get("mechanism"))

    @property
    def n(self) -> int:
        return len(self.points)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Remarks on its kept cells."""
        return tuple(dict.fromkeys(label for point in self.points for label in point.cell.labels))

    @cached_property
    def rejected(self) -> tuple[CellFacts, ...]:
        """What its rejected cells would have said: for pictures, where they are marked as such."""
        return tuple(derive_cell(cell) for cell in self.cells if cell.state == "rejected")

    def values(self, figure: FigureOf) -> list[float]:
        """One per kept repetition; empty when one of them lacks the figure."""
        return self.values_of(lambda point: figure(point.facts))

    def values_of(self, figure: Callable[[Point], float | None]) -> list[float]:
        """The same of a figure that needs the whole cell."""
        values = [figure(point) for point in self.points]
        known = [value for value in values if value is not None]
        return known if len(known) == len(values) else []

    def spread(self, figure: FigureOf) -> Spread | None:
        return Spread.of(self.values(figure))

    def median(self, figure: FigureOf) -> float | None:
        return self.median_of(lambda point: figure(point.facts))

    def median_of(self, figure: Callable[[Point], float | None]) -> float | None:
        """The median of a figure that needs the whole cell."""
        spread = Spread.of(self.values_of(figure))
        return None if spread is None else spread.median

    def by_repetition(self, figure: FigureOf) -> dict[Any, float]:
        """The values of `values` by the number of their repetition."""
        numbers = [point.cell.spec.get("repetition") for point in self.points]
        values = self.values(figure)
        return dict(zip(numbers, values, strict=True)) if values else {}


def arms_of(study: Study) -> list[Arm]:
    """Every arm of a study, those without a kept cell included."""
    points = {point.cell.id: point for point in study.points}
    groups: dict[tuple[str, str | None], list[Cell]] = {}
    for cell in study.results.cells:
        reclaim = reclaim_name(cell, study.results.host)
        groups.setdefault((_key(cell.spec, ()), reclaim), []).append(cell)
    arms = [
        Arm(
            spec=cells[0].spec,
            reclaim=reclaim,
            points=tuple(
                points[cell.id]
                for cell in sorted(cells, key=lambda cell: number(cell.spec, "repetition") or 0)
                if cell.id in points
            ),
            cells=tuple(cells),
        )
        for (_, reclaim), cells in groups.items()
    ]
    return sorted(arms, key=place)


def place(arm: Arm) -> tuple[Any, ...]:
    """Unlimited arms first, then each mechanism from large to small."""
    mechanism = arm.mechanism
    return (
        mechanism != "none",
        mechanism,
        -(arm.capacity_bytes or 0),
        _key(arm.spec, ()),
        str(arm.reclaim),
    )


def together(arms: Iterable[Arm], *but: str) -> list[list[Arm]]:
    """Arms with a kept cell that differ in nothing but the keys of the spec named, in groups.

    `reclaim` is such a key too; it stands for the knob `mglru`, which says what was asked for.
    """
    groups: dict[str, list[Arm]] = {}
    for arm in arms:
        if arm.n:
            reclaim = None if "reclaim" in but else arm.reclaim
            groups.setdefault(f"{_key(arm.spec, ('mglru', *but))} {reclaim}", []).append(arm)
    return list(groups.values())


def _key(spec: Mapping[str, Any], but: tuple[str, ...]) -> str:
    kept = {key: value for key, value in spec.items() if key not in ("repetition", *but)}
    return json.dumps(kept, sort_keys=True)


# ---- names --------------------------------------------------------------------------------------


def _tier(arm: Arm) -> str:
    arena = arm.spec.get("arena")
    table = PurePath(str(arena.get("table"))).name if isinstance(arena, Mapping) else "oracle"
    return tier_name(arm.spec) + ("" if table == "oracle" else f" by {table}")


def _of_spec(key: str, word: str = "") -> Callable[[Arm], str]:
    """The value after a word; nothing where there is none."""

    def name(arm: Arm) -> str:
        value = arm.spec.get(key)
        return "" if value is None else f"{word} {value}".strip()

    return name


def _spine(arm: Arm) -> str:
    return f"spine {formats.size(arm.spec['spine_bytes'])}" if arm.spec.get("spine_bytes") else ""


_NAMED: tuple[tuple[str, Callable[[Arm], str]], ...] = (
    ("tier", _tier),
    ("mechanism", lambda arm: arm.mechanism),
    ("capacity_bytes", lambda arm: formats.capacity(arm.capacity_bytes)),
    ("reclaim", lambda arm: arm.reclaim or "reclaim unknown"),
    ("pool", lambda arm: PurePath(str(arm.spec.get("pool"))).name),
    ("layout", _of_spec("layout")),
    ("advice", _of_spec("advice", "advice")),
    ("read", _of_spec("read")),
    ("prefetch", lambda arm: f"prefetch {prefetch_name(arm.spec) or 'none'}"),
    ("prompt", _of_spec("prompt", "prompt")),
    ("threads", _of_spec("threads", "threads")),
    ("barrier", _of_spec("barrier", "barrier")),
    ("headroom", _of_spec("headroom", "headroom")),
    ("read_ahead_kb", _of_spec("read_ahead_kb", "read_ahead_kb")),
    ("spine_bytes", _spine),
    ("balloon_order", _of_spec("balloon_order")),
    ("balloon_huge_pages", _of_spec("balloon_huge_pages", "huge pages")),
)


def arm_names(arms: Iterable[Arm], *but: str) -> Callable[[Arm], str]:
    """A short name for each arm: its mechanism, and what differs among `arms`; the keys in `but`
    have columns of their own."""
    arms = list(arms)
    told = [
        name
        for key, name in _NAMED
        if key not in but and (key == "mechanism" or len({name(arm) for arm in arms} - {""}) > 1)
    ]
    return lambda arm: ", ".join(text for name in told if (text := name(arm)))


# ---- figures ------------------------------------------------------------------------------------


def seconds(facts: CellFacts) -> float | None:
    """Median time of an iteration."""
    return None if facts.iteration_s is None else facts.iteration_s.median


def tokens_seconds(facts: CellFacts) -> float | None:
    """Time per accepted token."""
    return facts.s_per_accepted_token


def mean_of(figure: Callable[[CellFacts], int | None]) -> FigureOf:
    """Mean per iteration of a total of the pass."""
    return lambda facts: facts.per_iteration(figure(facts))


device_bytes: FigureOf = mean_of(lambda facts: facts.device_bytes)
"""Bytes that the device read per iteration, for anyone."""

nominal_bytes: FigureOf = mean_of(lambda facts: facts.nominal_miss_bytes)
"""Simulated misses per iteration at C, in bytes."""


def amplification(facts: CellFacts) -> float | None:
    return facts.amplification


def in_extent_amplification(facts: CellFacts) -> float | None:
    return facts.in_extent_amplification


def over_read_share(facts: CellFacts) -> float | None:
    return facts.over_read_share


def effective_capacity(facts: CellFacts) -> float | None:
    return facts.effective_capacity.bytes


def ratio_of(above: Arm, below: Arm, figure: FigureOf) -> Ratio | None:
    """One arm over another, repetition by repetition where both were shuffled into the same round.

    Boots come after all else, so an arm of a boot has no partner of its time.
    """
    if "boot" in (above.mechanism, below.mechanism) and above.mechanism != below.mechanism:
        return unpaired_ratio(above.values(figure), below.values(figure))
    left, right = above.by_repetition(figure), below.by_repetition(figure)
    shared = [number for number in left if number in right]
    return paired_ratio([left[n] for n in shared], [right[n] for n in shared])
