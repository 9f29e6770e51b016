# SPDX-License-Identifier: Apache-2.0
import hashlib
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagetier.analysis.errors import InputError
from pagetier.analysis.generate import default_trace
from pagetier.analysis.plans import build_plan
from pagetier.analysis.traces import Trace, encode_trace, read_trace


def selections(trace: Trace) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    """Shape (steps, layers, k)."""
    return trace.experts.reshape(-1, trace.header.num_layers, trace.header.top_k)


def reuse_of_previous(trace: Trace) -> float:
    """W1: share of a token's experts that the previous token used in the same layer."""
    chosen = selections(trace)
    same = chosen[1:, :, :, None] == chosen[:-1, :, None, :]
    return float(same.any(axis=3).mean())


@settings(max_examples=40, deadline=None)
@given(
    layers=st.integers(1, 4),
    experts=st.integers(1, 12),
    share=st.floats(0, 1),
    iterations=st.integers(1, 6),
    seed=st.integers(0, 2**64),
    zipf=st.floats(0, 3),
    reuse=st.floats(0, 1),
)
def test_any_arguments_give_a_valid_trace(
    tmp_path_factory: pytest.TempPathFactory,
    layers: int,
    experts: int,
    share: float,
    iterations: int,
    seed: int,
    zipf: float,
    reuse: float,
) -> None:
    top_k = max(1, round(share * experts))
    trace = default_trace(layers, experts, top_k, iterations, seed, zipf, reuse)
    path = tmp_path_factory.mktemp("generated") / "trace"
    path.write_bytes(encode_trace(trace))
    again = read_trace(path)
    assert build_plan(again).sha256 == build_plan(trace).sha256
    assert again.sha256 == trace.sha256


def test_the_same_seed_gives_the_same_trace() -> None:
    trace = default_trace(16, 32, 4, 60, seed=7)
    assert trace.sha256 == default_trace(16, 32, 4, 60, seed=7).sha256
    assert trace.sha256 != default_trace(16, 32, 4, 60, seed=8).sha256
    assert trace.sha256 == hashlib.sha256(encode_trace(trace)).hexdigest()
    assert build_plan(trace).sha256 == (
        "973a34a43269f512b0c77473bb66f68c611da37c95ea82e5cbc098dc1e7369ee"
    )


def test_shape_of_the_trace() -> None:
    trace = default_trace(3, 8, 2, 5, seed=1)
    assert trace.layer.tolist() == [0, 1, 2] * 5
    assert trace.step.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3
    assert trace.requests == ("synthetic:0",)
    assert trace.header.source == "generated: zipf 1.0, reuse 0.4, seed 1"


def test_without_knobs_routing_is_uniform() -> None:
    trace = default_trace(4, 32, 4, 1500, seed=5, zipf=0, reuse=0)
    assert reuse_of_previous(trace) == pytest.approx(4 / 32, abs=0.01)
    counts = np.bincount(build_plan(trace).experts, minlength=4 * 32)
    # 1500 x 4 / 32 = 187.5 a piece, standard deviation about 13.
    assert counts.min() > 187.5 - 5 * 13
    assert counts.max() < 187.5 + 5 * 13


def test_reuse_rises_with_its_knob() -> None:
    found = [
        reuse_of_previous(default_trace(4, 64, 4, 600, seed=2, zipf=0, reuse=reuse))
        for reuse in (0, 0.25, 0.5, 0.75, 1)
    ]
    # Fresh selections repeat by chance at most k/E of the time.
    assert found == pytest.approx([0.06, 0.29, 0.53, 0.76, 1], abs=0.02)


def test_popularity_follows_the_zipf_knob() -> None:
    for zipf in (0.5, 1.0):
        trace = default_trace(8, 64, 1, 4000, seed=9, zipf=zipf, reuse=0)
        chosen = selections(trace)
        counts = np.array([np.bincount(chosen[:, layer, 0], minlength=64) for layer in range(8)])
        ranked = np.sort(counts, axis=1)[:, ::-1].sum(axis=0)[:32]
        slope = np.polyfit(np.log(np.arange(1, 33)), np.log(ranked), 1)[0]
        assert slope == pytest.approx(-zipf, abs=0.08)


def test_layers_have_popular_experts_of_their_own() -> None:
    chosen = selections(default_trace(8, 64, 1, 2000, seed=9, reuse=0))
    favourites = {int(np.bincount(chosen[:, layer, 0]).argmax()) for layer in range(8)}
    assert len(favourites) > 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 8, 2, 5, 1), "0 layers"),
        ((3, 8, 9, 5, 1), "top-9"),
        ((3, 8, 0, 5, 1), "top-0"),
        ((3, 8, 2, 0, 1), "0 iterations"),
        ((3, 8, 2, 5, -1), "seed -1"),
        ((3, 8, 2, 5, 1, -0.1), "zipf -0.1"),
        ((3, 8, 2, 5, 1, float("nan")), "zipf nan"),
        ((3, 8, 2, 5, 1, 1.0, 1.1), "reuse 1.1"),
    ],
)
def test_impossible_arguments(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        default_trace(*arguments)
