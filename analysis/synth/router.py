# SPDX-License-Identifier: Apache-2.0
"""Draws what a synthetic router selects, token by token, all layers at once.

The domains of one seed share a model: which experts are never selected, the gains of the layers
and the common part of popularity depend on the seed alone.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagetier.analysis.synth.noise import Float32, Noise, quantile
from pagetier.analysis.synth.parameters import Parameters, Profile

__all__ = ["Selections", "Stream", "select"]

Uint16 = npt.NDArray[np.uint16]

# Popularity moves far slower than this many tokens; moving it at every token costs time only.
DRIFT_STRIDE = 16
# Scores are compared as integers with the expert's id in the low bits: no two are equal, so that
# the choice does not depend on how a sort breaks ties.
_SCORE_STEPS = 1 << 20
_ID_BITS = 16
_ID_MASK = (1 << _ID_BITS) - 1
_MODEL, _DOMAIN, _DRAFTS = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Stream:
    """Which tokens to draw: `domain` numbers the domain and `group` those like it."""

    seed: int
    domain: int
    group: int
    gain: float
    tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class Selections:
    """Ids in ascending order, shape (tokens, layers, k); `drafts` by the token they stand for."""

    tokens: Uint16
    drafts: dict[int, Uint16]


def profile_at(profile: Profile, depths: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Value at each depth of a piecewise-linear profile."""
    places, values = zip(*profile, strict=True)
    values_at: npt.NDArray[np.float64] = np.interp(depths, places, values)
    return values_at


def select(
    parameters: Parameters,
    stream: Stream,
    depths: npt.NDArray[np.float64],
    experts: int,
    top_k: int,
    draft_after: Collection[int] = (),
) -> Selections:
    """Selections of layers at `depths`, and a wrong draft after each token of `draft_after`."""
    router = _Router(parameters, stream, depths, experts, top_k)
    tokens = np.empty((stream.tokens, len(depths), top_k), dtype=np.uint16)
    drafts = {}
    for token in range(stream.tokens):
        router.advance(token)
        tokens[token] = router.selection()
        if token in draft_after:
            drafts[token] = router.wrong_draft()
    return Selections(tokens, drafts)


