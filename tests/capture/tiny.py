# SPDX-License-Identifier: Apache-2.0
"""The writer of tiny but real models of any architecture, which llama.cpp loads and decodes.

Tensors, shapes and fields are those that the model sources of llama.cpp ask for; weights are drawn.
Biases and norms are drawn far from what leaving them out would mean, so that a router computed
without one of them is another router.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.capture.blocks import (
    ENDS,
    EXPERTS,
    HEAD,
    HEADS,
    HIDDEN,
    INNER,
    TABLE,
    TOP_K,
    VOCABULARY,
    Shapes,
)

__all__ = ["Architecture", "write_architecture"]

Floats = NDArray[np.float32]
Q = gguf.GGMLQuantizationType
Writer = gguf.GGUFWriter

MIXED = MappingProxyType({"gate": Q.Q4_0, "up": Q.Q8_0, "down": Q.Q5_0})


@dataclass(frozen=True, slots=True)
class Architecture:
    """What is written, and what is known of its router.

    `blocks` are the layers in their order, each with what is no routed expert; those of `routed`
    have experts.  The last `further` blocks predict further tokens.  The router's input is
    `residual`, normed by the layer's `norm` where it has one.  `gating` makes scores of logits, as
    `routers.SCORES` says; experts are chosen by their scores and the bias of the layer, or by its
    table of tokens.  Of the first number of `groups` the second can be chosen from, by the sums of
    their two best.  `used` replaces `top_k` where layers differ.
    """

    arch: str
    blocks: tuple[Shapes, ...]
    routed: tuple[int, ...]
    add_fields: Callable[[Writer], None]
    top_k: int = TOP_K
    used: tuple[int, ...] | None = None
    gating: str = "softmax"
    normed: bool = False
    scale: float = 1.0
    groups: tuple[int, int] | None = None
    norm: str | None = "ffn_norm.weight"
    residual: str = "ffn_inp"
    router_bias: bool = False
    expert_biases: bool = False
    further: int = 0
    types: Mapping[str, Q] = field(default_factory=lambda: MIXED)
    # Of the last layer, the prompt's last token is computed alone.
    last_alone: bool = True
    ends: Shapes = field(default_factory=lambda: ENDS)


def write_architecture(path: Path, one: Architecture) -> Path:
    """The model in one file of less than 3 MB."""
    writer = Writer(None, one.arch)
    _add_fields(writer, one)
    random = np.random.default_rng([len(one.blocks), *one.arch.encode()])
    for name, shape in one.ends.items():
        writer.add_tensor(name, _drawn(random, name, shape))
    for layer, block in enumerate(one.blocks):
        for name, shape in {**block, **_router(one, layer)}.items():
            writer.add_tensor(f"blk.{layer}.{name}", _drawn(random, name, shape))
        for name, values, kind in _experts(one, layer, random):
            writer.add_tensor(f"blk.{layer}.{name}", values, raw_dtype=kind)
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _drawn(
    random: np.random.Generator, name: str, shape: tuple[int, ...]
) -> Floats | NDArray[np.int32]:
    if name in TABLE:
        return random.permuted(np.tile(np.arange(EXPERTS), (shape[0], 1)), axis=1)[
            :, : shape[1]
        ].astype(np.int32)
    values = random.standard_normal(shape, dtype=np.float32)
    if name == "token_embd.weight":
        return values
    if name == "ssm_a":
        # What a state decays by.
        return -np.abs(values)
    if "norm" in name:
        return 1 + np.float32(0.2) * values
    if len(shape) == 1 and name != "ffn_gate_inp_shexp.weight":
        return np.float32(0.3) * values
    wide = np.float32(2 if name.startswith("ffn_gate_inp") else 1)
    scaled: Floats = values * wide / np.float32(np.sqrt(shape[-1]))
    return scaled


def _router(one: Architecture, layer: int) -> Shapes:
    if layer not in (*one.routed, *range(len(one.blocks) - one.further, len(one.blocks))):
        return {}
    bias = {"ffn_gate_inp.bias": (EXPERTS,)} if one.router_bias else {}
    return {"ffn_gate_inp.weight": (EXPERTS, HIDDEN), **bias}


def _experts(
    one: Architecture, layer: int, random: np.random.Generator
) -> Iterator[tuple[str, NDArray[np.generic], Q]]:
    if not _router(one, layer):
        return
    shapes = {"gate": (INNER, HIDDEN), "up": (INNER, HIDDEN), "gate_up": (2 * INNER, HIDDEN)}
    for role, kind in one.types.items():
        rows, columns = shapes.get(role, (HIDDEN, INNER))
        floats = random.standard_normal((EXPERTS, rows, columns), dtype=np.float32)
        scaled = floats / np.float32(np.sqrt(columns))
        yield f"ffn_{role}_exps.weight", gguf.quants.quantize(scaled, kind), kind
        if one.expert_biases:
            bias = random.standard_normal((EXPERTS, rows), dtype=np.float32)
            yield f"ffn_{role}_exps.bias", np.float32(0.1) * bias, Q.F32


def _add_fields(writer: Writer, one: Architecture) -> None:
    writer.add_name(f"tiny-{one.arch}")
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(VOCABULARY)
    writer.add_block_count(len(one.blocks))
    writer.add_context_length(4096)
    writer.add_embedding_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_rope_dimension_count(HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(EXPERTS)
    if one.used is None:
        writer.add_expert_used_count(one.top_k)
    else:
        writer.add_array(f"{one.arch}.expert_used_count", one.used)
    if one.scale != 1.0:
        writer.add_expert_weights_scale(one.scale)
    if one.groups is not None:
        writer.add_expert_group_count(one.groups[0])
        writer.add_expert_group_used_count(one.groups[1])
    if one.further:
        writer.add_nextn_predict_layers(one.further)
    one.add_fields(writer)
