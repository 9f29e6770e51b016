# SPDX-License-Identifier: Apache-2.0
"""GGUF models: one file, or shards named ``NAME-00001-of-00003.gguf`` as llama.cpp splits them.

Experts are the tensors ``blk.N.ffn_{gate,up,down,gate_up}_exps.*``, one slice of each per expert
(weights, and the biases and scales that some models have), or ``blk.N.ffn_{gate,up,down}.E.*`` in
files of old converters.  Routers (``ffn_gate_inp``), their biases (``exp_probs_b``), the norm of
the experts' input (``ffn_norm_exps``), shared experts (``shexp``) and chunk experts (``chexps``)
belong to no single expert: they are spine.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pagetier.tiers.models.errors import (
    DuplicateTensor,
    GeometryMismatch,
    MissingShard,
    MissingTensor,
    NotAModel,
)
from pagetier.tiers.models.gguf_header import (
    BLOCK_TYPES,
    GgufHeader,
    GgufTensor,
    Value,
    read_header,
)
from pagetier.tiers.models.model import Model, Place, Router, Tensor
from pagetier.tiers.models.weights import (
    WeightFile,
    find_weights,
    opened_weights,
    require_unchanged,
)

__all__ = ["SUFFIX", "read_gguf"]

SUFFIX: Final = ".gguf"
# llama_split_path() of llama.cpp.
_SHARD: Final = re.compile(r"(?P<prefix>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_STACK: Final = re.compile(r"blk\.(\d{1,9})\.ffn_(gate_up|gate|up|down)_exps\.(\w+)")
_SINGLE: Final = re.compile(r"blk\.(\d{1,9})\.ffn_(gate|up|down)\.(\d{1,9})\.(\w+)")
MAX_COUNT: Final = (1 << 32) - 1
_ROUTER: Final = re.compile(r"blk\.(\d{1,9})\.ffn_gate_inp\.weight")


def read_gguf(path: Path) -> Model:
    """The model in `path`: a file, any shard of it, or a folder that holds nothing else in GGUF."""
    first = _only_model(path) if path.is_dir() else path
    folder, names = first.parent, _shard_names(first.name)
    shards = [_Shard.read(folder, name) for name in names]
    _check_split(folder, shards)
    fields = shards[0].header.fields
    architecture = _text(fields, "general.architecture")
    counts = {name: _count(fields, f"{architecture}.{name}") for name in _COUNTS}
    source = str(folder / names[0])
    return Model(
        source=source,
        format="gguf",
        name=_text(fields, "general.name"),
        architecture=architecture,
        files=tuple(shard.file for shard in shards),
        tensors=_tensors(shards),
        place=_place,
        check_shapes=_ShapeCheck(source, counts["expert_feed_forward_length"]),
        # 0 is what converters write for dense models.
        num_experts=counts["expert_count"] or None,
        top_k=counts["expert_used_count"] or None,
        routed_layers=_routed_layers(architecture, counts, shards),
    )


# Converted with nextn_predict_layers and without these blocks, which block_count leaves out then
# (llama_model_deepseek4::load_arch_hparams).
_CLAIMS_HEADS: Final = "deepseek4"
_COUNTS: Final = (
    "block_count",
    "nextn_predict_layers",
    "expert_count",
    "expert_used_count",
    "expert_feed_forward_length",
)


def _only_model(folder: Path) -> Path:
    names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))
    models = {_prefix(name): name for name in reversed(names)}
    if len(models) != 1:
        found = ", ".join(sorted(models.values())[:5]) or "none"
        raise NotAModel(f"{folder}: holds {len(models)} GGUF models ({found}); name one file")
    return folder / next(iter(models.values()))


def _prefix(name: str) -> str:
    shard = _SHARD.fullmatch(name)
    return name if shard is None else shard["prefix"]


def _shard_names(name: str) -> list[str]:
    shard = _SHARD.fullmatch(name)
    if shard is None:
        return [name]
    count = int(shard["count"])
    if not 1 <= int(shard["number"]) <= count:
        raise NotAModel(f"{name}: is no shard of {count}; give the file the name it was made with")
    return [f"{shard['prefix']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]


@dataclass(frozen=True, slots=True)
class _Shard:
    file: WeightFile
    header: GgufHeader

    @classmethod
    def read(cls, folder: Path, name: str) -> "_Shard":
        weights = find_weights(folder, name)
        with opened_weights(weights) as fd, open(fd, "rb", closefd=False) as file:
            header = read_header(file, str(folder / name))
            require_unchanged(weights, fd)
        return cls(weights, header)


def _check_split(folder: Path, shards: list[_Shard]) -> None:
    """What the shards say of themselves, against the names they were found by."""
    for number, shard in enumerate(shards):
        fields, where = shard.header.fields, folder / shard.file.name
        count = _count(fields, "split.count") or 1
        if count != len(shards):
            raise MissingShard(
                f"{where}: is one of {count} shards by its header and of {len(shards)} by its "
                "name; give all shards the names they were made with, in one folder"
            )
        if (_count(fields, "split.no") or 0) != number:
            raise MissingShard(
                f"{where}: is shard {fields.get('split.no')} by its header and {number} by its "
                "name; give all shards the names they were made with"
            )
    expected = _count(shards[0].header.fields, "split.tensors.count")
    found = sum(len(shard.header.tensors) for shard in shards)
    if len(shards) > 1 and expected is not None and expected != found:
        raise MissingTensor(
            f"{folder / shards[0].file.name}: the shards hold {found} tensors and {expected} by "
            "their header; they are of different models, so download them again"
        )


def _routed_layers(
    architecture: str | None, counts: dict[str, int | None], shards: list[_Shard]
) -> int | None:
    """The first block that predicts further tokens, or the number of blocks."""
    layers, further = counts["block_count"], counts["nextn_predict_layers"] or 0
    if layers is None:
        return None
    head = f"blk.{layers - further}.nextn.eh_proj.weight"
    if architecture == _CLAIMS_HEADS and not any(
        tensor.name == head for shard in shards for tensor in shard.header.tensors
    ):
        return layers
    return layers - further


def _tensors(shards: list[_Shard]) -> Iterator[Tensor]:
    seen: set[str] = set()
    for file, shard in enumerate(shards):
        for one in shard.header.tensors:
            if one.name in seen:
                raise DuplicateTensor(
                    f"{shard.file.path}: tensor {one.name} stands in another shard too; the shards "
                    "are of different models, so download them again"
                )
            seen.add(one.name)
            yield _tensor(one, file)


def _tensor(one: GgufTensor, file: int) -> Tensor:
    shape = one.shape[::-1]
    # A slice is whole rows, and a row is whole blocks; a single row is cut between its elements.
    blocks = len(shape) > 1 or BLOCK_TYPES[one.type_id][1] == 1
    slice_bytes = one.bytes // shape[0] if blocks else None
    return Tensor(one.name, file, one.offset, one.bytes, shape, slice_bytes)


def _place(name: str) -> Place | Router | None:
    if match := _STACK.fullmatch(name):
        layer, role, what = match.groups()
        return Place(int(layer), f"{role}.{what}", None)
    if match := _SINGLE.fullmatch(name):
        layer, role, expert, what = match.groups()
        return Place(int(layer), f"{role}.{what}", int(expert))
    if match := _ROUTER.fullmatch(name):
        return Router(int(match[1]))
    return None


@dataclass(frozen=True, slots=True)
class _ShapeCheck:
    """gate and up are [experts, inner, outer], gate_up has twice the inner, down is transposed."""

    source: str
    inner: int | None  # by the metadata

    def __call__(self, layer: int, shapes: dict[str, tuple[int, ...]]) -> None:
        found = {
            part.removesuffix(".weight"): shape[1:]
            for part, shape in shapes.items()
            if part.endswith(".weight") and len(shape) == 3
        }
        if "down" not in found:
            return
        outer, inner = found["down"]
        wanted = {
            "gate": (inner, outer),
            "up": (inner, outer),
            "gate_up": (2 * inner, outer),
            "down": (outer, self.inner or inner),
        }
        for role, shape in found.items():
            if shape != wanted[role]:
                raise GeometryMismatch(
                    f"{self.source}: blk.{layer}.ffn_{role}_exps is {shape[1]} x {shape[0]} per "
                    f"expert and should be {wanted[role][1]} x {wanted[role][0]} by "
                    "ffn_down_exps and expert_feed_forward_length; convert the model again"
                )


def _text(fields: dict[str, Value], key: str) -> str | None:
    value = fields.get(key)
    return value if isinstance(value, str) else None


def _count(fields: dict[str, Value], key: str) -> int | None:
    value = fields.get(key)
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None
