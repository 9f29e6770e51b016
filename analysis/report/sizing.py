# SPDX-License-Identifier: Apache-2.0
"""The smallest capacity that meets a target, from measured points alone.

Times are medians over repetitions, made falling with C (each the greatest at its C or beyond) and
joined by straight lines; nothing is read off outside of the measured range.  Points of a balloon
may carry the reads of its own pressure, so what they give is an upper bound of the memory needed.
Iterations and accepted tokens are sized apart: what turns one into the other is the trace's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pagetier.analysis.report import formats
from pagetier.analysis.report.arms import (
    Arm,
    FigureOf,
    arm_names,
    arms_of,
    seconds,
    tokens_seconds,
)
from pagetier.analysis.report.beside import Beside
from pagetier.analysis.report.budget import budget_prose, budget_tables
from pagetier.analysis.report.capacity import sweeps
from pagetier.analysis.report.curves import falling_envelope, where_it_falls_to
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import Column, Section, Table

__all__ = ["Answer", "Target", "answers_of", "size_sweep", "sizing_section"]

# What a figure of memory is worth, best first: a boot has only that memory, a balloon pretends.
_PREFERRED = ("boot", "wall", "balloon")
# Of the demand served at the largest C: from here on more memory has nothing left to hold.
_ALL_SERVED = 0.999

_ANSWERS = (
    Column("arm", "arm"),
    Column("points", "measured C"),
    Column("capacity_bytes", "smallest C (interpolated)", formats.size),
    Column("measured_bytes", "smallest measured C that meets it", formats.size),
    Column("measured_s", "s there", formats.spread_of(formats.three_digits)),
    Column("largest_bytes", "largest measured C", formats.size),
    Column("largest_s", "s there", formats.spread_of(formats.three_digits)),
    Column("answer", "answer"),
)


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked for: seconds per iteration, and tokens per second where a rate is given."""

    iteration_s: float
    tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one sweep: `state` is met, met-everywhere (at the smallest C already), unmet or unknown.

    `capacity_bytes` is interpolated and None unless met; `measured` is the smallest measured arm
    that meets the target, `largest` the one with the most memory.
    """

    state: str
    capacity_bytes: float | None
    points: int
    measured: Arm | None
    largest: Arm | None
    sentence: str


def sizing_section(study: Study, target: Target, beside: Beside) -> tuple[Section, Answer]:
    """The answer of the best evidence, and all of it."""
    groups = sorted(
        (g for g in sweeps(arms_of(study)) if g[0].capacity_bytes is not None), key=_rank
    )
    answers = answers_of(study, groups, seconds, target.iteration_s)
    best = next((a for a in answers if a.state != "unknown"), None) or _unknown(study)
    name = arm_names((arm for group in groups for arm in group), "capacity_bytes")
    tables = [_table("Seconds per iteration", groups, answers, seconds, name)]
    prose = [best.sentence, *(() if best.state == "unknown" else _how(study))]
    if target.tokens_per_s is not None:
        per_token = answers_of(study, groups, tokens_seconds, 1 / target.tokens_per_s)
        tables.append(_table("Seconds per accepted token", groups, per_token, tokens_seconds, name))
        prose += [_token_sentence(per_token, target.tokens_per_s)]
        prose += budget_prose(study, groups, target.tokens_per_s, beside, best.capacity_bytes)
        tables += budget_tables(study, groups, target.tokens_per_s, beside, name)
    title = f"Size for {target.iteration_s:g} s per iteration"
    kept = tuple(table for table in tables if table.rows)
    return Section("sizing", title, tuple(prose), kept), best


def answers_of(
    study: Study, groups: list[list[Arm]], figure: FigureOf, target_s: float
) -> list[Answer]:
    """One answer per sweep, in the order given."""
    if not study.times_count:
        return [_unknown(study) for _ in groups]
    return [size_sweep(group, figure, target_s) for group in groups]


def size_sweep(group: list[Arm], figure: FigureOf, target_s: float) -> Answer:
    """The answer of arms that differ in C alone."""
    arms = sorted(
        (arm for arm in group if arm.capacity_bytes and arm.median(figure) is not None),
        key=lambda arm: arm.capacity_bytes or 0,
    )
    points = [(float(arm.capacity_bytes or 0), arm.median(figure) or 0.0) for arm in arms]
    if not points:
        return Answer("unknown", None, 0, None, None, "No kept cell has this time.")
    found = where_it_falls_to(points, target_s)
    largest = arms[-1]
    if found is None:
        sentence = _unmet(largest, figure, target_s)
        return Answer("unmet", None, len(arms), None, largest, sentence)
    met = [arm for arm, (_, y) in zip(arms, falling_envelope(points), strict=True) if y <= target_s]
    state = "met-everywhere" if met[0] is arms[0] else "met"
    sentence = _met(state, found, met[0], figure, target_s)
    return Answer(state, found, len(arms), met[0], largest, sentence)


# ---- sentences ----------------------------------------------------------------------------------


def _met(state: str, found: float, arm: Arm, figure: FigureOf, target_s: float) -> str:
    at = f"{formats.size(arm.capacity_bytes)} ({_time(arm, figure)})"
    if state == "met-everywhere":
        sentence = (
            f"The smallest measured C meets {target_s:g} s already: {at}; less was not measured,"
            " more is not worth it for this target"
        )
    else:
        sentence = f"{_bound(arm)} C for {target_s:g} s: {formats.size(found)}; measured at {at}"
    return f"{sentence}{_doubt(arm, figure, target_s)}."


def _bound(arm: Arm) -> str:
    return "Upper bound of the smallest" if arm.mechanism == "balloon" else "Smallest"


def _doubt(arm: Arm, figure: FigureOf, target_s: float) -> str:
    spread = arm.spread(figure)
    if spread is None or spread.count == 1:
        return "; n=1, so that no spread is known"
    return "; its slowest repetition does not meet it" if spread.max > target_s else ""


def _unmet(largest: Arm, figure: FigureOf, target_s: float) -> str:
    served = largest.median(lambda facts: facts.served_fraction)
    whole = served is not None and served >= _ALL_SERVED
    sentence = (
        f"No C meets {target_s:g} s: at the largest measured C,"
        f" {formats.size(largest.capacity_bytes)}, it takes {_time(largest, figure)}"
    )
    if not whole:
        return f"{sentence}; more was not measured."
    return f"{sentence} with all of the demand in memory: more memory is not worth it."


def _time(arm: Arm, figure: FigureOf) -> str:
    return f"{formats.spread_of(formats.three_digits)(arm.spread(figure))} s"


def _token_sentence(answers: list[Answer], tokens_per_s: float) -> str:
    best = next((a for a in answers if a.state != "unknown"), None)
    told = f"{tokens_per_s:g} accepted tokens per second"
    sentence = best.sentence if best is not None else "Not told, for want of times or of tokens."
    return f"{told}: {sentence[0].lower()}{sentence[1:]}"


def _unknown(study: Study) -> Answer:
    why = (
        "no kept cell has a limit on memory and a time"
        if study.times_count
        else "the clock of this host is emulated, and its seconds are no times"
    )
    return Answer("unknown", None, 0, None, None, f"No size can be told: {why}.")


def _how(study: Study) -> Iterator[str]:
    yield (
        "Read off straight lines between the medians at measured C, which lie above a curve that"
        " bends upwards; nothing is extrapolated. Compute is not in these times."
    )
    if any(arm.mechanism == "balloon" for arm in arms_of(study)):
        yield (
            "What a balloon says is an upper bound: behind much locked memory a kernel may read"
            " more than a host with that little memory would."
        )


# ---- tables -------------------------------------------------------------------------------------


def _rank(group: list[Arm]) -> tuple[Any, ...]:
    spec, mechanism = group[0].spec, group[0].mechanism
    known = mechanism in _PREFERRED
    return (
        len(group) < 2,
        _PREFERRED.index(mechanism) if known else len(_PREFERRED),
        spec.get("tier") != "page-cache",
        spec.get("prefetch") is not None,
        spec.get("advice") != "default",
    )


def _table(
    caption: str, groups: list[list[Arm]], answers: list[Answer], figure: FigureOf, name: Any
) -> Table:
    rows = tuple(
        (
            name(group[0]),
            answer.points,
            answer.capacity_bytes,
            None if answer.measured is None else answer.measured.capacity_bytes,
            None if answer.measured is None else answer.measured.spread(figure),
            None if answer.largest is None else answer.largest.capacity_bytes,
            None if answer.largest is None else answer.largest.spread(figure),
            answer.sentence,
        )
        for group, answer in zip(groups, answers, strict=True)
        if answer.state != "unknown"
    )
    return Table(caption, _ANSWERS, rows)
