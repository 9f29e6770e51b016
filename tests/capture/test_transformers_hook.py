# SPDX-License-Identifier: Apache-2.0
"""The hook that users copy, on stand-ins that return what the routers of transformers return.

The shapes and the arguments of a pass are those seen with tiny random models of transformers
4.55.4, 4.57.6 ("4.x") and 5.24.0 ("5.x"), on torch 2.13.
"""

import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pagetier.analysis.traces import read_trace
from tests.conftest import ROOT

EXPERTS, TOP_K, LAYERS = 8, 3, 2
Output = Any


class Tensor(np.ndarray):
    """As much of a tensor as the hook asks for."""

    def topk(self, k: int) -> Any:
        """Of equal values the last comes first: torch leaves it open, a stable sort does not."""
        return SimpleNamespace(indices=np.lexsort((-np.arange(self.size), -self))[:k])


def tensor(values: Any) -> Any:
    return np.asarray(values).view(Tensor)


class Hooked:
    """A module that can be hooked."""

    def __init__(self, **attributes: Any) -> None:
        self.hooks: list[Callable[..., None]] = []
        self.weights: dict[str, Any] = {}
        self.__dict__.update(attributes)

    def register_forward_hook(self, hook: Callable[..., None]) -> Any:
        self.hooks.append(hook)
        return SimpleNamespace(remove=lambda: self.hooks.remove(hook))

    def register_forward_pre_hook(self, hook: Callable[..., None], with_kwargs: bool) -> Any:
        assert with_kwargs
        return self.register_forward_hook(hook)

    def state_dict(self) -> dict[str, Any]:
        return self.weights


class Model(Hooked):
    """Layer 0 is dense, as in DeepSeek; the routers are called with the logits they are to have."""

    def __init__(self, output: Callable[[Any], Output], router: str = "mlp.gate") -> None:
        super().__init__()
        self.output, self.router = output, router
        self.modules: dict[str, Hooked] = {"": self, "model.layers.0.mlp": Hooked()}
        for layer in range(1, LAYERS + 1):
            block = f"model.layers.{layer}.{router.rpartition('.')[0]}"
            self.modules[block] = Hooked()
            for name in ("gate_proj", "shared_expert_gate"):
                self.modules[f"{block}.{name}"] = Hooked()
            self.modules[f"model.layers.{layer}.{router}"] = Hooked()

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        yield from self.modules.items()

    def begin(self, position: int, tokens: int = 1, **inputs: Any) -> None:
        positions = tensor([range(position, position + tokens)])
        for hook in self.hooks:
            hook(self, (), {"position_ids": positions, "use_cache": True} | inputs)

    def route(self, layer: int, logits: Any) -> None:
        router = self.modules[f"model.layers.{layer + 1}.{self.router}"]
        for hook in router.hooks:
            hook(router, (), self.output(tensor(logits)))

    def forward(self, position: int, logits: Any) -> None:
        """Logits of [layers, tokens, experts]."""
        self.begin(position, logits.shape[1])
        for layer, one in enumerate(logits):
            self.route(layer, one)

    def generate(self, prompt: int, steps: int, random: np.random.Generator) -> list[int]:
        """The ids that were chosen in the decode."""
        expected: list[int] = []
        self.forward(0, random.standard_normal((LAYERS, prompt, EXPERTS)))
        for step in range(steps):
            logits = random.standard_normal((LAYERS, 1, EXPERTS))
            self.forward(prompt + step, logits)
            expected += ids_of(logits).reshape(-1).tolist()
        return expected


