# SPDX-License-Identifier: Apache-2.0
"""Is reclaim amplifying reads?  The state that the figures of an interval give, and why.

States: `amplifying` (the reader's device bytes were measured well above the computed misses while
evicted pages came back), `suspect` (an indicator or the conditions of it are there), `healthy`,
`unknown` (what would tell is missing).  Only computed misses can show amplification; everything
else is an indicator of the papers' systems, never a threshold of this one, and says so.

A counter that fell voids the interval.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pagetier.analysis.check_figures import Figures
from pagetier.analysis.reclaim import LEAST_STOLEN_PAGES, Reclaim
from pagetier.analysis.units import format_bytes

__all__ = ["Assessment", "State", "assess"]

State = Literal["healthy", "suspect", "amplifying", "unknown"]

AMPLIFYING_RATIO = 2.0
"""Device bytes per computed miss: where the paper (section 5) speaks of amplification."""

SUSPECT_RATIO = 1.5
"""Between the highest that its reclaim-neutral cells reach (19.0 of 15.1 GB, 1.26) and 2."""

SUSPECT_SCAN_TO_STEAL = 2.0
"""Above it in every cell that amplified more than 2x and in no neutral one: an indicator."""

LOCKED_SHARE = 0.74
"""The largest share of locked memory at which the paper saw no amplification; at 0.81 it did."""

LEAST_REFAULT_BYTES_PER_S = 1 << 20
"""Any host reads a file again now and then; a streaming reader does it at megabytes a second."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """The state and the lines it rests on, the heaviest first."""

    state: State
    evidence: tuple[str, ...]


def assess(figures: Figures) -> Assessment:
    """The state of an interval; every finding is a line, whether or not it decided."""
    if figures.backwards:
        fell = ", ".join(figures.backwards)
        return Assessment(
            "unknown", (f"went backwards, so that the interval says nothing: {fell}",)
        )
    findings = [*_traffic(figures), *_ratios(figures), *_conditions(figures)]
    gaps = list(_gaps(figures))
    worst: State = max(
        (state for state, _ in findings), key=_WEIGHTS.__getitem__, default="healthy"
    )
    if worst == "healthy" and gaps:
        worst = "unknown"
    lines = sorted(findings, key=lambda finding: -_WEIGHTS[finding[0]])
    return Assessment(worst, (*(text for _, text in lines), *gaps, *_background(figures)))


_WEIGHTS: dict[State, int] = {"healthy": 0, "unknown": 1, "suspect": 2, "amplifying": 3}
Finding = tuple[State, str]


def _traffic(figures: Figures) -> Iterator[Finding]:
    read, ratio = figures.read_bytes, figures.amplification
    if read is None or figures.miss_bytes is None:
        return
    whose = "the reader" if figures.reader_bytes is not None else "the device, for anyone,"
    text = (
        f"{whose} read {_rate(figures, read)} against {_rate(figures, figures.miss_bytes)} of "
        "computed misses"
    )
    if ratio is None:
        yield "healthy", f"{text}: too few misses for a ratio"
        return
    text = f"{text}: {ratio:.2f}x"
    if ratio < SUSPECT_RATIO:
        yield "healthy", text
    elif not _comes_back(figures):
        # Reclaim has evicted nothing that was read again: then it cannot be what amplifies.
        yield (
            "suspect",
            f"{text}, but hardly a page came back after its eviction: readahead past an "
            "expert's end, or other readers",
        )
    elif ratio >= AMPLIFYING_RATIO:
        yield "amplifying", f"{text}, with evicted pages coming back"
    else:
        yield "suspect", f"{text}, with evicted pages coming back"


def _ratios(figures: Figures) -> Iterator[Finding]:
    for reclaim in (figures.kswapd, figures.direct, figures.limited):
        if reclaim is None:
            continue
        text = f"scan/steal {_ratio_text(reclaim)} ({reclaim.label})"
        high = reclaim.ratio is not None and reclaim.ratio > SUSPECT_SCAN_TO_STEAL
        yield (
            ("suspect", f"{text}: above {SUSPECT_SCAN_TO_STEAL:g}, an indicator")
            if high
            else (
                "healthy",
                text,
            )
        )


def _ratio_text(reclaim: Reclaim) -> str:
    counts = f"{reclaim.scanned_pages} / {reclaim.stolen_pages} pages"
    return f"n/a, {counts}" if reclaim.ratio is None else f"{reclaim.ratio:.2f}, {counts}"


def _conditions(figures: Figures) -> Iterator[Finding]:
    """The two that amplification needs together, while a reader is short of page cache."""
    share = figures.unevictable_share
    if share is None:
        return
    text = f"{share:.0%} of memory is unevictable"
    if share <= LOCKED_SHARE:
        yield "healthy", text
        return
    text = f"{text}, above the {LOCKED_SHARE:.0%} up to which none was seen to amplify"
    if figures.mglru_enabled is False:
        yield "healthy", f"{text}; classic LRU reclaims here, which was never seen to amplify"
    elif not (_steals(figures.host) and _comes_back(figures)):
        yield "healthy", f"{text}; no reader is short of page cache now"
    elif figures.amplification is not None and figures.amplification < SUSPECT_RATIO:
        yield "healthy", f"{text}; the computed misses show no amplification"
    else:
        yield "suspect", f"{text}, MGLRU reclaims and evicted pages come back"


def _gaps(figures: Figures) -> Iterator[str]:
    """What is missing and would have decided."""
    if figures.amplification is not None:
        return
    if figures.host is None:
        yield "unknown: the host's reclaim counters could not be read"
    elif figures.unevictable_share is None and _steals(figures.host):
        yield "unknown: pages are being reclaimed, and the unevictable share could not be read"


def _steals(reclaim: Reclaim | None) -> bool:
    return reclaim is not None and reclaim.stolen_pages >= LEAST_STOLEN_PAGES


def _comes_back(figures: Figures) -> bool:
    rate = figures.per_second(figures.refault_bytes)
    return rate is not None and rate >= LEAST_REFAULT_BYTES_PER_S


def _background(figures: Figures) -> Iterator[str]:
    if figures.refault_bytes is not None:
        yield f"evicted and read again {_rate(figures, figures.refault_bytes)} (refaults)"
    if figures.miss_bytes is None and figures.read_bytes is not None:
        yield f"device reads {_rate(figures, figures.read_bytes)}; computed misses n/a (no feed)"
    stalls = [f"{name} {share:.1%}" for name, share in figures.stalled.items() if share is not None]
    yield f"pressure: {', '.join(stalls) if stalls else 'n/a'}"
    if figures.swap_in_bytes:
        yield f"swapped in {_rate(figures, figures.swap_in_bytes)}"


def _rate(figures: Figures, count: int) -> str:
    return f"{format_bytes(count / figures.seconds)}/s"
