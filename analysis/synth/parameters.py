# SPDX-License-Identifier: Apache-2.0
"""The parameters of a synthetic router, and what each of them means.

Every expert of a layer has a score; a token selects the k experts of the highest scores:

    score = gain(layer, domain, context) * (popularity * P + topic * T + phrase * F) + noise

P, T and F are standard normal per expert (P skewed by `skew`) and drift at three speeds: over
`drift_tokens`, `topic_tokens` and `phrase_tokens` a score keeps 1/e of what it was; the noise is
new with each token, and standard normal.  The defaults are where calibration starts.
"""

from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = ["Parameters", "Profile", "Strict"]

Positive = Annotated[float, Field(gt=0, le=1e9)]
Share = Annotated[float, Field(ge=0, le=1)]
Strength = Annotated[float, Field(ge=0, le=100)]


class Strict(BaseModel):
    """What the files of this package are read into: no unknown key, no silent conversion."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _rising(points: list[list[float]]) -> list[list[float]]:
    depths = [point[0] for point in points]
    if any(after <= before for before, after in pairwise(depths)):
        raise ValueError("depths must rise from point to point")
    return points


# Pairs of depth (0 first layer, 1 last) and value, by rising depth; linear in between.
Point = Annotated[list[Annotated[float, Field(ge=0, le=10)]], Field(min_length=2, max_length=2)]
Profile = Annotated[list[Point], Field(min_length=1), AfterValidator(_rising)]


class Parameters(Strict):
    """What the generator needs beside the geometry of a model."""

    popularity: Strength = 1.3
    topic: Strength = 1.3
    phrase: Strength = 1.9
    topic_tokens: Positive = 9.0
    phrase_tokens: Positive = 1.65
    # None is a popularity that never changes.
    drift_tokens: Positive | None = None
    # Shape of the Gamma that popularity follows: 1 is exponential, a large one normal.
    skew: Annotated[float, Field(ge=0.2, le=1e6)] = 4.0
    gain: Profile = [[0.0, 0.5], [0.06, 0.8], [0.2, 0.95], [0.85, 1.03], [1.0, 0.85]]
    # exp(jitter * N) multiplies the gain of a layer.
    gain_jitter: Share = 0.0
    # Share of a layer's experts that are in use, times its scale; the penalty is what the scores
    # of the others lose.
    in_use: Profile = [[0.0, 1.0], [1.0, 1.0]]
    in_use_scale: Positive = 1.0
    idle_penalty: Annotated[float, Field(ge=0, le=1000)] = 1000.0
    # What the gain grows by for each e-fold of the context beyond the settled tokens.
    lengthening: Annotated[float, Field(ge=0, le=10)] = 0.0
    settled_tokens: Positive = 400.0
    # Correlation of popularity between any two domains, and between those of one group.
    shared: Share = 0.3
    grouped: Share = 0.8
    # Experts of a layer, of those in use, that are popular in every domain.
    core: Annotated[int, Field(ge=0, le=1 << 16)] = 0
    # New part of the phrase in the draft of a token that speculation gets wrong.
    draft_fresh: Share = 0.5
