# SPDX-License-Identifier: Apache-2.0
"""What "Who Should Own the Expert Cache? Kernel-Managed Tiering for Trillion-Parameter MoE
Inference" says about its traces, each figure with the section that says it and how it is computed.

Hit rates are in per cent, as published.  A goal stands where the published locality determines the
figure: nominal misses within 5 %, hit rates of LRU and of Belady within 3 points.  Those of tables
and of LFU also depend on how popularity drifts, which nothing that was published tells.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from pagetier.analysis.simulators import Budget
from pagetier.analysis.simulators.contract import Scope

__all__ = [
    "PUBLISHED",
    "BatchFigure",
    "HitRate",
    "NominalMisses",
    "Published",
    "Question",
    "ScopeDifference",
    "TokenRatio",
]

K3, QWEN, DEEPSEEK = "kimi-k3", "qwen3-30b-a3b", "deepseek-v3"
PROSE, CODE, MATH, CHAT = "prose", "code", "math", "chat"

_GB = 10**9
_MISSES_WITHIN = 0.05
_POINTS_WITHIN = 3.0


@dataclass(frozen=True, slots=True)
class HitRate:
    """Of the last 40 % of the iterations, the first 60 % warming; the mean over the domains where
    none is named, else each of them.

    fit: of `static`, the domain whose warming part the table is from, or "replayed": all of the
    trace that is scored, whole, after a pass that warms.  merged: of the batch of all domains.
    """

    model: str
    policy: str
    budget: Budget
    domains: tuple[str, ...] = ()
    scope: Scope = "per-layer"
    fit: str | None = None
    merged: bool = False


@dataclass(frozen=True, slots=True)
class NominalMisses:
    """GB an iteration that one LRU for all layers misses of the prose trace in its second pass."""

    model: str
    capacity: Budget


@dataclass(frozen=True, slots=True)
class BatchFigure:
    """Of the batch of all domains, cut at the end of the shortest."""

    model: str
    figure: Literal["GB a step", "deduplication", "accepted tokens"]


@dataclass(frozen=True, slots=True)
class TokenRatio:
    """LRU misses per accepted token of the batch, over those of the single streams together."""

    model: str
    budget: Budget


@dataclass(frozen=True, slots=True)
class ScopeDifference:
    """Points between one LRU for all layers and one for each, at the budget where most."""

    model: str
    domain: str
    budgets: tuple[int, ...]


Question = HitRate | NominalMisses | BatchFigure | TokenRatio | ScopeDifference


@dataclass(frozen=True, slots=True)
class Published:
    """A figure, or a range from `low` to `high`.  within: how far from it meets the goal, in the
    figure's unit for hit rates and relative for bytes; None where nothing is aimed at."""

    where: str
    what: str
    low: float
    high: float
    unit: str
    question: Question
    within: float | None = None
    relative: bool = False


def _experts(count: int) -> Budget:
    return Budget("experts", count)


def _rate(
    where: str,
    what: str,
    published: float | tuple[float, float],
    question: HitRate,
) -> Published:
    low, high = published if isinstance(published, tuple) else (published, published)
    within = _POINTS_WITHIN if question.policy in ("lru", "belady") else None
    return Published(where, what, low, high, "%", question, within)


def _nominal(capacity_gb: int, gb: float) -> Published:
    question = NominalMisses(K3, Budget("bytes", capacity_gb * _GB))
    what = f"nominal misses, C = {capacity_gb} GB"
    return Published("table 2", what, gb, gb, "GB/it", question, _MISSES_WITHIN, True)


_TABLE_2 = (_nominal(448, 5.3), _nominal(256, 8.1), _nominal(128, 11.6), _nominal(64, 15.1))

