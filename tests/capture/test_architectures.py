# SPDX-License-Identifier: Apache-2.0
"""Each architecture's routing, captured, against its router computed apart from the engine's own
residual stream and the file's weights; and each expert's place in the pool against the file.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from pagetier.analysis.errors import InputError
from pagetier.bench.engine.capture import Capturing, Request, build_trace
from pagetier.bench.engine.llama import Engine, Loading, Sampling
from pagetier.bench.engine.prompt_tap import PromptTap
from pagetier.bench.engine.prompts import Prompt
from pagetier.tiers.models.map import map_model
from pagetier.tiers.models.pool import MappedPool
from tests.capture.architectures import ARCHITECTURES, NO_DECODERS
from tests.capture.blocks import EXPERTS, VOCABULARY
from tests.capture.routers import Floats, Ids, Tensors, route, values
from tests.capture.taps import Array, FullTap
from tests.capture.tiny import Architecture, write_architecture

pytestmark = pytest.mark.capture

LOADING = Loading(threads=1, context_tokens=128)
DRAWN = Sampling(1.0, seed=5)
STEPS = 12
SEED = 6
PROMPT = [int(one) for one in np.random.default_rng(SEED).integers(0, VOCABULARY, 7)]


@dataclass(frozen=True, slots=True)
class Case:
    """A model, what the engine computed of a request (the prompt, then each decode), and what was
    captured of the same request."""

    one: Architecture
    path: Path
    tensors: Tensors
    computed: list[dict[str, Array]]
    request: Request

    def routers(self, computation: int) -> Iterator[tuple[int, Floats, tuple[Ids, Floats]]]:
        """By the place of a layer in a trace: the router's inputs, and its ids and weights."""
        for place, layer in enumerate(self.one.routed):
            inputs = self._inputs(self.computed[computation], layer)
            tokens = PROMPT if computation == 0 else [self.request.tokens[computation - 1]]
            yield place, inputs, route(self.one, self.tensors, layer, inputs, tokens)

    def _inputs(self, computed: dict[str, Array], layer: int) -> Floats:
        residual: Floats = computed[f"{self.one.residual}-{layer}"][0, 0].astype(np.float64)
        if self.one.norm is None:
            return residual
        size = np.sqrt((residual**2).mean(axis=1, keepdims=True) + 1e-6)
        inputs: Floats = residual / size * values(self.tensors, f"blk.{layer}.{self.one.norm}")
        return inputs


@pytest.fixture(scope="module", params=ARCHITECTURES)
def case(
    request: pytest.FixtureRequest, engine: None, tmp_path_factory: pytest.TempPathFactory
) -> Case:
    one = ARCHITECTURES[request.param]
    path = write_architecture(tmp_path_factory.mktemp(one.arch) / "tiny.gguf", one)
    tap = FullTap((one.residual, "ffn_moe_up", "ffn_moe_gate_up", "ffn_moe_topk"))
    with Engine(path, LOADING, tap) as llama:
        llama.generate(PROMPT, STEPS, DRAWN)
    with Capturing(path, LOADING) as capturing:
        captured = capturing.request(Prompt(0, "a", tuple(PROMPT)), STEPS, DRAWN)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    return Case(one, path, tensors, tap.computed, captured)


@pytest.fixture(scope="module")
def pool(case: Case) -> MappedPool:
    return map_model(case.path, case.path.parent / "pool")


def test_ids_and_weights_are_the_routers(case: Case) -> None:
    routes = case.request.routes
    assert routes.experts.shape == (STEPS, len(case.one.routed), case.one.top_k)
    assert routes.weights is not None
    for step in range(STEPS):
        for place, _, (ids, weights) in case.routers(1 + step):
            np.testing.assert_array_equal(routes.experts[step, place], ids[0])
            np.testing.assert_allclose(routes.weights[step, place], weights[0], atol=1e-5)


def test_routes_move(case: Case) -> None:
    for place in range(len(case.one.routed)):
        chosen = np.sort(case.request.routes.experts[:, place], axis=1)
        assert len(np.unique(chosen, axis=0)) >= STEPS // 2


