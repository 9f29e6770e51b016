# SPDX-License-Identifier: Apache-2.0
"""Captured ids against the router computed apart: the engine's own inputs times the file's weights.

Ids are compared exactly wherever the logits of neighbours in rank are further apart than float32
sums of these sizes can differ.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from pagetier.analysis.errors import CapabilityError
from pagetier.bench.engine.capture import Capturing, build_trace
from pagetier.bench.engine.llama import Engine, Loading, Sampling
from pagetier.bench.engine.prompts import Prompt
from pagetier.bench.engine.tap import RouterTap
from tests.capture.models import SMALL, domain_tokens
from tests.capture.taps import Array, FullTap

pytestmark = pytest.mark.capture

LOADING = Loading(threads=2, context_tokens=256)
DRAWN = Sampling(1.0, seed=11)
STEPS = 24
PROMPT = domain_tokens(SMALL, 0, 9)
ROUNDING = 1e-4
KINDS = ("ffn_norm", "ffn_moe_logits", "ffn_moe_topk", "ffn_moe_weights_norm")


@pytest.fixture(scope="module")
def computed(small: Path) -> list[dict[str, Array]]:
    """The prompt, then each decode."""
    tap = FullTap(KINDS)
    with Engine(small, LOADING, tap) as engine:
        engine.generate(PROMPT, STEPS, DRAWN)
    return tap.computed


@pytest.fixture(scope="module")
def routers(small: Path) -> list[NDArray[np.float64]]:
    """Weights of each layer's router, read from the files by the gguf package."""
    found = {}
    for path in small.parent.glob("*.gguf"):
        for tensor in gguf.GGUFReader(path).tensors:
            if tensor.name.endswith("ffn_gate_inp.weight"):
                layer = int(tensor.name.split(".")[1])
                found[layer] = np.array(tensor.data, dtype=np.float64)
    return [found[layer] for layer in range(SMALL.layers)]


@dataclass(frozen=True, slots=True)
class Choice:
    """One layer's choice of all tokens of a computation: the engine's ids, and all ids in the order
    computed here with the weights of the first k."""

    layer: int
    found: Array
    order: NDArray[np.int64]
    weights: NDArray[np.float64]


def choices(one: dict[str, Array], routers: list[NDArray[np.float64]]) -> Iterator[Choice]:
    for layer, router in enumerate(routers):
        logits = one[f"ffn_norm-{layer}"][0, 0].astype(np.float64) @ router.T
        order = np.argsort(-logits, axis=1)
        ranked = np.take_along_axis(logits, order, axis=1)[:, : SMALL.top_k + 1]
        assert (ranked[:, :-1] - ranked[:, 1:]).min() > ROUNDING, "a tie: choose another prompt"
        weights = np.exp(ranked[:, : SMALL.top_k] - ranked[:, :1])
        weights /= weights.sum(axis=1, keepdims=True)
        yield Choice(layer, one[f"ffn_moe_topk-{layer}"][0, 0], order, weights)


def test_ids_of_decoded_tokens_are_the_routers(
    computed: list[dict[str, Array]], routers: list[NDArray[np.float64]], small: Path
) -> None:
    with Capturing(small, LOADING) as capturing:
        request = capturing.request(Prompt(0, "code", tuple(PROMPT)), STEPS, DRAWN)
    assert request.routes.experts.shape == (STEPS, SMALL.layers, SMALL.top_k)
    assert request.routes.weights is not None
    for step, one in enumerate(computed[1:]):
        for choice in choices(one, routers):
            ids = request.routes.experts[step, choice.layer]
            weights = request.routes.weights[step, choice.layer]
            np.testing.assert_array_equal(ids, choice.order[0, : SMALL.top_k])
            np.testing.assert_allclose(weights, choice.weights[0], atol=1e-5)


def test_all_rows_of_a_prompt_are_read_with_their_stride(
    computed: list[dict[str, Array]], routers: list[NDArray[np.float64]]
) -> None:
    top_k = SMALL.top_k
    for choice in choices(computed[0], routers):
        # Of the last layer only the token is computed whose logits are asked for: one row, although
        # it is the prompt's.
        rows = 1 if choice.layer == SMALL.layers - 1 else len(PROMPT)
        assert choice.found.shape == (rows, top_k)
        np.testing.assert_array_equal(choice.found, choice.order[:, :top_k])
        if rows > 1:
            # What a reader without strides takes for the second token is the rest of the first.
            assert list(choice.found[1]) != list(choice.order[0, top_k : 2 * top_k])


def test_logits_are_read_as_they_are(
    computed: list[dict[str, Array]], routers: list[NDArray[np.float64]]
) -> None:
    for one in computed[:3]:
        for layer, router in enumerate(routers):
            expected = one[f"ffn_norm-{layer}"][0, 0].astype(np.float64) @ router.T
            np.testing.assert_allclose(one[f"ffn_moe_logits-{layer}"][0, 0], expected, atol=1e-4)


@pytest.mark.parametrize("length", [1, 2, 100])
def test_no_token_of_a_prompt_is_in_a_trace(small: Path, length: int) -> None:
    prompt = Prompt(4, "code", tuple(domain_tokens(SMALL, 0, length)))
    with Capturing(small, LOADING) as capturing:
        request = capturing.request(prompt, 5, DRAWN)
        trace = build_trace(capturing.routed, [request], "code", "test")
    assert request.steps == 5 and len(request.tokens) == 6 and len(request.prompt) == length
    assert trace.num_records == 5 * SMALL.layers
    assert set(np.diff(trace.record_start.astype(int))) == {SMALL.top_k}


def test_a_request_forgets_the_one_before(small: Path) -> None:
    first, second = (Prompt(n, "a", tuple(domain_tokens(SMALL, n, 4))) for n in range(2))
    with Capturing(small, LOADING) as capturing:
        kept = capturing.request(first, 6, DRAWN)
        capturing.request(second, 9, DRAWN)
        again = capturing.request(first, 6, DRAWN)
    np.testing.assert_array_equal(kept.routes.experts, again.routes.experts)


def test_a_layer_that_the_engine_does_not_show_is_missed(small: Path) -> None:
    with (
        Engine(small, LOADING, RouterTap([0, 1, 77], SMALL.top_k)) as engine,
        pytest.raises(CapabilityError, match="computed no ffn_moe_topk-77"),
    ):
        engine.generate(PROMPT, 2, DRAWN)
