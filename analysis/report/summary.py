# SPDX-License-Identifier: Apache-2.0
"""What was found, what is only hinted at, what was not found or not asked, in plain words.

Ratios come from the sections' own tables, so that it cannot say anything else than they do; the
confidence of each is its verdict (see `stats`): found where chance would do it in less than 1 of 20
campaigns, a hint where it would do it more often, undecided where arms overlap or n = 1.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pagetier.analysis.report import formats
from pagetier.analysis.report.arms import (
    Arm,
    arm_names,
    arms_of,
    in_extent_amplification,
    over_read_share,
)
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import Section
from pagetier.analysis.stats import CONFIDENCE, Ratio, paired_ratio

__all__ = ["Summary", "summary_of"]

# A median this near to the simulated LRU is called the same: whole experts against pages.
_NEAR = 0.10
# Of over-read: below it readahead at the edges of experts is no matter.
_MUCH = 0.05
# Of one comparison and certainty; the rest is in its table.
_SHOWN = {"found": 6, "hints": 4, "unknown": 2}

Row = Mapping[str, Any]
_Line = tuple[str, str]  # one of the lists below, and a sentence


@dataclass(frozen=True, slots=True)
class Summary:
    """Sentences, each with the evidence it rests on."""

    cells: str
    found: tuple[str, ...]
    hints: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The ratios of a section's table in words: what is compared, by which column."""

    section: str
    column: str
    words: Callable[[Row, str], str]
    absent: str


def _at(row: Row) -> str:
    return formats.capacity(row["capacity_bytes"])


_COMPARISONS = (
    _Comparison(
        "reclaim",
        "ratio",
        lambda row, x: f"{row['arm']} at {_at(row)}: MGLRU read {x} what classic LRU read",
        "MGLRU and classic LRU were not both measured: nothing is said of reclaim.",
    ),
    _Comparison(
        "equal-memory",
        "time_ratio",
        lambda row, x: f"{row['arm']} at {_at(row)}: an iteration took {x} the page cache's time",
        "Tiers were not compared at equal memory.",
    ),
    _Comparison(
        "equal-memory",
        "device_ratio",
        lambda row, x: f"{row['arm']} at {_at(row)}: read {x} what the page cache read",
        "",
    ),
    _Comparison(
        "prefetch",
        "time_ratio",
        lambda row, x: (
            f"prefetch {row['condition']} at {_at(row)}: an iteration took {x} the time without"
            " hints"
        ),
        "No prefetch was measured.",
    ),
    _Comparison(
        "agreement",
        "device_ratio",
        lambda row, x: (
            f"{row['pair']} at {_at(row)} under {row['reclaim']}: the first read {x} what the"
            " second read"
        ),
        "Only one mechanism of capacity was measured: whether others agree is open.",
    ),
)


def summary_of(study: Study, told: Sequence[Section]) -> Summary:
    """Of the sections of a report, in their words."""
    by_key = {section.key: section for section in told}
    lines = [*_against_lru(study), *_over_read(study), *_moving(by_key.get("drift"))]
    for comparison in _COMPARISONS:
        section = by_key.get(comparison.section)
        if section is not None:
            lines += _compared(comparison, section)
        elif comparison.absent:
            lines.append(("unknown", comparison.absent))
    lines += [("unknown", text) for text in _gaps(study)]
    validity = by_key.get("validity")
    return Summary(
        cells=validity.prose[0] if validity is not None and validity.prose else "",
        found=tuple(text for kind, text in lines if kind == "found"),
        hints=tuple(text for kind, text in lines if kind == "hints"),
        unknown=tuple(text for kind, text in lines if kind == "unknown"),
    )


# ---- against the simulated LRU -------------------------------------------------------------------


def _against_lru(study: Study) -> Iterator[_Line]:
    """In-extent bytes over simulated misses: over-read says nothing of what was evicted."""
    arms = _unhinted(study)
    known = [(arm, median) for arm in arms if (median := arm.median(in_extent_amplification))]
    if len(known) < len(arms):
        few = _arms(len(arms) - len(known))
        yield "unknown", f"{few} without in-extent bytes: readahead and reclaim not told apart."
    near = [arm for arm, median in known if abs(median - 1) <= _NEAR]
    if near:
        yield (
            "found" if all(arm.n > 1 for arm in near) else "hints",
            f"Within a tenth of the misses of a simulated exact LRU of their C: {len(near)} of"
            f" {_arms(len(known))} (medians, in-extent, {_counts(near)}).",
        )
    name = arm_names(arms, "capacity_bytes")
    far = [(arm, _beside_one(arm)) for arm, median in known if abs(median - 1) > _NEAR]
    yield from _sorted_out(
        [(_amplified(f"{name(arm)} at {_limit(arm)}"), ratio) for arm, ratio in far if ratio],
        "Capacity",
    )