def test_parts_of_a_router_count(case: Case) -> None:
    """A router computed without one of its parts would be noticed."""
    for lesser in without_a_part(case):
        found = [ids for step in range(STEPS) for _, _, (ids, _) in lesser.routers(1 + step)]
        expected = case.request.routes.experts.reshape(len(found), 1, -1)
        assert not np.array_equal(np.array(found), expected)


def without_a_part(case: Case) -> Iterator[Case]:
    if case.one.groups is not None:
        yield replace(case, one=replace(case.one, groups=None))
    for part in ("ffn_gate_inp.bias", "exp_probs_b.bias", "ffn_gate_tid2eid.weight"):
        kept = {name: one for name, one in case.tensors.items() if not name.endswith(part)}
        if len(kept) < len(case.tensors):
            yield replace(case, tensors=kept)


def test_experts_lie_where_the_file_has_them(case: Case, pool: MappedPool) -> None:
    one, table = case.one, pool.extent_table()
    assert tuple(layer.model_layer for layer in pool.manifest.layers) == one.routed
    assert table.paths == (str(case.path),)
    for place, layer in enumerate(one.routed):
        stacks = [
            tensor
            for name, tensor in case.tensors.items()
            if name.startswith(f"blk.{layer}.") and "_exps." in name
        ]
        assert len(stacks) == len(one.types) * (2 if one.expert_biases else 1)
        for expert in range(EXPERTS):
            number = place * EXPERTS + expert
            first, last = (int(at) for at in table.expert_start[number : number + 2])
            found = table.extents[first:last][["offset", "length"]].tolist()
            slices = [(tensor.data_offset, tensor.n_bytes // EXPERTS) for tensor in stacks]
            assert found == sorted((start + expert * size, size) for start, size in slices)


def test_all_else_is_spine_or_of_further_tokens(case: Case, pool: MappedPool) -> None:
    last = len(case.one.blocks) - case.one.further
    further = spine = 0
    for name, tensor in case.tensors.items():
        stack = "_exps." in name
        further += tensor.n_bytes if stack and int(name.split(".")[1]) >= last else 0
        spine += 0 if stack else tensor.n_bytes
    assert (pool.manifest.spine_bytes, pool.manifest.unrouted_bytes) == (spine, further)


def test_an_id_is_the_slice_that_the_engine_multiplied(case: Case, pool: MappedPool) -> None:
    """The engine's own products tell whose matrix they were made with: the captured expert's."""
    role = "gate_up" if "gate_up" in case.one.types else "up"
    for place, layer in enumerate(case.one.routed):
        matrices = read_matrices(case, pool, place, role)
        for step in range(STEPS):
            computed = case.computed[1 + step]
            found = computed[f"ffn_moe_{role}-{layer}"][0, 0].astype(np.float64)
            inputs = next(inputs for at, inputs, _ in case.routers(1 + step) if at == place)
            expected = matrices @ inputs[0]
            likeness = found @ expected.T / np.linalg.norm(expected, axis=1)
            ids = case.request.routes.experts[step, place]
            np.testing.assert_array_equal(likeness.argmax(axis=1), ids)


def read_matrices(case: Case, pool: MappedPool, place: int, role: str) -> Floats:
    """Of all experts of a layer, by the extents of the pool."""
    name = f"blk.{case.one.routed[place]}.ffn_{role}_exps.weight"
    parts = [part.tensor for part in pool.manifest.layers[place].parts]
    table, raw = pool.extent_table(), case.path.read_bytes()
    rows = int(case.tensors[name].shape[1])
    made = []
    for expert in range(EXPERTS):
        start = int(table.expert_start[place * EXPERTS + expert]) + parts.index(name)
        _, offset, length = (int(one) for one in table.extents[start])
        blocks = np.frombuffer(raw[offset : offset + length], dtype=np.uint8).reshape(rows, -1)
        made.append(gguf.quants.dequantize(blocks, case.one.types[role]))
    return np.array(made, dtype=np.float64)


def test_rows_of_the_last_layer_of_a_prompt(case: Case) -> None:
    for place, layer in enumerate(case.one.routed):
        rows = case.computed[0][f"ffn_moe_topk-{layer}"].shape[2]
        is_last = place == len(case.one.routed) - 1
        assert rows == (1 if is_last and case.one.last_alone else len(PROMPT))


@pytest.mark.parametrize("length", [1, 2, 60])
def test_no_row_of_a_prompt_is_in_a_trace(case: Case, length: int) -> None:
    prompt = Prompt(3, "a", tuple((PROMPT * 6)[:length]))
    with Capturing(case.path, LOADING) as capturing:
        request = capturing.request(prompt, 5, DRAWN)
        trace = build_trace(capturing.routed, [request], "a", "test")
    layers = len(case.one.routed)
    assert (trace.header.num_layers, trace.header.num_experts) == (layers, EXPERTS)
    assert trace.header.top_k == case.one.top_k
    assert request.steps == 5 and trace.num_records == 5 * layers
    assert set(np.diff(trace.record_start.astype(int))) == {case.one.top_k}


def test_what_a_prompt_asks_for(case: Case) -> None:
    """Every expert that a token of the prompt chose, once per layer."""
    tap = PromptTap(case.one.routed, EXPERTS, case.one.top_k)
    with Engine(case.path, LOADING, tap) as llama:
        llama.generate(PROMPT, 1, DRAWN)
    expected = [np.unique(ids) + place * EXPERTS for place, _, (ids, _) in case.routers(0)]
    plan = tap.prompt_plan()
    np.testing.assert_array_equal(plan.experts, np.concatenate(expected))
    assert np.diff(plan.record_start).tolist() == [len(ids) for ids in expected]


def test_batches_of_a_prompt_ask_for_themselves(case: Case) -> None:
    tap = PromptTap(case.one.routed, EXPERTS, case.one.top_k)
    loading = Loading(threads=1, context_tokens=640)
    with Engine(case.path, loading, tap) as llama:
        llama.generate((PROMPT * 100)[:600], 1, DRAWN)
    plan = tap.prompt_plan()
    layers = plan.experts[plan.record_start[:-1].astype(int)] // EXPERTS
    assert layers.tolist() == [*range(len(case.one.routed))] * 2


@pytest.mark.parametrize("arch", NO_DECODERS)
def test_a_model_that_decodes_nothing_is_refused(engine: None, tmp_path: Path, arch: str) -> None:
    path = write_architecture(tmp_path / "tiny.gguf", NO_DECODERS[arch])
    message = rf"tiny\.gguf: is a model of architecture {arch}, which does not write one token"
    with pytest.raises(InputError, match=message), Capturing(path, LOADING):
        pass


def test_a_number_of_experts_per_layer_is_refused(engine: None, tmp_path: Path) -> None:
    one = ARCHITECTURES["nemotron_h_moe"]
    path = write_architecture(tmp_path / "tiny.gguf", replace(one, used=(0, 0, 4, 0, 0, 2)))
    with pytest.raises(InputError, match=r"tiny\.gguf: has no number of experts .* in every layer"):
        Capturing(path, LOADING)


def test_experts_of_old_converters_are_mapped_and_not_loaded(engine: None, tmp_path: Path) -> None:
    """One tensor per expert, as Mixtral was converted before stacks: llama.cpp reads it no more."""
    one = ARCHITECTURES["llama"]
    singles = {
        f"ffn_{role}.{expert}.weight": shape
        for role, shape in (("gate", (96, 64)), ("up", (96, 64)), ("down", (64, 96)))
        for expert in range(EXPERTS)
    }
    blocks = tuple({**block, **singles} for block in one.blocks)
    path = write_architecture(tmp_path / "tiny.gguf", replace(one, blocks=blocks, types={}))
    assert map_model(path, tmp_path / "pool").manifest.layers[0].expert_bytes == 3 * 96 * 64 * 4
    with pytest.raises(InputError, match=r"cannot load it \(.*ffn_down_exps.weight' not found"):
        Capturing(path, LOADING).__enter__()