@pytest.fixture(scope="module")
def recorder_class() -> Any:
    path = ROOT / "examples" / "capture_transformers.py"
    spec = importlib.util.spec_from_file_location("capture_transformers", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.RouteRecorder


def ids_of(logits: Any) -> Any:
    return np.argsort(-logits, axis=-1)[..., :TOP_K]


def weights(logits: Any) -> Any:
    return tensor(np.full((*logits.shape[:-1], TOP_K), 0.3))


def scattered(logits: Any) -> Any:
    scores = np.zeros_like(logits)
    np.put_along_axis(scores, ids_of(logits), 0.3, axis=-1)
    return scores


def sorted_tokens(logits: Any) -> Output:
    """Ranks of the experts and not their ids, vectors both, and a list of how many got which."""
    flat = ids_of(logits).reshape(-1)
    ranks = tensor(np.argsort(flat))
    sizes = np.bincount(flat, minlength=EXPERTS).tolist()
    return ranks, tensor(ranks // TOP_K), weights(logits).reshape(-1), sizes, logits


ROUTERS = {
    # 4.x: Mixtral, PhiMoE and MiniMax in block_sparse_moe; Qwen2, Qwen3, OLMoE, Qwen3-Next in mlp;
    # Jamba and Aria call it router.  A Linear.  5.x: DBRX.
    "logits": (lambda x: x, "block_sparse_moe.gate"),
    # 5.x: Mixtral, Qwen2, Qwen3, Qwen3-Next, OLMoE, DeepSeek 2, 3 and 4, GLM 4, gpt-oss, Granite,
    # Ernie 4.5, Jamba, PhiMoE, MiniMax, Aria, LFM2, Gemma 4, Nemotron-H and nearly all others.
    "logits, weights, ids": (lambda x: (x, weights(x), ids_of(x)), "mlp.gate"),
    # 4.x: DeepSeek 2 and 3, GLM 4, dots.1: no logits at all, unsorted.
    "ids, weights": (lambda x: (ids_of(x), weights(x)), "mlp.gate"),
    # 4.x: gpt-oss: scores, zero for all the others.
    "scattered scores, ids": (lambda x: (scattered(x), ids_of(x)), "mlp.router"),
    # 4.x and 5.x: Llama 4.
    "scattered scores, logits": (lambda x: (scattered(x), x), "feed_forward.router"),
    # 4.x: DBRX.
    "probabilities, weights, ids": (
        lambda x: (np.exp(x) / np.exp(x).sum(), weights(x), ids_of(x)),
        "ffn.router",
    ),
    # 4.x: Granite; 4.x and 5.x: JetMoe.
    "sorted tokens and logits": (sorted_tokens, "block_sparse_moe.router"),
    # Not seen in these versions: weights must not pass for logits.
    "logits, weights": (lambda x: (x, weights(x)), "mlp.gate"),
    # Remote code of DeepSeek: the third part is the loss, in training alone.
    "ids, weights, None": (lambda x: (ids_of(x), weights(x), None), "mlp.gate"),
}


@pytest.mark.parametrize("kind", ROUTERS)
def test_what_was_decoded_is_a_trace(recorder_class: Any, tmp_path: Path, kind: str) -> None:
    model = Model(*ROUTERS[kind])
    recorder = recorder_class(model, EXPERTS, TOP_K)
    random = np.random.default_rng(1)
    expected = model.generate(5, 4, random) + model.generate(1, 2, random)
    recorder.write(tmp_path / "mine.jsonl", "m")
    trace = read_trace(tmp_path / "mine.jsonl")
    assert (trace.header.num_layers, trace.header.num_experts, trace.header.top_k) == (2, 8, 3)
    assert trace.experts.tolist() == expected
    assert trace.requests == (0, 1)
    assert np.bincount(trace.request).tolist() == [4 * LAYERS, 2 * LAYERS]


def test_equal_logits_are_chosen_as_the_tensor_does(recorder_class: Any) -> None:
    model = Model(lambda logits: logits)
    recorder = recorder_class(model, EXPERTS, TOP_K)
    model.generate(5, 0, np.random.default_rng(1))
    model.forward(5, np.tile([9.0, 1, 1, 1, 1, 1, 1, 1], (LAYERS, 1, 1)))
    assert [record["experts"] for record in recorder.records] == [[0, 7, 6]] * LAYERS


def test_a_linear_inside_a_router_is_not_a_router(recorder_class: Any) -> None:
    """AFMoE (5.x): mlp.router returns the ids, mlp.router.gate logits without their bias."""
    model = Model(ROUTERS["logits, weights, ids"][0], "mlp.router")
    model.modules["model.layers.1.mlp.router.gate"] = Hooked()
    assert recorder_class(model, EXPERTS, TOP_K).routers == [
        "model.layers.1.mlp.router",
        "model.layers.2.mlp.router",
    ]


def test_a_step_that_was_cut_is_dropped(recorder_class: Any, tmp_path: Path) -> None:
    model = Model(lambda logits: logits)
    recorder = recorder_class(model, EXPERTS, TOP_K)
    random = np.random.default_rng(1)
    expected = model.generate(5, 2, random)
    model.begin(7)
    model.route(0, random.standard_normal((1, EXPERTS)))
    expected += model.generate(5, 2, random)
    model.begin(7)
    model.route(0, random.standard_normal((1, EXPERTS)))
    recorder.write(tmp_path / "mine.jsonl", "m")
    assert read_trace(tmp_path / "mine.jsonl").experts.tolist() == expected


def test_close_takes_the_hooks_off(recorder_class: Any) -> None:
    model = Model(lambda logits: logits)
    recorder = recorder_class(model, EXPERTS, TOP_K)
    assert sum(len(module.hooks) for module in model.modules.values()) == 1 + LAYERS
    recorder.close()
    assert not any(module.hooks for module in model.modules.values())


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"\.nothing$", "0 modules in 0 layers"),
        # JetMoe: mlp.router and self_attention.experts.router; encoders and decoders; two towers.
        (r"_gate$|\.gate$", "4 modules in 2 layers"),
    ],
)
def test_one_router_a_layer(recorder_class: Any, pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recorder_class(Model(lambda logits: logits), EXPERTS, TOP_K, re.compile(pattern))


@pytest.mark.parametrize(
    ("module", "attribute"),
    # 4.x: the block knows (Qwen, Mixtral), or the router (DeepSeek, Granite); 5.x: the router.
    [("mlp", "top_k"), ("mlp.gate", "num_experts"), ("mlp.gate", "n_routed_experts")],
)
def test_the_model_is_asked_for_its_sizes(recorder_class: Any, module: str, attribute: str) -> None:
    model = Model(lambda logits: logits)
    setattr(model.modules[f"model.layers.2.{module}"], attribute, 5)
    with pytest.raises(ValueError, match=f"{attribute} of model.layers.2.mlp.gate is not"):
        recorder_class(model, EXPERTS, TOP_K)


def test_a_bias_that_is_added_after_the_router_is_refused(recorder_class: Any) -> None:
    """Ernie 4.5 in 4.x: gate is a Linear, moe_statics of the block adds the bias."""
    model = Model(lambda logits: logits)
    model.modules["model.layers.2.mlp"].weights["moe_statics.e_score_correction_bias"] = 0
    recorder_class(model, EXPERTS, TOP_K)
    with pytest.raises(ValueError, match=r"layers\.2\.mlp\.gate returns logits, and a bias"):
        model.generate(5, 1, np.random.default_rng(1))


def test_ids_of_a_router_with_a_bias_are_believed(recorder_class: Any) -> None:
    model = Model(ROUTERS["ids, weights"][0])
    for layer in (1, 2):
        model.modules[f"model.layers.{layer}.mlp"].weights["gate.e_score_correction_bias"] = 0
    recorder = recorder_class(model, EXPERTS, TOP_K)
    model.generate(5, 2, np.random.default_rng(1))
    assert len(recorder.records) == 2 * LAYERS


OUTPUTS = {
    # Zaya: one class more than experts (skip this token), and a state for the next router.
    "other widths": (lambda x: (np.pad(x, ((0, 0), (0, 1))), ids_of(x)), r"returned .*\(1, 9\)"),
    "rows of two requests or beams": (lambda x: np.tile(x, (2, 1)), r"returned \{\(2, 8\)\}"),
    "weights alone": (weights, r"returned \{\(1, 3\)\}"),
    "nothing": (lambda x: None, r"returned set\(\)"),
    "an id twice": (lambda x: ids_of(x) * 0, r"chose \[0, 0, 0\], expected 3 different ids"),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_other_outputs_are_refused(recorder_class: Any, kind: str) -> None:
    output, message = OUTPUTS[kind]
    model = Model(output)
    recorder_class(model, EXPERTS, TOP_K)
    with pytest.raises(ValueError, match=message):
        model.generate(5, 1, np.random.default_rng(1))


def test_a_router_that_is_called_out_of_turn_is_refused(recorder_class: Any) -> None:
    model = Model(lambda logits: logits)
    recorder_class(model, EXPERTS, TOP_K)
    random = np.random.default_rng(1)
    model.generate(5, 1, random)
    model.begin(6)
    model.route(0, random.standard_normal((1, EXPERTS)))
    with pytest.raises(ValueError, match="one call a pass"):
        model.route(0, random.standard_normal((1, EXPERTS)))


PASSES: dict[str, tuple[int, dict[str, Any], str]] = {
    # use_cache=False: every pass holds all tokens, from position 0.
    "no cache": (0, {"position": 0, "tokens": 6, "use_cache": False}, "use_cache=True"),
    # A loop of one's own: generate() gives position_ids to every decoder in 4.x and in 5.x.
    "no positions": (0, {"position": 0, "position_ids": None}, "call model.generate"),
    "speculative decoding": (1, {"position": 6, "tokens": 4}, "one token a pass"),
    "a later turn, or a chunk of a prompt": (0, {"position": 5, "tokens": 4}, "fresh cache"),
}


@pytest.mark.parametrize("kind", PASSES)
def test_other_passes_are_refused(recorder_class: Any, kind: str) -> None:
    steps, inputs, message = PASSES[kind]
    model = Model(lambda logits: logits)
    recorder_class(model, EXPERTS, TOP_K)
    model.generate(5, steps, np.random.default_rng(1))
    with pytest.raises(ValueError, match=message):
        model.begin(**inputs)


def test_a_decode_without_its_prompt_is_refused(recorder_class: Any) -> None:
    model = Model(lambda logits: logits)
    recorder_class(model, EXPERTS, TOP_K)
    with pytest.raises(ValueError, match="whole requests"):
        model.begin(5)


def test_a_trace_of_nothing_is_refused(recorder_class: Any, tmp_path: Path) -> None:
    model = Model(lambda logits: logits)
    recorder = recorder_class(model, EXPERTS, TOP_K)
    model.generate(5, 0, np.random.default_rng(1))
    with pytest.raises(ValueError, match="nothing was decoded"):
        recorder.write(tmp_path / "mine.jsonl", "m")
    assert not (tmp_path / "mine.jsonl").exists()