def _unhinted(study: Study) -> list[Arm]:
    """What a hint brought is neither a miss nor readahead: arms with hints are not among them."""
    return [arm for arm in arms_of(study) if arm.n and not arm.spec.get("prefetch")]


def _beside_one(arm: Arm) -> Ratio | None:
    values = arm.values(in_extent_amplification)
    return paired_ratio(values, [1.0] * len(values))


def _amplified(arm: str) -> Callable[[str], str]:
    return lambda x: f"{arm}: read in-extent {x} the misses of a simulated exact LRU of its C"


def _over_read(study: Study) -> Iterator[_Line]:
    arms = [arm for arm in _unhinted(study) if (arm.median(over_read_share) or 0) > _MUCH]
    name = arm_names(arms, "capacity_bytes")
    for arm in arms:
        yield (
            "found" if arm.n > 1 else "hints",
            f"{name(arm)} at {_limit(arm)}: {arm.median(over_read_share):.0%} of its reads lie"
            f" outside the experts asked for: that is readahead, not reclaim (n={arm.n}).",
        )


def _limit(arm: Arm) -> str:
    return formats.capacity(arm.capacity_bytes)


def _arms(count: int) -> str:
    return "1 arm" if count == 1 else f"{count} arms"


def _counts(arms: list[Arm]) -> str:
    least, most = min(arm.n for arm in arms), max(arm.n for arm in arms)
    return f"n={least}" if least == most else f"n={least} to {most}"


# ---- ratios --------------------------------------------------------------------------------------


def _compared(comparison: _Comparison, section: Section) -> Iterator[_Line]:
    rows = [row for row in _rows(section) if isinstance(row.get(comparison.column), Ratio)]
    told = [(partial(comparison.words, row), row[comparison.column]) for row in rows]
    yield from _sorted_out(told, section.title)
    if not told and comparison.absent:
        yield "unknown", f"{section.title}: measured, but without values to compare."


def _rows(section: Section | None) -> list[Row]:
    """Rows of the section's tables, by the keys of their columns."""
    tables = () if section is None else section.tables
    return [
        dict(zip((column.key for column in table.columns), row, strict=True))
        for table in tables
        for row in table.rows
    ]


def _sorted_out(told: Sequence[tuple[Callable[[str], str], Ratio]], title: str) -> Iterator[_Line]:
    """Each in the list of its certainty, the farthest from 1 first, and not too many of them."""
    ordered = sorted(told, key=lambda one: _nearness(one[1]))
    for kind in ("found", "hints", "unknown"):
        same = [(words, ratio) for words, ratio in ordered if _certainty(ratio) == kind]
        for words, ratio in same[: _SHOWN[kind]]:
            yield kind, f"{words(f'{ratio.median:.2f}x')}; {_evidence(ratio)}."
        if len(same) > _SHOWN[kind]:
            yield (
                kind,
                f"{len(same) - _SHOWN[kind]} more of this kind are in the tables of “{title}”.",
            )


def _nearness(ratio: Ratio) -> float:
    return -abs(math.log(ratio.median)) if ratio.median > 0 else -math.inf


def _certainty(ratio: Ratio) -> str:
    if ratio.direction is None or ratio.chance is None:
        return "unknown"
    return "found" if ratio.chance <= 1 - CONFIDENCE else "hints"


def _evidence(ratio: Ratio) -> str:
    if ratio.count == 1:
        return ratio.verdict
    text = f"{ratio.min:.2f} to {ratio.max:.2f} in n={ratio.count}: {ratio.verdict}"
    if _certainty(ratio) == "found" and ratio.chance is not None:
        text += f", chance 1 in {1 / ratio.chance:.0f}"
    return text


# ---- what could mislead --------------------------------------------------------------------------


def _moving(drift: Section | None) -> Iterator[_Line]:
    moving = [row for row in _rows(drift) if "reading" in row]
    unsettled = [row for row in moving if str(row["reading"]).startswith("not settled")]
    if unsettled:
        yield "hints", f"Measured passes that had not settled: {len(unsettled)}; see “Drift”."


def _gaps(study: Study) -> Iterable[str]:
    if not study.times_count:
        yield "Times: the clock of this host is emulated, so only bytes and counters are reported."
    single = sum(arm.n == 1 for arm in arms_of(study))
    if single:
        yield f"Spread: {_arms(single)} with a single kept cell; nothing is decided from n=1."
    if study.problems:
        yield f"Parts of the results could not be read: {len(study.problems)}; see “Validity”."
