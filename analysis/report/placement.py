# SPDX-License-Identifier: Apache-2.0
"""Where experts should lie: the break-even of promotion, what to promote, direct or streamed.

Section 8 of the paper, with this host's numbers.  Promoting an expert of S bytes costs S / stream
once and saves S (1 / host - 1 / hbm) at each later use; S drops out.  Nothing is fitted, and a rate
that is not known makes no rule.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pagetier.analysis.counters import number
from pagetier.analysis.report import formats
from pagetier.analysis.report.beside import Beside, Rates, device_rate
from pagetier.analysis.report.procedure import procedure_rows
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import Column, Section, Table

__all__ = [
    "Promotion",
    "breakeven_reuse",
    "direct_shortfall",
    "placement_section",
    "promotion_list",
]

# Direct reads this close to streaming are preferred: they need no copy engine and no staging.
SIMILAR = 0.10
_SHOWN = 20

_RATES = (
    Column("rate", "rate"),
    Column("bytes_per_s", "bytes/s", formats.size),
    Column("known", "known"),
)
_RULES = (Column("rule", "rule"), Column("figure", "figure"), Column("answer", "for this host"))
_PROMOTED = (
    Column("layer", "layer"),
    Column("expert", "expert"),
    Column("uses", "reads in the trace"),
)
_STEPS = (
    Column("line", "line"),
    Column("step", "step of the serving procedure"),
    Column("answer", "answer"),
    Column("evidence", "evidence here"),
)


@dataclass(frozen=True, slots=True)
class Promotion:
    """An expert worth its transfer, by layer, with how often the trace reads it."""

    layer: int
    expert: int
    uses: int


def breakeven_reuse(rates: Rates) -> float | None:
    """r*: later uses that repay a promotion; None without the rates or where HBM is not faster."""
    if not rates.host or not rates.hbm or not rates.stream or rates.hbm <= rates.host:
        return None
    return (1 / rates.stream) / (1 / rates.host - 1 / rates.hbm)


def direct_shortfall(rates: Rates) -> float | None:
    """By what share direct reads of host memory are slower than streaming; negative when faster."""
    if not rates.host or not rates.stream:
        return None
    return 1 - rates.host / rates.stream


def promotion_list(
    uses: npt.NDArray[np.int64], num_experts: int, breakeven: float, room: int
) -> list[Promotion]:
    """Experts read more often again than `breakeven`, most read first, at most `room` of them.

    `uses` counts the reads of each global expert id; equal counts go by id.
    """
    order = np.argsort(-uses, kind="stable")[:room]
    return [
        Promotion(int(expert) // num_experts, int(expert) % num_experts, int(uses[expert]))
        for expert in order
        if uses[expert] - 1 > breakeven
    ]


def placement_section(study: Study, beside: Beside) -> Section:
    """The three rules and the serving procedure, answered where there is evidence."""
    promoted = _promoted(study, beside)
    tables = [
        Table("Rates", _RATES, tuple(_rate_rows(study, beside.rates))),
        Table("Placement rules", _RULES, tuple(_rule_rows(beside, promoted))),
    ]
    if promoted:
        rows = tuple((p.layer, p.expert, p.uses) for p in promoted[:_SHOWN])
        shown = f"the first {len(rows)} of {len(promoted)}"
        tables.append(Table(f"Promotion list, {shown}", _PROMOTED, rows))
    tables.append(Table("Serving procedure", _STEPS, tuple(procedure_rows(study))))
    return Section(
        key="placement",
        title="Placement",
        prose=(
            "Rates of an accelerator are not measured by this program; give them with"
            ' --rates "host=..., hbm=..., stream=...", and the room in its memory with hbm_bytes.',
        ),
        tables=tuple(tables),
    )


def _rate_rows(study: Study, rates: Rates) -> Iterator[tuple[Any, ...]]:
    yield "device", *device_rate(study, rates)
    for name, rate in (
        ("accelerator, file pages in host memory", rates.host),
        ("accelerator, its own memory", rates.hbm),
        ("overlapped copy to the accelerator", rates.stream),
    ):
        yield name, rate, "not given" if rate is None else "as given"


def _rule_rows(beside: Beside, promoted: list[Promotion] | None) -> Iterator[tuple[Any, ...]]:
    yield (
        "admit demand-read pages to DRAM",
        None,
        "yes: a miss reads them already; see line 1 of the procedure for what it is worth here",
    )
    breakeven = breakeven_reuse(beside.rates)
    yield (
        "promote to accelerator memory what is used again more often than r*",
        None if breakeven is None else f"r* = {breakeven:.2f}",
        _promotion_answer(beside, breakeven, promoted),
    )
    shortfall = direct_shortfall(beside.rates)
    yield (
        "read directly where that is about as fast as streaming",
        None if shortfall is None else f"direct is {shortfall:.1%} below streaming",
        _direct_answer(shortfall),
    )


def _promotion_answer(
    beside: Beside, breakeven: float | None, promoted: list[Promotion] | None
) -> str:
    if breakeven is None:
        rates = beside.rates
        if rates.host and rates.hbm and rates.hbm <= rates.host:
            return "no: its own memory is no faster than file pages in host memory"
        return "not answered: needs --rates host, hbm and stream"
    if promoted is None:
        return "not answered for this trace: give it with --trace, and hbm_bytes in --rates"
    return f"{len(promoted)} experts of this trace repay their transfer and fit"


def _direct_answer(shortfall: float | None) -> str:
    if shortfall is None:
        return "not answered: needs --rates host and stream"
    if shortfall <= SIMILAR:
        return f"direct: within {SIMILAR:.0%}, and needs no copy engine and no staging buffers"
    return (
        f"stream, or own the bytes in accelerator memory: direct is more than {SIMILAR:.0%} below"
    )


def _promoted(study: Study, beside: Beside) -> list[Promotion] | None:
    """None when it cannot be said: no rates, no trace, or no room given."""
    breakeven, plan, room_bytes = breakeven_reuse(beside.rates), beside.plan, beside.rates.hbm_bytes
    expert_bytes = {number(cell.facts, "expert_bytes") for cell in study.results.cells} - {None}
    if breakeven is None or plan is None or room_bytes is None or len(expert_bytes) != 1:
        return None
    (size,) = expert_bytes
    if not size:
        return None
    uses = np.bincount(plan.experts, minlength=plan.num_layers * plan.num_experts)
    return promotion_list(uses, plan.num_experts, breakeven, room_bytes // size)
