# SPDX-License-Identifier: Apache-2.0
"""What a synthetic router selects: k distinct experts, fixed by the seed, as its parameters say."""

import hashlib

import numpy as np
import pytest

from pagetier.analysis.synth.parameters import Parameters
from pagetier.analysis.synth.router import Selections, Stream, select

DEPTHS = np.linspace(0, 1, 3)
EVEN = Parameters(popularity=0.0, topic=0.0, phrase=0.0)


def draw(parameters: Parameters, tokens: int = 200, **changes: int) -> Selections:
    stream = {"seed": 5, "domain": 0, "group": 0, "tokens": tokens, **changes}
    return select(parameters, Stream(gain=1.0, **stream), DEPTHS, experts=40, top_k=6)


def reuse(selections: Selections, lag: int = 1) -> float:
    """Share of a token's experts that the token `lag` before it had."""
    now, before = selections.tokens[lag:], selections.tokens[:-lag]
    return float((now[..., :, None] == before[..., None, :]).any(-1).mean())


def test_each_token_selects_k_distinct_experts_in_ascending_order() -> None:
    tokens = draw(Parameters()).tokens
    assert tokens.shape == (200, 3, 6)
    assert np.all(np.diff(tokens.astype(int), axis=2) > 0)
    assert tokens.max() < 40


def test_the_same_seed_gives_the_same_bits() -> None:
    """Golden: a change of this digest changes every trace that was ever made."""
    tokens = draw(Parameters(drift_tokens=50.0, lengthening=0.1, settled_tokens=20.0)).tokens
    digest = hashlib.sha256(tokens.astype("<u2").tobytes()).hexdigest()
    assert digest[:16] == GOLDEN
    assert not np.array_equal(draw(Parameters(), seed=6).tokens, draw(Parameters()).tokens)


GOLDEN = "3282e6a0b95497f5"


def test_drafts_leave_the_accepted_tokens_alone() -> None:
    """The draft of a token shares its topic, and is no token of the chain."""
    parameters = Parameters(draft_fresh=0.5)
    stream = Stream(seed=5, domain=0, group=0, gain=1.0, tokens=50)
    with_drafts = select(parameters, stream, DEPTHS, 40, 6, draft_after={3, 49})
    without = select(parameters, stream, DEPTHS, 40, 6)
    assert np.array_equal(with_drafts.tokens, without.tokens)
    assert list(with_drafts.drafts) == [3, 49]
    assert with_drafts.drafts[49].shape == (3, 6)


def test_even_scores_are_uniform_and_without_memory() -> None:
    selections = draw(EVEN, tokens=3000)
    counts = np.bincount(selections.tokens.reshape(-1), minlength=40)
    assert counts.min() > 0.88 * counts.mean() and counts.max() < 1.12 * counts.mean()
    assert reuse(selections) == pytest.approx(6 / 40, abs=0.005)


def test_the_phrase_fades_faster_than_the_topic() -> None:
    phrase = Parameters(popularity=0.0, topic=0.0, phrase=3.0, phrase_tokens=2.0)
    topic = Parameters(popularity=0.0, topic=3.0, phrase=0.0, topic_tokens=20.0)
    assert reuse(draw(phrase)) > 0.25 > reuse(draw(phrase), lag=12)
    assert reuse(draw(topic)) > reuse(draw(topic), lag=12) > 0.25
    assert reuse(draw(topic), lag=100) == pytest.approx(6 / 40, abs=0.05)


def test_popularity_stays_unless_it_drifts() -> None:
    fixed = draw(Parameters(popularity=2.0, topic=0.0, phrase=0.0), tokens=1200)
    moving = draw(
        Parameters(popularity=2.0, topic=0.0, phrase=0.0, drift_tokens=150.0), tokens=1200
    )
    assert reuse(fixed, lag=1000) == pytest.approx(reuse(fixed), abs=0.03)
    assert reuse(moving, lag=1000) < reuse(moving) - 0.2


def test_a_longer_context_is_more_concentrated() -> None:
    parameters = Parameters(lengthening=0.5, settled_tokens=100.0)
    selections = draw(parameters, tokens=2000)
    early = Selections(selections.tokens[:200], {})
    late = Selections(selections.tokens[-200:], {})
    assert reuse(late) > reuse(early) + 0.05


def test_idle_experts_are_those_of_the_model_in_every_domain() -> None:
    parameters = Parameters(in_use=[[0.0, 0.5]])
    first = {tuple(np.unique(row)) for row in draw(parameters, 1500).tokens.transpose(1, 0, 2)}
    other = draw(parameters, 1500, domain=1, group=1).tokens.transpose(1, 0, 2)
    assert first == {tuple(np.unique(row)) for row in other}
    assert all(10 <= len(used) <= 30 for used in first)


def test_the_penalty_only_makes_idle_experts_rare() -> None:
    parameters = Parameters(in_use=[[0.0, 0.5]], idle_penalty=3.0)
    rare = np.bincount(draw(parameters, 3000).tokens.reshape(-1), minlength=40)
    never = np.bincount(
        draw(Parameters(in_use=[[0.0, 0.5]]), 3000).tokens[:, 0].reshape(-1), minlength=40
    )
    first_layer = np.bincount(draw(parameters, 3000).tokens[:, 0].reshape(-1), minlength=40)
    idle = never == 0
    assert 0 < first_layer[idle].sum() < 0.1 * first_layer.sum()
    assert rare.min() > 0


def test_the_core_is_popular_in_every_domain_and_nothing_else_is() -> None:
    """Unlike domains share it alone; idle experts are no part of it."""
    alone = Parameters(shared=0.0, grouped=0.0, popularity=3.0, topic=0.2, phrase=0.2)

    def hottest(parameters: Parameters, domain: int) -> list[set[int]]:
        tokens = draw(parameters, 600, domain=domain, group=domain).tokens
        return [
            set(np.argsort(-np.bincount(row.ravel()))[:6].tolist())
            for row in tokens.transpose(1, 0, 2)
        ]

    def common(parameters: Parameters) -> list[int]:
        pairs = zip(hottest(parameters, 0), hottest(parameters, 1), strict=True)
        return [len(a & b) for a, b in pairs]

    halved = alone.model_copy(update={"in_use": [[0.0, 0.5]]})
    for parameters in (alone, halved):
        assert min(common(parameters.model_copy(update={"core": 4}))) >= 3
    assert sum(common(alone)) < 6


def test_a_core_of_more_than_all_experts_is_all_of_them() -> None:
    whole = Parameters(core=1000, shared=0.0, topic=0.0, phrase=0.0, popularity=50.0)
    assert np.array_equal(draw(whole).tokens[0], draw(whole, domain=1, group=1).tokens[0])


def test_domains_of_one_group_are_alike() -> None:
    parameters = Parameters(shared=0.1, grouped=0.95, popularity=3.0, topic=0.2, phrase=0.2)

    def hottest(**changes: int) -> set[tuple[int, int]]:
        tokens = draw(parameters, **changes).tokens
        counts = [np.bincount(tokens[:, layer].reshape(-1), minlength=40) for layer in range(3)]
        return {(i, int(e)) for i, c in enumerate(counts) for e in np.argsort(-c)[:8]}

    base = hottest(domain=0, group=0)
    assert len(base & hottest(domain=1, group=0)) > len(base & hottest(domain=2, group=1)) + 5
