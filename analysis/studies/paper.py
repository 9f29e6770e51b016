# SPDX-License-Identifier: Apache-2.0
"""The published figures computed again on synthesised traces, the differences beside them.

The traces are made from published statistics of locality, so a difference may be theirs, the
simulated contract's, or a detail that was not published.  Access replay in recorded order is what
the goals are held to; the event-atomic figure stands beside it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

from pagetier.analysis.errors import InputError
from pagetier.analysis.simulators import Budget, Contract, Prepared, prepare, simulate
from pagetier.analysis.simulators.contract import Replay
from pagetier.analysis.studies.batching import Workload, workload_of_trace
from pagetier.analysis.studies.gap import scored_iterations
from pagetier.analysis.studies.off_domain import OffDomainRow, off_domain, train
from pagetier.analysis.studies.published import (
    BatchFigure,
    HitRate,
    NominalMisses,
    Published,
    Question,
    ScopeDifference,
    TokenRatio,
)
from pagetier.analysis.synth import draw_all, load_spec
from pagetier.analysis.traces import Trace
from pagetier.analysis.traces.merge import Merged, lockstep

__all__ = ["FIGURE_BUDGETS", "FIGURE_POLICIES", "Compared", "CurvePoint", "Paper", "ScopePoint"]

FIGURE_BUDGETS = (8, 16, 32, 64, 96, 159, 224)
FIGURE_5_BUDGET = Budget("experts", 159)
FIGURE_POLICIES = ("static", "lfu", "lru", "belady")
_SHARE = 0.6
_MERGED = "batch"
_GB = 10**9


@dataclass(frozen=True, slots=True)
class Compared:
    """A published figure and ours: by domain where it is of several.

    difference: from the published figure to ours, from the nearer end of a range, of the value that
    is furthest out; relative where the goal is.  met: None where nothing is aimed at.
    """

    published: Published
    access: tuple[float, ...]
    event: tuple[float, ...]
    difference: float
    event_difference: float

    @property
    def met(self) -> bool | None:
        within = self.published.within
        return None if within is None else abs(self.difference) <= within

    def as_document(self) -> dict[str, Any]:
        """Flat, for a row of JSON or CSV; the value where there is one, else the extremes."""
        published = self.published
        return {
            "where": published.where,
            "what": published.what,
            "unit": published.unit,
            "paper_low": published.low,
            "paper_high": published.high,
            "ours_low": min(self.access),
            "ours_high": max(self.access),
            "difference": self.difference,
            "difference_is": "relative" if published.relative else "absolute",
            "event_low": min(self.event),
            "event_high": max(self.event),
            "event_difference": self.event_difference,
            "goal": published.within,
            "met": self.met,
        }


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A point of figure 1: the hit rate over the domains."""

    model: str
    experts: int
    budget: int
    policy: str
    replay: Replay
    mean: float
    low: float
    high: float

    def as_document(self) -> dict[str, Any]:
        """Flat, for a row of JSON or CSV."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ScopePoint:
    """One cache for all layers against one for each, of the same number of experts in all."""

    policy: str
    budget: int
    total: int
    replay: Replay
    per_layer: float
    globally: float

    def as_document(self) -> dict[str, Any]:
        """Flat, for a row of JSON or CSV."""
        return {**asdict(self), "difference": self.globally - self.per_layer}


class Paper:
    """The models' traces of one seed, made as they are asked for, and what is computed of them."""

    def __init__(self, seed: int, models: Mapping[str, Mapping[str, Trace]] | None = None) -> None:
        self.seed = seed
        self._given = models or {}
        # Bound to this object, so that what they hold goes with it.
        self._traces = cache(self._traces_of)
        self._merged = cache(self._merged_of)
        self._workload = cache(self._workload_of)
        self._prepared = cache(self._prepared_of)

    def compare(self, published: Published) -> Compared:
        """One of the published figures, and ours."""
        access, event = (self._answer(published.question, replay) for replay in ("access", "event"))
        return Compared(
            published=published,
            access=access,
            event=event,
            difference=_difference(published, access),
            event_difference=_difference(published, event),
        )

    def figure_1(self, model: str, replay: Replay) -> list[CurvePoint]:
        """Static tables, LFU, LRU and Belady at every budget, as in figure 1."""
        experts = next(iter(self._traces(model).values())).header.num_experts
        points = []
        for budget in FIGURE_BUDGETS:
            if budget > experts:
                continue
            for policy in FIGURE_POLICIES:
                question = HitRate(model, policy, Budget("experts", budget))
                rates = self._by_domain(question, replay)
                mean = sum(rates) / len(rates)
                points.append(
                    CurvePoint(model, experts, budget, policy, replay, mean, min(rates), max(rates))
                )
        return points

    def figure_5(self, model: str, replay: Replay) -> list[OffDomainRow]:
        """The first domain's table on every domain, beside LRU, as in figure 5."""
        traces = self._traces(model)
        events = {domain: self._workload(model, domain).events for domain in traces}
        contract = Contract(replay, warm=_SHARE)
        return off_domain(next(iter(traces)), events, contract, [FIGURE_5_BUDGET])

    def scopes(self, model: str, domain: str, replay: Replay) -> list[ScopePoint]:
        """Both scopes at every budget of figure 1."""
        layers = self._traces(model)[domain].header.num_layers
        points = []
        for budget in FIGURE_BUDGETS:
            for policy in FIGURE_POLICIES:
                total = budget * layers
                split = HitRate(model, policy, Budget("experts", budget), (domain,))
                pooled = HitRate(model, policy, Budget("experts", total), (domain,), "global")
                rates = (self._by_domain(one, replay)[0] for one in (split, pooled))
                points.append(ScopePoint(policy, budget, total, replay, *rates))
        return points

    def _answer(self, question: Question, replay: Replay) -> tuple[float, ...]:
        if isinstance(question, HitRate):
            rates = self._by_domain(question, replay)
            return rates if question.domains else (sum(rates) / len(rates),)
        if isinstance(question, NominalMisses):
            return (self._nominal(question, replay),)
        if isinstance(question, BatchFigure):
            return (self._batch(question),)
        if isinstance(question, TokenRatio):
            return (self._token_ratio(question, replay),)
        return (self._scope_difference(question, replay),)

    def _by_domain(self, question: HitRate, replay: Replay) -> tuple[float, ...]:
        named = question.domains or tuple(self._traces(question.model))
        domains = (_MERGED,) if question.merged else named
        warm: float | Literal["pass"] = "pass" if question.fit == "replayed" else _SHARE
        contract = Contract(replay, scope=question.scope, warm=warm)
        table = None
        if question.fit in self._traces(question.model):
            fitted_on = str(question.fit)
            table = train(self._prepared(question.model, fitted_on, contract), fitted_on)
        rates = []
        for domain in domains:
            prepared = self._prepared(question.model, domain, contract)
            size = self._expert_bytes(question.model) if question.budget.unit == "bytes" else None
            outcome = simulate(prepared, question.policy, question.budget, size, table)
            rates.append(100 * outcome.hits / outcome.accesses)
        return tuple(rates)

    def _nominal(self, question: NominalMisses, replay: Replay) -> float:
        contract = Contract(replay, scope="global", warm="pass")
        domain = next(iter(self._traces(question.model)))
        prepared = self._prepared(question.model, domain, contract)
        size = self._expert_bytes(question.model)
        outcome = simulate(prepared, "lru", question.capacity, size)
        return outcome.misses * size / prepared.scored_iterations / _GB

    def _batch(self, question: BatchFigure) -> float:
        merged = self._merged(question.model)
        if question.figure == "deduplication":
            return merged.dedup
        if question.figure == "GB a step":
            read = merged.trace.num_reads * self._expert_bytes(question.model)
            return read / len(merged.active) / _GB
        if merged.accepted_tokens is None:
            raise InputError(f"{question.model}: traces that leave the accepted tokens unknown")
        return merged.accepted_tokens

    def _token_ratio(self, question: TokenRatio, replay: Replay) -> float:
        batch = self._misses_and_tokens(question, _MERGED, replay)
        alone = [
            self._misses_and_tokens(question, domain, replay)
            for domain in self._traces(question.model)
        ]
        misses = sum(misses for misses, _ in alone)
        tokens = sum(tokens for _, tokens in alone)
        return (batch[0] / batch[1]) / (misses / tokens)

    def _misses_and_tokens(
        self, question: TokenRatio, domain: str, replay: Replay
    ) -> tuple[int, int]:
        contract = Contract(replay, warm=_SHARE)
        prepared = self._prepared(question.model, domain, contract)
        accepted = self._workload(question.model, domain).accepted
        if accepted is None:
            raise InputError(f"{question.model}: traces that leave the accepted tokens unknown")
        tokens = int(accepted[scored_iterations(prepared)].sum())
        return simulate(prepared, "lru", question.budget).misses, tokens

    def _scope_difference(self, question: ScopeDifference, replay: Replay) -> float:
        points = self.scopes(question.model, question.domain, replay)
        return max(
            abs(point.globally - point.per_layer)
            for point in points
            if point.policy == "lru" and point.budget in question.budgets
        )

    def _expert_bytes(self, model: str) -> int:
        size: int | None = load_spec(model).expert_bytes
        if size is None:
            raise InputError(f"{model}: a model without a size of an expert")
        return size

    def _traces_of(self, model: str) -> Mapping[str, Trace]:
        if model in self._given:
            return self._given[model]
        spec = load_spec(model)
        if spec.parameters is None:
            raise InputError(f"{model}: a model without parameters: calibrate it first")
        return draw_all(spec, spec.parameters, self.seed)

    def _merged_of(self, model: str) -> Merged:
        return lockstep(list(self._traces(model).values()))

    def _workload_of(self, model: str, domain: str) -> Workload:
        if domain == _MERGED:
            return workload_of_trace(self._merged(model).trace)
        return workload_of_trace(self._traces(model)[domain])

    def _prepared_of(self, model: str, domain: str, contract: Contract) -> Prepared:
        return prepare(self._workload(model, domain).events, contract)


def _difference(published: Published, ours: tuple[float, ...]) -> float:
    def off(value: float) -> float:
        nearest = min(max(value, published.low), published.high)
        return value / nearest - 1 if published.relative else value - nearest

    return max((off(value) for value in ours), key=abs)
