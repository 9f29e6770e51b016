# SPDX-License-Identifier: Apache-2.0
"""The tap on the routers, without an engine: phases, layers, and what does not add up."""

import numpy as np
import pytest

from pagetier.analysis.errors import CapabilityError
from pagetier.analysis.traces.write import encode_trace
from pagetier.bench.engine.capture import Request, RoutedModel, build_trace
from pagetier.bench.engine.tap import RouterTap, Routes

LAYERS, TOP_K = (3, 5), 2


def ids(*values: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.int32]]":
    return np.array(values, dtype=np.int32).reshape(1, 1, 1, -1)


def decode(tap: RouterTap, choices: dict[int, tuple[int, int]]) -> None:
    tap.begin_decode()
    for layer, chosen in choices.items():
        assert tap.wants(f"ffn_moe_topk-{layer}")
        tap.take(f"ffn_moe_topk-{layer}", ids(*chosen))
    tap.end_decode()


@pytest.fixture
def tap() -> RouterTap:
    tap = RouterTap(LAYERS, TOP_K)
    tap.begin_prompt()
    return tap


def test_it_wants_routers_of_its_layers_while_a_token_is_decoded(tap: RouterTap) -> None:
    assert not tap.wants("ffn_moe_topk-3")
    tap.begin_decode()
    for name in ("ffn_moe_topk-3", "ffn_moe_topk-5", "ffn_moe_weights_norm-5"):
        assert tap.wants(name)
    for name in ("ffn_moe_topk-4", "ffn_moe_logits-3", "ffn_moe_weights_sum-3", "ffn_moe_topk"):
        assert not tap.wants(name)
    tap.begin_prompt()
    assert not tap.wants("ffn_moe_topk-3")


def test_layers_keep_the_order_of_the_model(tap: RouterTap) -> None:
    decode(tap, {5: (7, 1), 3: (0, 2)})
    decode(tap, {3: (4, 3), 5: (6, 5)})
    assert tap.routes().experts.tolist() == [[[0, 2], [7, 1]], [[4, 3], [6, 5]]]
    assert tap.routes().weights is None


def test_the_last_weights_of_a_layer_count(tap: RouterTap) -> None:
    tap.begin_decode()
    for layer in LAYERS:
        tap.take(f"ffn_moe_topk-{layer}", ids(layer, 1))
        raw = np.array([0.3, 0.1], dtype=np.float32)
        tap.take(f"ffn_moe_weights-{layer}", raw.reshape(1, 1, 2, 1))
        tap.take(f"ffn_moe_weights_norm-{layer}", (raw / raw.sum()).reshape(1, 1, 1, 2))
    tap.end_decode()
    weights = tap.routes().weights
    assert weights is not None and weights.shape == (1, 2, 2)
    np.testing.assert_allclose(weights[0], [[0.75, 0.25]] * 2, rtol=1e-6)


def test_a_new_prompt_starts_anew(tap: RouterTap) -> None:
    decode(tap, {3: (0, 1), 5: (2, 3)})
    tap.begin_prompt()
    assert tap.routes().experts.shape == (0, 2, 2)


def test_a_missing_layer_is_named(tap: RouterTap) -> None:
    with pytest.raises(CapabilityError, match="computed no ffn_moe_topk-5"):
        decode(tap, {3: (0, 1)})


def test_more_than_one_token_is_refused(tap: RouterTap) -> None:
    tap.begin_decode()
    with pytest.raises(CapabilityError, match="ffn_moe_topk-3 has 4 elements where a token has 2"):
        tap.take("ffn_moe_topk-3", ids(1, 2, 3, 4))


def request(number: int, experts: list[list[list[int]]]) -> Request:
    chosen = np.array(experts, dtype=np.int32)
    weights = np.full(chosen.shape, 0.1, dtype=np.float32)
    return Request(number, [1], [1] * (len(experts) + 1), Routes(chosen, weights))


def test_requests_become_a_trace_line_by_line() -> None:
    model = RoutedModel("m", (1, 2), 8, 2)
    requests = [request(0, [[[4, 1], [0, 7]], [[5, 2], [3, 0]]]), request(3, [[[6, 5], [2, 1]]])]
    encoded = encode_trace(build_trace(model, requests, "d", "s")).decode().splitlines()
    assert encoded == [
        '{"format":"moe-route-trace","version":1,"model":"m","num_layers":2,"num_experts":8,'
        '"top_k":2,"source":"s","phase":"decode","domain":"d"}',
        '{"req":0,"step":0,"layer":0,"experts":[4,1],"weights":[0.1,0.1]}',
        '{"req":0,"step":0,"layer":1,"experts":[0,7],"weights":[0.1,0.1]}',
        '{"req":0,"step":1,"layer":0,"experts":[5,2],"weights":[0.1,0.1]}',
        '{"req":0,"step":1,"layer":1,"experts":[3,0],"weights":[0.1,0.1]}',
        '{"req":3,"step":0,"layer":0,"experts":[6,5],"weights":[0.1,0.1]}',
        '{"req":3,"step":0,"layer":1,"experts":[2,1],"weights":[0.1,0.1]}',
    ]
