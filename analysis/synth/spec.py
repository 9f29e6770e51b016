# SPDX-License-Identifier: Apache-2.0
"""A model to be imitated: its geometry, the statistics published of it, and its parameters.

`targets` are what calibration may see; `predictions` are published too, and kept from it.
"""

from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, model_validator

from pagetier.analysis.errors import InputError
from pagetier.analysis.synth.parameters import Parameters, Strict
from pagetier.analysis.units import parse_bytes

__all__ = ["Domain", "ModelSpec", "Predictions", "Range", "Targets"]

# All scores of a token are in memory at once: 50 times the largest model that is known.
MAX_EXPERTS = 1 << 22
Count = Annotated[int, Field(gt=0, le=1_000_000)]


def _bytes(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("a size is a number of bytes or a string such as '17.55 MB'")
    try:
        return parse_bytes(value)
    except InputError as error:
        raise ValueError(str(error)) from None


def _ends(value: object) -> object:
    """One number is a range of no width; whole numbers are numbers."""
    ends = value if isinstance(value, list) else [value, value]
    return [float(end) if type(end) is int else end for end in ends]


Bytes = Annotated[int, BeforeValidator(_bytes), Field(gt=0)]
FreeName = Literal[
    "popularity",
    "topic",
    "phrase",
    "topic_tokens",
    "phrase_tokens",
    "drift_tokens",
    "skew",
    "in_use_scale",
    "idle_penalty",
    "lengthening",
]
Range = Annotated[
    list[Annotated[float, Field(ge=0)]],
    BeforeValidator(_ends),
    Field(min_length=2, max_length=2),
]


class Domain(Strict):
    """A workload: domains of one group are alike; its trace's iterations and their outcomes."""

    group: str
    gain: Annotated[float, Field(gt=0, le=10)] = 1.0
    iterations: Count
    accepts: Annotated[int, Field(ge=0)] = 0
    fallbacks: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _outcomes_fit(self) -> "Domain":
        if self.accepts + self.fallbacks > self.iterations:
            raise ValueError("more accepts and fallbacks than iterations")
        return self


class Targets(Strict):
    """Published ranges over the domains; a statistic that is absent is not calibrated to."""

    zipf_alpha: Range | None = None
    reuse_1: Range | None = None
    reuse_8: Range | None = None
    reuse_64: Range | None = None
    top8_share: Range | None = None
    top8_first_layer: Range | None = None
    top8_highest_layer: Range | None = None
    top8_last_layer: Range | None = None
    coverage: Range | None = None
    # Of the first domain's trace.
    reads_per_iteration: Range | None = None
    # Between any two domains, and experts of a layer that any domain used.
    jaccard: Range | None = None
    union_narrowest_layer: Range | None = None
    union_widest_layer: Range | None = None

    @model_validator(mode="after")
    def _ranges_rise(self) -> "Targets":
        for name, ends in self.known().items():
            if ends[0] > ends[1]:
                raise ValueError(f"{name}: a range is [least, greatest]")
        return self

    def known(self) -> dict[str, list[float]]:
        """The statistics that have a target."""
        return self.model_dump(exclude_none=True)


class LongContext(Strict):
    """Published statistics of longer traces of the same domains."""

    iterations: Count
    targets: Targets


class CapacityMisses(Strict):
    """Misses of one LRU of this capacity, second of two replays, per iteration."""

    capacity: Bytes
    missed: Bytes


class Predictions(Strict):
    """Published figures that nothing was fitted to, of the first domain or of all at once.

    `informed` names those that had a say in what is set by hand, such as a domain's iterations:
    they agree partly by construction, and are shown so.
    """

    lru_misses: list[CapacityMisses] = Field(default=[])
    batch_bytes_per_step: Bytes | None = None
    batch_dedup: Annotated[float, Field(gt=0)] | None = None
    batch_accepted_tokens: Count | None = None
    informed: list[Literal["batch_bytes_per_step", "batch_dedup", "batch_accepted_tokens"]] = Field(
        default=[]
    )


class ModelSpec(Strict):
    """One file of targets."""

    model: str
    source: str | None = None
    layers: Annotated[int, Field(gt=0, le=10_000)]
    experts: Annotated[int, Field(gt=0, le=1 << 16)]
    top_k: Annotated[int, Field(gt=0)]
    expert_bytes: Bytes | None = None
    domains: Annotated[dict[str, Domain], Field(min_length=1)]
    targets: Targets
    long_context: LongContext | None = None
    # Experts a layer in the sets whose overlap is the Jaccard of two domains.
    jaccard_top: Count = 16
    predictions: Predictions = Predictions()
    # None: calibration finds them, from its own start.
    parameters: Parameters | None = None
    free: list[FreeName] = Field(
        default=[
            "popularity",
            "topic",
            "phrase",
            "topic_tokens",
            "phrase_tokens",
            "skew",
        ]
    )

    @model_validator(mode="after")
    def _selection_fits(self) -> "ModelSpec":
        if self.top_k > self.experts:
            raise ValueError(f"top_k {self.top_k} is more than experts {self.experts}")
        if self.layers * self.experts > MAX_EXPERTS:
            raise ValueError(f"layers x experts is more than {MAX_EXPERTS}")
        return self

    @property
    def depths(self) -> npt.NDArray[np.float64]:
        """Depth of each layer, 0 for the first and 1 for the last."""
        return np.linspace(0, 1, self.layers)

    def group_number(self, domain: str) -> int:
        """Groups are numbered as their names first appear."""
        groups = list(dict.fromkeys(entry.group for entry in self.domains.values()))
        return groups.index(self.domains[domain].group)
