# SPDX-License-Identifier: Apache-2.0
"""Iterations of a synthetic trace, and the passes that each of them issues."""

import numpy as np
import pytest

from pagetier.analysis.synth.router import Selections
from pagetier.analysis.synth.schedule import passes, plan_schedule


def test_the_published_mixture() -> None:
    schedule = plan_schedule(285, 14, 16)
    assert [schedule.kinds.count(kind) for kind in "naf"] == [255, 14, 16]
    assert schedule.tokens == 299
    assert len(schedule.draft_after) == 16


@pytest.mark.parametrize(
    ("mixture", "inside"),
    [((285, 14, 16), 254), ((242, 57, 4), 299), ((263, 36, 5), 275), ((290, 9, 8), 250)],
)
def test_tokens_inside_the_shortest_domain(mixture: tuple[int, int, int], inside: int) -> None:
    """The four add up to the published 1078."""
    assert 242 + plan_schedule(*mixture).kinds[:242].count("a") == inside


def test_outcomes_are_spread_evenly() -> None:
    places = [i for i, kind in enumerate(plan_schedule(100, 10, 0).kinds) if kind == "a"]
    assert set(np.diff(places)) == {10}


def test_passes_unite_what_was_routed_together() -> None:
    """Two layers, k = 2: normal, accepted pair, fallback."""
    tokens = np.array(
        [[[1, 2], [1, 2]], [[4, 5], [6, 7]], [[5, 6], [6, 7]], [[0, 1], [2, 3]]], dtype=np.uint16
    )
    schedule = plan_schedule(3, 1, 1)
    assert schedule.kinds == "naf"
    issued = passes(schedule, Selections(tokens, {3: np.array([[1, 8], [2, 3]], dtype=np.uint16)}))
    held = [[row[row >= 0].tolist() for row in one.experts] for one in issued]
    assert [one.step for one in issued] == [0, 1, 2, 2]
    assert held == [
        [[1, 2], [1, 2]],
        [[4, 5, 6], [6, 7]],
        [[0, 1, 8], [2, 3]],
        [[0, 1], [2, 3]],
    ]


def test_a_draft_belongs_to_the_token_that_it_followed() -> None:
    schedule = plan_schedule(5, 2, 1)
    place = schedule.kinds.index("f")
    token = place + schedule.kinds[:place].count("a")
    assert schedule.draft_after == frozenset({token})
