# SPDX-License-Identifier: Apache-2.0
"""Small but real mixture-of-experts models, which llama.cpp loads and decodes.

The residual stream is made to say which token and which domain of the vocabulary is being read:
routers see both, besides a component that all tokens have and that makes some experts popular.  So
routing is skewed, moves with every token and differs between domains; and a domain begets itself,
for the output prefers the tokens of the domain that it reads.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

__all__ = ["BIG", "SMALL", "Shape", "domain_tokens", "write_big", "write_small"]

ARCH = "qwen3moe"
Q = gguf.GGMLQuantizationType
Floats = NDArray[np.float32]
# The stacks of a layer: role, values as they are stored, type.
Stacks = Callable[[int], Iterator[tuple[str, NDArray[np.generic], Q]]]
# Bytes as tokens, the three that every such vocabulary starts with, and spare ones.
SPECIAL = ("<unk>", "<s>", "</s>")
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 64


@dataclass(frozen=True, slots=True)
class Shape:
    """Geometry of a model; `vocabulary` is cut into `domains` of equal size."""

    layers: int
    experts: int
    top_k: int
    hidden: int
    inner: int
    vocabulary: int = 320
    domains: int = 2
    seed: int = 7


# 56,832 bytes an expert; 13.875 pages.
SMALL = Shape(layers=6, experts=16, top_k=4, hidden=256, inner=96)
# 2,141,184 bytes an expert (522.75 pages), 1.64 GB of them.
BIG = Shape(layers=12, experts=64, top_k=4, hidden=512, inner=1312)


def domain_tokens(shape: Shape, domain: int, count: int, seed: int = 0) -> list[int]:
    """A prompt of one domain."""
    size = shape.vocabulary // shape.domains
    random = np.random.default_rng([shape.seed, domain, seed])
    return [int(token) for token in random.integers(domain * size, (domain + 1) * size, count)]


def write_small(
    path: Path, shape: Shape = SMALL, tensors_per_shard: int = 50, tokenizer: bool = False
) -> Path:
    """A model with a type for each kind of tensor, in shards; the first of its files."""

    def stacks(layer: int) -> Iterator[tuple[str, NDArray[np.generic], Q]]:
        random = np.random.default_rng([shape.seed, layer])
        for role, kind in (("gate", Q.Q4_0), ("up", Q.Q8_0), ("down", Q.Q5_0)):
            floats = random.standard_normal(_stack_shape(shape, role), dtype=np.float32)
            yield role, gguf.quants.quantize(floats * np.float32(0.05), kind), kind

    return _write(path, shape, stacks, tensors_per_shard, tokenizer)


def write_big(path: Path, shape: Shape = BIG) -> Path:
    """A model of 1.64 GB, its blocks drawn as bytes: quantising floats would take minutes."""

    def stacks(layer: int) -> Iterator[tuple[str, NDArray[np.generic], Q]]:
        random = np.random.default_rng([shape.seed, layer])
        for role in ("gate", "up", "down"):
            experts, rows, columns = _stack_shape(shape, role)
            blocks = np.frombuffer(
                bytearray(random.bytes(experts * rows * columns // 32 * 34)), dtype=np.uint8
            ).reshape(-1, 34)
            # A block of Q8_0: its scale as fp16, then 32 int8.
            blocks[:, :2] = np.array([3e-4], dtype=np.float16).view(np.uint8)
            yield role, blocks.reshape(experts, rows, -1), Q.Q8_0

    return _write(path, shape, stacks, tensors_per_shard=0, tokenizer=False)


def _stack_shape(shape: Shape, role: str) -> tuple[int, int, int]:
    if role == "down":
        return shape.experts, shape.hidden, shape.inner
    return shape.experts, shape.inner, shape.hidden


def _write(
    path: Path, shape: Shape, stacks: Stacks, tensors_per_shard: int, tokenizer: bool
) -> Path:
    writer = gguf.GGUFWriter(None, ARCH, split_max_tensors=tensors_per_shard)
    _add_fields(writer, shape)
    _add_vocabulary(writer, shape, tokenizer)
    spine = _Spine(shape)
    for name, values in spine.ends():
        writer.add_tensor(name, values)
    for layer in range(shape.layers):
        for name, values in spine.block():
            writer.add_tensor(f"blk.{layer}.{name}.weight", values)
        for role, stack, kind in stacks(layer):
            writer.add_tensor(f"blk.{layer}.ffn_{role}_exps.weight", stack, raw_dtype=kind)
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    first = Path((writer.fout or [])[0].name)
    writer.close()
    return first


def _add_fields(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_name("small-moe")
    writer.add_block_count(shape.layers)
    writer.add_context_length(4096)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.inner)
    writer.add_expert_feed_forward_length(shape.inner)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(shape.experts)
    writer.add_expert_used_count(shape.top_k)
    writer.add_vocab_size(shape.vocabulary)


def _add_vocabulary(writer: gguf.GGUFWriter, shape: Shape, tokenizer: bool) -> None:
    if not tokenizer:
        writer.add_tokenizer_model("no_vocab")
        return
    names = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    spare = [f"spare{number}" for number in range(shape.vocabulary - len(names))]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    kinds += [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * len(spare)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*names, *spare])
    writer.add_token_scores([0.0] * shape.vocabulary)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)


class _Spine:
    """Everything that is no expert, drawn in the order of its tensors."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._random = np.random.default_rng(shape.seed)
        self._common = self._draw(1, shape.hidden)[0]
        self._domains = self._draw(shape.domains, shape.hidden)
        self._popular = self._random.standard_normal(shape.experts)

    def _draw(self, *shape: int) -> Floats:
        return self._random.standard_normal(shape, dtype=np.float32)

    def ends(self) -> Iterator[tuple[str, Floats]]:
        """Embedding and output: a token is what all have, its domain, and itself."""
        shape = self._shape
        domain = np.arange(shape.vocabulary) * shape.domains // shape.vocabulary
        own = self._draw(shape.vocabulary, shape.hidden)
        yield "token_embd.weight", 2 * own + self._common + self._domains[domain]
        yield "output_norm.weight", np.ones(shape.hidden, dtype=np.float32)
        towards = self._domains[domain] * np.float32(10 / shape.hidden)
        noise = self._draw(shape.vocabulary, shape.hidden) * np.float32(1 / shape.hidden**0.5)
        yield "output.weight", towards + noise

    def block(self) -> Iterator[tuple[str, Floats]]:
        """One layer's attention, norms and router."""
        shape = self._shape
        query, key = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
        small = np.float32(0.3 / shape.hidden**0.5)
        for name in ("attn_norm", "ffn_norm"):
            yield name, np.ones(shape.hidden, dtype=np.float32)
        for name in ("attn_q_norm", "attn_k_norm"):
            yield name, np.ones(HEAD_DIM, dtype=np.float32)
        for name, rows in (("attn_q", query), ("attn_k", key), ("attn_v", key)):
            yield name, self._draw(rows, shape.hidden) * small
        yield "attn_output", self._draw(shape.hidden, query) * small
        yield "ffn_gate_inp", self._router()

    def _router(self) -> Floats:
        shape = self._shape
        popular = self._random.permutation(self._popular).astype(np.float32)[:, np.newaxis]
        taste = 1.5 * self._draw(shape.experts, shape.domains) @ self._domains
        own = self._draw(shape.experts, shape.hidden)
        scale = np.float32(shape.hidden)
        router: Floats = popular * self._common / scale + taste / scale + own / np.sqrt(scale)
        return router
