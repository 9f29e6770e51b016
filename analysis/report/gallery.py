# SPDX-License-Identifier: Apache-2.0
"""Pictures of the raw rows, which have no table: every cell's bytes, and a look into some passes.

Their numbers are in the exported columns and not in the report's JSON.  Of each arm the passes of
one kept cell are shown, the one in the middle by device bytes; of many arms those whose in-extent
amplification is greatest.
"""

from collections.abc import Iterator
from dataclasses import replace

from pagetier.analysis.report.arms import (
    Arm,
    arm_names,
    arms_of,
    in_extent_amplification,
)
from pagetier.analysis.report.audit import residency_figure
from pagetier.analysis.report.generations import generations_figure
from pagetier.analysis.report.latency import latency_figure
from pagetier.analysis.report.ledger import TERMS_PROSE, ledger_figure
from pagetier.analysis.report.reading import Point, Study
from pagetier.analysis.report.section import Figure, Section
from pagetier.analysis.report.timeline import timeline_figure

__all__ = ["gallery"]

# A timeline is a third of a second of drawing and 100 kB of page.
MAX_PASSES = 6


def gallery(study: Study) -> list[Section]:
    """Nothing without a cell."""
    sections = [_bytes_section(study), _passes_section(study)]
    return [section for section in sections if section.figures]


def _bytes_section(study: Study) -> Section:
    arms = arms_of(study)
    figures = [ledger_figure(arms), residency_figure(arms)]
    if study.times_count:
        figures.append(latency_figure(arms))
    return Section(
        key="bytes",
        title="Where the bytes went",
        prose=(TERMS_PROSE,),
        figures=tuple(figure for figure in figures if figure is not None),
    )


def _passes_section(study: Study) -> Section:
    chosen = _chosen([arm for arm in arms_of(study) if arm.n])
    name = arm_names(arm for arm, _ in chosen)
    figures: list[Figure] = []
    for at, (arm, point) in enumerate(chosen, start=1):
        told = f"{name(arm)}, repetition {point.cell.spec.get('repetition')}"
        for figure in _of_pass(study, point):
            key = f"{figure.key}-{at:02}"
            figures.append(replace(figure, key=key, title=f"{figure.title}: {told}"))
    return Section(
        key="passes",
        title="Inside the measured pass",
        prose=(
            f"One kept cell of each arm, the one in the middle by device bytes;"
            f" {len(chosen)} of {sum(arm.n > 0 for arm in arms_of(study))} arms,"
            " those with the greatest in-extent amplification first.",
        ),
        figures=tuple(figures),
    )


def _of_pass(study: Study, point: Point) -> Iterator[Figure]:
    for figure in (timeline_figure(study, point), generations_figure(point)):
        if figure is not None:
            yield figure


def _chosen(arms: list[Arm]) -> list[tuple[Arm, Point]]:
    def rank(arm: Arm) -> float:
        return -(arm.median(in_extent_amplification) or 0.0)

    return [(arm, middle(arm)) for arm in sorted(arms, key=rank)[:MAX_PASSES]]


def middle(arm: Arm) -> Point:
    """The kept cell in the middle of its arm by device bytes."""
    ordered = sorted(arm.points, key=lambda point: point.facts.device_bytes or 0)
    return ordered[(len(ordered) - 1) // 2]