_FIGURE_1 = (
    _rate("3, fig. 1", "E = 896, B = 8, LRU", 0.5, HitRate(K3, "lru", _experts(8))),
    _rate("3, fig. 1", "E = 896, B = 8, LFU", 12.7, HitRate(K3, "lfu", _experts(8))),
    _rate("3, fig. 1", "E = 896, B = 8, static", 9.8, HitRate(K3, "static", _experts(8))),
    _rate("3", "E = 896, B = 16, chat, LRU", 19.4, HitRate(K3, "lru", _experts(16), (CHAT,))),
    _rate("3", "E = 896, B = 16, chat, static", 15.5, HitRate(K3, "static", _experts(16), (CHAT,))),
    _rate("3, fig. 1", "E = 896, B = 32, LRU", 44, HitRate(K3, "lru", _experts(32))),
    _rate("3, fig. 1", "E = 896, B = 32, static", 23, HitRate(K3, "static", _experts(32))),
    _rate("3, 7", "E = 896, B = 32, Belady", 62, HitRate(K3, "belady", _experts(32))),
    _rate("3, fig. 1", "E = 128, B = 8, LRU", 30.1, HitRate(QWEN, "lru", _experts(8))),
    _rate("3, fig. 1", "E = 128, B = 8, LFU", 36.0, HitRate(QWEN, "lfu", _experts(8))),
    _rate("3, fig. 1", "E = 128, B = 8, static", 33.9, HitRate(QWEN, "static", _experts(8))),
    _rate("3, fig. 1", "E = 128, B = 32, LRU", 75, HitRate(QWEN, "lru", _experts(32))),
    _rate("3, fig. 1", "E = 128, B = 32, static", 73, HitRate(QWEN, "static", _experts(32))),
    _rate("3, fig. 1", "E = 256, B = 32, LRU", 48, HitRate(DEEPSEEK, "lru", _experts(32))),
    _rate("3", "E = 256, B = 32, static", 35, HitRate(DEEPSEEK, "static", _experts(32))),
)


def _scope(policy: str, published: float, scope: Scope) -> Published:
    question = HitRate(K3, policy, _experts(16 if scope == "per-layer" else 1472), (PROSE,), scope)
    return _rate("3", f"1,472 experts, prose, {scope}, {policy}", published, question)


_SCOPES = (
    _scope("lru", 16.8, "global"),
    _scope("static", 18.8, "global"),
    _scope("lru", 19.5, "per-layer"),
    _scope("static", 17.5, "per-layer"),
    Published(
        "3",
        "prose, LRU, global against per-layer, every budget",
        0,
        2.7,
        "points",
        ScopeDifference(K3, PROSE, (8, 16, 32, 64, 96, 159, 224)),
    ),
)

_OTHERS = (CODE, MATH, CHAT)
_OFF_DOMAIN = (
    _rate(
        "6, fig. 5",
        "B = 159, prose table on prose",
        57,
        HitRate(K3, "static", _experts(159), (PROSE,), fit=PROSE),
    ),
    _rate(
        "6, fig. 5",
        "B = 159, prose table off domain",
        (21, 45),
        HitRate(K3, "static", _experts(159), _OTHERS, fit=PROSE),
    ),
    _rate("6, fig. 5", "B = 159, LRU on prose", 74, HitRate(K3, "lru", _experts(159), (PROSE,))),
    _rate(
        "6, fig. 5",
        "B = 159, LRU on the others",
        (70, 71),
        HitRate(K3, "lru", _experts(159), _OTHERS),
    ),
    _rate(
        "6",
        "C = 256 GB, prose, table of the whole trace",
        73.2,
        HitRate(K3, "static", Budget("bytes", 256 * _GB), (PROSE,), "global", fit="replayed"),
    ),
)

_QUARTER = Budget("fraction", Fraction(1, 4))
_BATCH = (
    Published("3", "batch of 4", 108, 108, "GB/step", BatchFigure(K3, "GB a step")),
    Published("3", "batch of 4, deduplication", 1.08, 1.08, "x", BatchFigure(K3, "deduplication")),
    Published("3", "batch of 4", 1078, 1078, "tokens", BatchFigure(K3, "accepted tokens")),
    _rate("3", "25 % of the pool, one stream, LRU", 78, HitRate(K3, "lru", _QUARTER)),
    _rate("3", "25 % of the pool, batch of 4, LRU", 64, HitRate(K3, "lru", _QUARTER, merged=True)),
    Published("3", "B = 125, misses per token", 1.45, 1.45, "x", TokenRatio(K3, _experts(125))),
    Published(
        "3", "E = 128, B = 32, misses per token", 1.54, 1.54, "x", TokenRatio(QWEN, _experts(32))
    ),
)

PUBLISHED = (*_TABLE_2, *_FIGURE_1, *_SCOPES, *_OFF_DOMAIN, *_BATCH)
