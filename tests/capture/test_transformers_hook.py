# SPDX-License-Identifier: Apache-2.0
"""The hook that users copy, on modules that return what the routers of transformers return."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagetier.analysis.traces import read_trace
from tests.conftest import ROOT

EXPERTS, TOP_K, LAYERS = 8, 3, 2
Output = Any


@pytest.fixture(scope="module")
def recorder_class() -> Any:
    path = ROOT / "examples" / "capture_transformers.py"
    spec = importlib.util.spec_from_file_location("capture_transformers", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.RouteRecorder


class Router:
    """A module that can be hooked, and is called with the logits that it is to have."""

    def __init__(self, output: Callable[[Any], Output]) -> None:
        self.output = output
        self.hooks: list[Callable[..., None]] = []

    def register_forward_hook(self, hook: Callable[..., None]) -> None:
        self.hooks.append(hook)

    def __call__(self, logits: Any) -> None:
        for hook in self.hooks:
            hook(self, (), self.output(logits))


class Model:
    def __init__(self, output: Callable[[Any], Output], name: str) -> None:
        self.routers = [Router(output) for _ in range(LAYERS)]
        self.name = name

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        yield "", self
        for layer, router in enumerate(self.routers):
            yield f"model.layers.{layer}.mlp.gate_proj", Router(lambda logits: logits)
            yield f"model.layers.{layer}.mlp.shared_expert_gate", Router(lambda logits: logits)
            yield f"model.layers.{layer}.{self.name}", router

    def forward(self, logits: Any) -> None:
        """[layers, tokens, experts]."""
        for router, one in zip(self.routers, logits, strict=True):
            router(one)


def ids_of(logits: Any) -> Any:
    return np.argsort(-logits, axis=-1)[..., :TOP_K]


def scattered(logits: Any) -> Any:
    scores = np.zeros_like(logits)
    np.put_along_axis(scores, ids_of(logits), 0.3, axis=-1)
    return scores


ROUTERS = {
    "logits (Qwen3, Mixtral, OLMoE)": (lambda logits: logits, "mlp.gate"),
    "logits of [batch, tokens] (DeepSeek)": (lambda logits: logits[np.newaxis], "mlp.gate"),
    "ids and weights": (lambda logits: (ids_of(logits), ids_of(logits) * 0.1), "moe.gate"),
    "logits, weights, ids": (lambda x: (x, ids_of(x) * 0.1, ids_of(x)), "mlp.gate"),
    "scattered scores and ids (gpt-oss)": (lambda x: (scattered(x), ids_of(x)), "mlp.router"),
}


@pytest.mark.parametrize("kind", ROUTERS)
def test_what_was_decoded_is_a_trace(recorder_class: Any, tmp_path: Path, kind: str) -> None:
    model = Model(*ROUTERS[kind])
    recorder = recorder_class(model, EXPERTS, TOP_K)
    random = np.random.default_rng(1)
    expected = []
    for steps in (4, 2):
        model.forward(random.standard_normal((LAYERS, 5, EXPERTS)))
        for _ in range(steps):
            logits = random.standard_normal((LAYERS, 1, EXPERTS))
            model.forward(logits)
            expected += ids_of(logits).reshape(-1).tolist()
    recorder.write(tmp_path / "mine.jsonl", "m")
    trace = read_trace(tmp_path / "mine.jsonl")
    assert (trace.header.num_layers, trace.header.num_experts, trace.header.top_k) == (2, 8, 3)
    assert trace.experts.tolist() == expected
    assert trace.requests == (0, 1)
    assert np.bincount(trace.request).tolist() == [4 * LAYERS, 2 * LAYERS]
