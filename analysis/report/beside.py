# SPDX-License-Identifier: Apache-2.0
"""What a results directory does not hold and a report may be given: rates, a plan, a simulation.

Rates are bytes per second.  A simulation is the document of ``pagetier simulate --json``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagetier.analysis.errors import InputError
from pagetier.analysis.generate import default_trace
from pagetier.analysis.plans import Plan, build_plan
from pagetier.analysis.report.reading import Study
from pagetier.analysis.traces import read_trace
from pagetier.analysis.units import parse_bytes

__all__ = [
    "Beside",
    "Offline",
    "Rates",
    "device_rate",
    "offline_at",
    "parse_rates",
    "plan_of",
    "read_simulation",
]


@dataclass(frozen=True, slots=True)
class Rates:
    """`device`: reads of the pool's device; `host`: an accelerator's reads of file pages in host
    memory; `hbm`: its reads of its own memory; `stream`: copying to it, overlapped with compute.
    `hbm_bytes` is what its memory has room for."""

    device: int | None = None
    host: int | None = None
    hbm: int | None = None
    stream: int | None = None
    hbm_bytes: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """`plan` is the campaign's own, when its trace was at hand, and so is `simulation`; `domains`
    are all simulations by name, that one included."""

    rates: Rates = field(default_factory=Rates)
    plan: Plan | None = None
    simulation: tuple[Mapping[str, Any], ...] = ()
    domains: tuple[tuple[str, tuple[Mapping[str, Any], ...]], ...] = ()


def parse_rates(text: str) -> Rates:
    """``device=27 GB, host=327 GB, hbm=2938 GB, stream=346 GB, hbm_bytes=80 GB``, any of them."""
    given: dict[str, int] = {}
    for part in filter(str.strip, text.split(",")):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in Rates.__dataclass_fields__ or not value:
            names = ", ".join(Rates.__dataclass_fields__)
            raise InputError(f"--rates: {part.strip()!r}: write NAME=SIZE with one of {names}")
        given[name] = parse_bytes(value)
        if not given[name]:
            raise InputError(f"--rates: {name} is 0: leave out what is not known")
    return Rates(**given)


def device_rate(study: Study, rates: Rates) -> tuple[float | None, str]:
    """Bytes per second of the pool's device, and how they are known."""
    if rates.device is not None:
        return rates.device, "as given"
    if not study.times_count:
        return None, "unknown: the clock is emulated; give it with --rates device=SIZE"
    seen = [rate.bytes_per_s for point in study.points for rate in point.rates]
    known = [rate for rate in seen if rate is not None]
    if not known:
        return None, "unknown: no pass says; give it with --rates device=SIZE"
    return max(known), "at least: the fastest pass of this campaign"


# ---- the plan ------------------------------------------------------------------------------------


def plan_of(study: Study, trace: Path | None) -> Plan | None:
    """The plan that was replayed: of the trace given, or generated again; None of neither.

    InputError for a trace that is not the campaign's.
    """
    source = study.results.campaign.get("trace")
    source = source if isinstance(source, dict) else {}
    wanted = study.results.meta.get("plan_sha256")
    if trace is None:
        plan = _generated(source.get("generate"))
        return plan if plan is not None and plan.sha256 == wanted else None
    found, steps = read_trace(trace), source.get("steps")
    plan = build_plan(found if steps is None else found.first_steps(steps))
    if plan.sha256 != wanted:
        raise InputError(f"{trace}: not the trace of {study.results.path}: its reads are others")
    return plan


def _generated(arguments: Any) -> Plan | None:
    if not isinstance(arguments, dict):
        return None
    try:
        return build_plan(default_trace(**arguments))
    except (InputError, TypeError):  # of another version of the generator
        return None


# ---- simulation ---------------------------------------------------------------------------------

_BOUNDS = ("belady", "belady-forced", "static")


@dataclass(frozen=True, slots=True)
class Offline:
    """Miss bytes per iteration at one budget: of the offline optimum, of the same forced to admit
    every miss (None where it was not simulated), and of the best policy without foresight."""

    budget_bytes: int
    belady: float
    forced: float | None
    causal: float
    causal_policy: str

    @property
    def gap(self) -> float | None:
        """Share of the best causal policy's misses that the optimum saves."""
        return (self.causal - self.belady) / self.causal if self.causal else None

    @property
    def admission_share(self) -> float | None:
        """Share of the gap that refusing to admit is worth; the rest is knowing the victim."""
        if self.forced is None or self.causal == self.belady:
            return None
        return (self.forced - self.belady) / (self.causal - self.belady)


def read_simulation(path: Path) -> tuple[Mapping[str, Any], ...]:
    """The rows of a document of ``pagetier simulate --json``; InputError for anything else."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}: give the output of pagetier simulate --json") from error
    rows = document.get("rows") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(
            f"{path}: has no list of rows: give the output of pagetier simulate --json"
        )
    return tuple(rows)


def offline_at(rows: tuple[Mapping[str, Any], ...], capacity_bytes: float) -> Offline | None:
    """The bounds at the largest simulated budget that is not above `capacity_bytes`.

    Of several scopes and replays the ones of a page cache: one pool for all layers, access by
    access.  A static table fitted on the same trace is no causal policy.
    """
    misses = {
        (row.get("budget_bytes"), str(row.get("policy"))): row["miss_bytes_per_iteration"]
        for row in rows
        if row.get("scope") == "global" and row.get("replay") == "access"
        if isinstance(row.get("miss_bytes_per_iteration"), int | float)
    }
    budgets = [b for b, policy in misses if isinstance(b, int) and policy == "belady"]
    budget = max((b for b in budgets if b <= capacity_bytes), default=None)
    if budget is None:
        return None
    at = {policy: value for (b, policy), value in misses.items() if b == budget}
    causal = {policy: value for policy, value in at.items() if policy not in _BOUNDS}
    if not causal:
        return None
    best = min(causal, key=lambda policy: (causal[policy], policy))
    return Offline(budget, at["belady"], at.get("belady-forced"), causal[best], best)
