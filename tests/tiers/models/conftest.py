# SPDX-License-Identifier: Apache-2.0
"""Small but real models: written by the packages that everybody writes them with."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from pagetier.native.extents import ExtentTable

Array = NDArray[np.generic]
Q = gguf.GGMLQuantizationType


@dataclass(slots=True)
class GgufModel:
    """What a GGUF file is made of; change it, then write it."""

    fields: dict[str, int | str] = field(default_factory=dict)
    tensors: dict[str, tuple[Array, Q | None]] = field(default_factory=dict)
    arch: str = "qwen3moe"

    def add(self, name: str, shape: tuple[int, ...], kind: Q | None = None, seed: int = 0) -> None:
        """A tensor of random bytes, or of random floats where no type is given."""
        random = np.random.default_rng([seed, *name.encode()])
        if kind is None:
            self.tensors[name] = random.standard_normal(shape, dtype=np.float32), None
            return
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        row_bytes = shape[-1] // block * block_bytes
        self.tensors[name] = (
            random.integers(0, 256, (*shape[:-1], row_bytes), dtype=np.uint8),
            kind,
        )

    def write(self, path: Path, tensors_per_shard: int = 0) -> list[Path]:
        """The files, in the order of the shards."""
        writer = gguf.GGUFWriter(None, self.arch, split_max_tensors=tensors_per_shard)
        for key, value in self.fields.items():
            if isinstance(value, str):
                writer.add_string(key, value)
            else:
                writer.add_uint32(f"{self.arch}.{key}", value)
        writer.add_token_list(["a", "b", "c"])
        for name, (data, kind) in self.tensors.items():
            writer.add_tensor(name, data, raw_dtype=kind)
        writer.write_header_to_file(path)
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        files = [Path(file.name) for file in writer.fout or []]
        writer.close()
        return files


def moe_gguf(
    layers: int = 2,
    experts: int = 3,
    dense: int = 0,
    *,
    hidden: int = 256,
    inner: int = 512,
    gate: Q | None = Q.Q4_K,
    down: Q | None = Q.Q6_K,
) -> GgufModel:
    """A model whose experts are stacks of mixed types, no size of which is a multiple of a page."""
    model = GgufModel()
    model.fields = {
        "general.name": "small",
        "block_count": dense + layers,
        "expert_count": experts,
        "expert_used_count": 2,
        "expert_feed_forward_length": inner,
    }
    model.add("token_embd.weight", (17, hidden), Q.Q8_0)
    for layer in range(dense + layers):
        block = f"blk.{layer}"
        model.add(f"{block}.attn_norm.weight", (hidden,))
        if layer < dense:
            model.add(f"{block}.ffn_up.weight", (inner, hidden), Q.Q4_0)
            model.add(f"{block}.ffn_down.weight", (hidden, inner), Q.Q4_0)
            continue
        model.add(f"{block}.ffn_gate_inp.weight", (experts, hidden))
        model.add(f"{block}.exp_probs_b.bias", (experts,))
        model.add(f"{block}.ffn_down_exps.weight", (experts, hidden, inner), down)
        model.add(f"{block}.ffn_gate_exps.weight", (experts, inner, hidden), gate)
        model.add(f"{block}.ffn_up_exps.weight", (experts, inner, hidden), gate)
        model.add(f"{block}.ffn_up_shexp.weight", (inner, hidden), gate)
    model.add("output.weight", (17, hidden), Q.Q8_0)
    return model


@dataclass(slots=True)
class SafeModel:
    """What a safetensors folder is made of: tensors by name, the shard of each, and the config."""

    tensors: dict[str, Array] = field(default_factory=dict)
    config: dict[str, object] = field(default_factory=dict)

    def add(self, name: str, shape: tuple[int, ...], dtype: type[np.generic] = np.float16) -> None:
        """A tensor of random bytes."""
        random = np.random.default_rng([*name.encode()])
        data = random.integers(0, 256, int(np.prod(shape)) * np.dtype(dtype).itemsize)
        self.tensors[name] = data.astype(np.uint8).view(dtype).reshape(shape)

    def write(self, folder: Path, shards: int = 1) -> list[Path]:
        """The files; an index beside more than one."""
        folder.mkdir(exist_ok=True)
        names = list(self.tensors)
        parts = [names[number::shards] for number in range(shards)]
        files = [
            "model.safetensors" if shards == 1 else f"model-{n + 1:05}-of-{shards:05}.safetensors"
            for n in range(shards)
        ]
        for file, part in zip(files, parts, strict=True):
            save_file({name: self.tensors[name] for name in part}, folder / file)
        if shards > 1:
            index = {name: file for file, part in zip(files, parts, strict=True) for name in part}
            (folder / "model.safetensors.index.json").write_text(
                json.dumps({"metadata": {}, "weight_map": index})
            )
        (folder / "config.json").write_text(json.dumps(self.config))
        return [folder / file for file in files]


def read_extents(table: ExtentTable) -> Iterator[bytes]:
    """The bytes of every expert, read through its extents by nothing of the project."""
    for expert in range(len(table.expert_start) - 1):
        first, last = (int(bound) for bound in table.expert_start[expert : expert + 2])
        pieces = []
        for extent in table.extents[first:last]:
            with open(table.paths[int(extent["file"])], "rb") as file:
                file.seek(int(extent["offset"]))
                pieces.append(file.read(int(extent["length"])))
        yield b"".join(pieces)


MakeGguf = Callable[..., GgufModel]
ReadExtents = Callable[[ExtentTable], Iterator[bytes]]


@pytest.fixture
def make_gguf() -> MakeGguf:
    """``moe_gguf``: a GGUF model in memory."""
    return moe_gguf


@pytest.fixture
def new_safe() -> Callable[[], SafeModel]:
    """An empty safetensors model in memory."""
    return SafeModel


@pytest.fixture
def extents_of() -> ReadExtents:
    """``read_extents``."""
    return read_extents
