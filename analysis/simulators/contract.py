# SPDX-License-Identifier: Apache-2.0
"""Under which rules a simulation counts: without them two hit rates cannot be compared."""

from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["Contract", "Order", "Replay", "Scope", "Start", "Warm"]

Replay = Literal["event", "access"]
Order = Literal["recorded", "ascending", "random"]
Scope = Literal["per-layer", "global"]
Start = Literal["once", "per-request"]
Warm = float | Literal["nothing", "pass"]


@dataclass(frozen=True, slots=True)
class Contract:
    """How a trace is replayed and what of it is scored.

    replay: `event` classifies an event against the cache as it stood at its start and admits and
    evicts after it (its experts are counted once); `access` does all of it expert by expert.
    order: within an event, under access replay; `random` is drawn anew in every event from `seed`.
    scope: a cache for each layer, or one for all.
    warm: what is replayed before scoring starts: nothing, the first share of the iterations, or a
    whole pass.  start: the cache is empty at the start of the trace, or of every request; each
    request then has its own warm share or pass.
    seed: settles ties, by one random ranking of all experts.
    """

    replay: Replay = "event"
    order: Order = "recorded"
    scope: Scope = "per-layer"
    warm: Warm = "nothing"
    start: Start = "once"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, kind in (
            ("replay", Replay),
            ("order", Order),
            ("scope", Scope),
            ("start", Start),
        ):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} {getattr(self, name)!r} is not one of {get_args(kind)}")
        if isinstance(self.warm, str):
            if self.warm not in ("nothing", "pass"):
                raise ValueError(f"warm {self.warm!r} is not nothing, pass or a share")
        elif not 0 <= self.warm < 1:
            raise ValueError(f"a warm share of {self.warm} leaves nothing to score")
        if self.replay == "event" and self.order != "recorded":
            raise ValueError("under event replay an event has no order")
        if self.seed < 0:
            raise ValueError(f"seed {self.seed} is negative")

    def as_document(self) -> dict[str, str | float | int | None]:
        """The contract as it stands in every output; `order` is None where there is none."""
        window: str | float | None = None if self.warm == "nothing" else self.warm
        return {
            "replay": self.replay,
            "order": self.order if self.replay == "access" else None,
            "scope": self.scope,
            "window": "warm-pass" if window == "pass" else window,
            "cold_start": self.start,
            "tie_seed": self.seed,
        }

    def describe(self) -> str:
        """The contract in one line."""
        replay = (
            "event-atomic" if self.replay == "event" else f"access by access, {self.order} order"
        )
        warm = {"nothing": "scored from a cold cache", "pass": "scored after a warm-up pass"}
        scored = (
            warm[self.warm]
            if isinstance(self.warm, str)
            else f"scored after the first {self.warm:g} of the iterations"
        )
        cold = "" if self.start == "once" else ", each request on its own"
        cache = "one cache a layer" if self.scope == "per-layer" else "one cache for all layers"
        return f"{replay}; {cache}; {scored}{cold}; tie seed {self.seed}"