class _Router:
    def __init__(
        self,
        parameters: Parameters,
        stream: Stream,
        depths: npt.NDArray[np.float64],
        experts: int,
        top_k: int,
    ) -> None:
        self._parameters, self._top_k = parameters, top_k
        self._shape = (len(depths), experts)
        model = Noise(stream.seed, _MODEL)
        gain = profile_at(parameters.gain, depths) * stream.gain
        jitter = np.exp(parameters.gain_jitter * model.normal(len(depths)))
        self._gain = (gain * jitter).astype(np.float32)[:, np.newaxis]
        in_use = parameters.in_use_scale * profile_at(parameters.in_use, depths)
        idle = model.uniform(*self._shape) > in_use[:, np.newaxis]
        self._offset = np.where(idle, np.float32(-parameters.idle_penalty), np.float32(0))
        self._noise = Noise(stream.seed, _DOMAIN, stream.domain)
        # Of their own, so that the accepted tokens are the same whichever drafts failed.
        self._draft_noise = Noise(stream.seed, _DRAFTS, stream.domain)
        self._popular = self._first_popularity(model, stream)
        self._topic = self._noise.normal(*self._shape)
        self._phrase = self._noise.normal(*self._shape)
        self._stretch = np.float32(1)
        self._base = self._popularity_score()

    def _first_popularity(self, model: Noise, stream: Stream) -> Float32:
        """Correlated `shared` between all domains, `grouped` inside a group; one core for all."""
        shared = self._parameters.shared
        grouped = max(self._parameters.grouped, shared)
        of_all = model.normal(*self._shape)
        of_group = Noise(stream.seed, _MODEL, 1 + stream.group).normal(*self._shape)
        own = self._noise.normal(*self._shape)
        popular: Float32 = (
            np.float32(math.sqrt(shared)) * of_all
            + np.float32(math.sqrt(grouped - shared)) * of_group
            + np.float32(math.sqrt(1 - grouped)) * own
        )
        if not self._parameters.core:
            return popular
        by_rank = np.sort(_ordered(of_all + self._offset), axis=1) & _ID_MASK
        core = by_rank[:, -self._parameters.core :]
        np.put_along_axis(popular, core, np.take_along_axis(of_all, core, axis=1), axis=1)
        return popular

    def advance(self, token: int) -> None:
        """Move the slow, the middle and the fast part of the scores on to `token`."""
        parameters = self._parameters
        if token == 0:
            return
        if token % DRIFT_STRIDE == 0:
            if parameters.drift_tokens is not None:
                self._popular = self._moved(self._popular, DRIFT_STRIDE / parameters.drift_tokens)
            beyond = max(token / parameters.settled_tokens, 1.0)
            self._stretch = np.float32(1 + parameters.lengthening * math.log(beyond))
            self._base = self._popularity_score()
        self._topic = self._moved(self._topic, 1 / parameters.topic_tokens)
        self._phrase = self._moved(self._phrase, 1 / parameters.phrase_tokens)

    def _moved(self, state: Float32, time: float) -> Float32:
        return _kept(state, math.exp(-time), self._noise)

    def _popularity_score(self) -> Float32:
        scale = self._gain * self._stretch * np.float32(self._parameters.popularity)
        levelled = _levelled(self._popular)
        score: Float32 = scale * _skewed(levelled, self._parameters.skew) + self._offset
        return score

    def _scores(self, phrase: Float32, noise: Noise) -> Float32:
        parameters = self._parameters
        context = (
            np.float32(parameters.topic) * self._topic + np.float32(parameters.phrase) * phrase
        )
        fresh = noise.normal(*self._shape)
        scores: Float32 = self._base + self._gain * self._stretch * context + fresh
        return scores

    def selection(self) -> Uint16:
        """The experts of the token at hand."""
        return self._best(self._scores(self._phrase, self._noise))

    def wrong_draft(self) -> Uint16:
        """The experts of a next token that is then thrown away: same topic, another phrase."""
        noise = self._draft_noise
        followed = _kept(self._phrase, math.exp(-1 / self._parameters.phrase_tokens), noise)
        strayed = _kept(followed, 1 - self._parameters.draft_fresh, noise)
        return self._best(self._scores(strayed, noise))

    def _best(self, scores: Float32) -> Uint16:
        best = np.partition(_ordered(scores), -self._top_k, axis=1)[:, -self._top_k :]
        return np.sort(best & _ID_MASK, axis=1).astype(np.uint16)


def _kept(state: Float32, keep: float, noise: Noise) -> Float32:
    """An autoregressive step that keeps mean 0 and variance 1."""
    fresh = noise.normal(*state.shape)
    return np.float32(keep) * state + np.float32(math.sqrt(1 - keep * keep)) * fresh


def _ordered(scores: Float32) -> npt.NDArray[np.int64]:
    """Integers in the order of the scores, the id in their low bits."""
    keys = (scores * np.float32(_SCORE_STEPS)).astype(np.int64)
    keys <<= _ID_BITS
    keys |= np.arange(scores.shape[1])
    return keys


def _levelled(normal: Float32) -> Float32:
    """Each row's ranks as quantiles of the normal: layers then differ by their gain, not by luck.

    The published shares of the first, the last and the most concentrated layer leave no room for
    the spread that independent draws of a few popular experts have.
    """
    by_rank = np.sort(_ordered(normal), axis=1) & _ID_MASK
    places = (np.arange(normal.shape[1]) + 0.5) / normal.shape[1]
    levelled = np.empty_like(normal)
    np.put_along_axis(levelled, by_rank, quantile(places)[np.newaxis], axis=1)
    return levelled


def _skewed(normal: Float32, shape: float) -> Float32:
    """Standard normal to standardised Gamma of this shape (the cube of Wilson and Hilferty)."""
    third = 1 / (9 * shape)
    root = np.maximum(np.float32(1 - third) + np.float32(math.sqrt(third)) * normal, np.float32(0))
    skewed: Float32 = np.float32(math.sqrt(shape)) * (root * root * root - np.float32(1))
    return skewed
