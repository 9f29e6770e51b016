# SPDX-License-Identifier: Apache-2.0
"""The paper's serving procedure (Algorithm 2) as a checklist, answered from one campaign.

An answer is yes, no or undecided where there is evidence, else "not measured" with what would
measure it.  Times are the judge where they count, device bytes where the clock is emulated.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pagetier.analysis.report import formats
from pagetier.analysis.report.arms import (
    Arm,
    FigureOf,
    amplification,
    arms_of,
    device_bytes,
    in_extent_amplification,
    over_read_share,
    ratio_of,
    seconds,
    together,
)
from pagetier.analysis.report.equal_memory import baseline, equal_memory_groups
from pagetier.analysis.report.prefetch import prefetch_groups, unhinted
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.reclaim import locked_share
from pagetier.analysis.stats import Ratio

__all__ = ["procedure_rows"]

_UNADMITTED = ("direct", "dontcache", "drop-behind")
# In-extent bytes this far above the simulated misses are worth a look; below, whole experts against
# pages and two lists against one explain more than that.
_EXCESS = 1.10

_Row = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class _Compared:
    """One arm over its baseline at one C."""

    name: str
    ratio: Ratio

    def text(self) -> str:
        return f"{self.name}: {formats.ratio(self.ratio)}"


def procedure_rows(study: Study) -> Iterator[_Row]:
    """One row per line of the procedure."""
    yield _admission(study)
    yield _spine(study)
    yield _demand(study)
    yield _advice(study)
    yield _alert(study)
    yield _confinement(study)
    yield _arena(study)


def _judged_by(study: Study) -> tuple[FigureOf, str]:
    return (seconds, "time") if study.times_count else (device_bytes, "device bytes")


def _admission(study: Study) -> _Row:
    step = "read experts through the page cache, without unbuffered or drop-behind flags"
    found = _beside_cache(study, lambda arm: arm.spec.get("tier") in _UNADMITTED)
    answers = {"higher": "yes", "lower": "no", None: "undecided"}
    return _compared("1", step, study, found, answers, "add tiers: [page-cache, direct]")


def _spine(study: Study) -> _Row:
    held = {arm.spec.get("spine_bytes") or 0 for arm in arms_of(study)} - {0}
    step = "keep the dense spine locked, or in accelerator memory"
    if not held:
        return "2", step, "not measured", "no cell held a spine; set spine: SIZE"
    sizes = ", ".join(formats.size(size) for size in sorted(held))
    return "2", step, "yes", f"{sizes} were locked in the scope of the measured cells"


def _demand(study: Study) -> _Row:
    step = "read each layer's experts through the page cache on demand"
    arms = [arm for arm in arms_of(study) if arm.spec.get("tier") == "page-cache"]
    served = [
        s for arm in arms if (s := arm.median(lambda facts: facts.served_fraction)) is not None
    ]
    if not served:
        return "4", step, "not measured", "no kept cell of the page cache knows its served fraction"
    span = f"{min(served):.1%} to {max(served):.1%}"
    return "4", step, "yes", f"it served {span} of the demand over {len(served)} arms"


def _advice(study: Study) -> _Row:
    step = "give the predicted experts as advice (WILLNEED), never as blocking reads"
    figure, _ = _judged_by(study)
    found = [
        _Compared(f"{formats.capacity(arm.capacity_bytes)} {arm.spec['prefetch']['plan']}", ratio)
        for group in prefetch_groups(study)
        if (base := unhinted(group)) is not None
        for arm in group
        if _delivery(arm) == "advice"
        if (ratio := ratio_of(arm, base, figure)) is not None
    ]
    answers = {"lower": "yes", "higher": "no", None: "undecided"}
    return _compared("5", step, study, found, answers, "add prefetch: {plan: [none, oracle]}")


def _delivery(arm: Arm) -> str | None:
    prefetch = arm.spec.get("prefetch")
    return prefetch.get("delivery") if isinstance(prefetch, dict) else None


def _alert(study: Study) -> _Row:
    step = "watch scan/steal and device bytes; alert when reads exceed the computed misses"
    arms = [(a.median(in_extent_amplification), a) for a in arms_of(study)]
    known = [(excess, arm) for excess, arm in arms if excess is not None]
    if not known:
        return "6", step, "not measured", "no kept cell knows its in-extent bytes"
    worst, arm = max(known, key=lambda pair: pair[0])
    count = sum(excess > _EXCESS for excess, _ in known)
    evidence = (
        f"in-extent reads above {_EXCESS:.2f}x the misses in {count} of {len(known)} arms, the most"
        f" {worst:.2f}x (amplification {formats.factor(arm.median(amplification))}, over-read"
        f" {formats.percent(arm.median(over_read_share))}):"
        f" {arm.mechanism} {formats.capacity(arm.capacity_bytes)}, {arm.reclaim}"
    )
    return "6", step, "alert" if count else "quiet", evidence


def _confinement(study: Study) -> _Row:
    step = "with a large unevictable region, confine the reader in a memory-limited cgroup"
    rows = [
        (balloon, wall)
        for group in together(
            arms_of(study), "mechanism", "headroom", "balloon_order", "balloon_huge_pages"
        )
        for balloon in group
        for wall in group
        if balloon.mechanism == "balloon" and wall.mechanism == "wall"
    ]
    known = [
        (locked, b.median(in_extent_amplification), w.median(in_extent_amplification))
        for b, w in rows
        if (locked := b.median(locked_share)) is not None
    ]
    told = [(locked, b, w) for locked, b, w in known if b is not None and w is not None]
    if not told:
        return "7", step, "not measured", "needs mechanisms: [wall, balloon] at equal C"
    helped = [row for row in told if row[1] > _EXCESS >= row[2]]
    locked, balloon, wall = max(helped or told, key=lambda row: row[1] - row[2])
    evidence = (
        f"balloon against wall, in-extent amplification: {balloon:.2f}x against {wall:.2f}x"
        f" with {locked:.0%} locked, the widest of {len(told)} pairs"
    )
    amplified = max(b for _, b, _ in told) > _EXCESS
    return "7", step, "yes" if helped else "undecided" if amplified else "no need seen", evidence


def _arena(study: Study) -> _Row:
    step = "where the domain mix is stable, optionally add a locked arena"
    found = _beside_cache(study, lambda arm: arm.spec.get("tier") in ("arena", "hybrid"))
    answers = {
        "lower": "optional: faster on its own trace; one trace cannot say how stable the mix is",
        "higher": "no",
        None: "undecided",
    }
    return _compared("8", step, study, found, answers, "add tiers: [page-cache, arena]")


def _beside_cache(study: Study, wanted: Callable[[Arm], bool]) -> list[_Compared]:
    figure, _ = _judged_by(study)
    found = []
    for group in equal_memory_groups(study):
        base = baseline(group)
        for arm in group:
            ratio = None if base is None or not wanted(arm) else ratio_of(arm, base, figure)
            if ratio is not None:
                name = f"{formats.capacity(arm.capacity_bytes)} {arm.spec.get('tier')}"
                found.append(_Compared(name, ratio))
    return found


def _compared(
    line: str,
    step: str,
    study: Study,
    found: list[_Compared],
    answers: dict[str | None, str],
    remedy: str,
) -> _Row:
    if not found:
        return line, step, "not measured", remedy
    _, judge = _judged_by(study)
    directions = {compared.ratio.direction for compared in found}
    answer = answers[directions.pop()] if len(directions) == 1 else "differs by arm"
    return line, step, answer, f"{judge}: " + "; ".join(compared.text() for compared in found)
