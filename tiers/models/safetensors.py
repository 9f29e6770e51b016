# SPDX-License-Identifier: Apache-2.0
"""Safetensors models: a folder with an index and shards, or a single file.

Experts are the tensors beneath ``layers.N. ... .experts``: one per expert and matrix
(``experts.E.w1.weight`` of Mixtral, ``experts.E.gate_proj.weight`` of Qwen, DeepSeek and OLMoE,
with the scales and zeros of whatever quantisation), or stacks over all experts of a layer
(``experts.gate_up_proj``, ``experts.down_proj_blocks`` of gpt-oss).  Routers (``mlp.gate``,
``mlp.router``), their biases and shared experts are spine.  Geometry is in ``config.json``.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pagetier.tiers.models.errors import (
    DamagedHeader,
    DuplicateTensor,
    MissingShard,
    MissingTensor,
    NotAModel,
    UnknownTensor,
)
from pagetier.tiers.models.model import Model, Place, Router, Tensor, Unrouted
from pagetier.tiers.models.safetensors_header import bounded_json, read_header
from pagetier.tiers.models.weights import (
    WeightFile,
    find_weights,
    opened_weights,
    require_unchanged,
)

__all__ = ["INDEX_SUFFIX", "SUFFIX", "read_safetensors"]

SUFFIX: Final = ".safetensors"
INDEX_SUFFIX: Final = ".safetensors.index.json"
CONFIG_NAME: Final = "config.json"
MAX_JSON_BYTES: Final = 128 << 20
MAX_COUNT: Final = (1 << 32) - 1

_SHARD: Final = re.compile(r"(?P<prefix>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")
_LAYER: Final = r"(?P<stack>.*?)\blayers\.(?P<layer>\d{1,9})\."
_EXPERT: Final = re.compile(_LAYER + r"(?:.+\.)?experts\.(?:(?P<expert>\d{1,9})\.)?(?P<part>.+)")
_ROUTER: Final = re.compile(
    _LAYER + r"(?:mlp|moe|ffn|feed_forward|block_sparse_moe)\.(?:gate|router)\.weight"
)
_ROLES: Final = {
    "gate_up_proj": "gate_up",
    "gate_proj": "gate",
    "up_proj": "up",
    "down_proj": "down",
    "w1": "gate",
    "w2": "down",
    "w3": "up",
}
_PART: Final = re.compile(rf"({'|'.join(_ROLES)})(?:[._](\w[\w.]*))?")
# Per expert, but weights of the router.
_OF_THE_ROUTER: Final = re.compile(r"e_score_correction_bias|(?:gate|router)\.\w+")
# Heads that predict further tokens are stacks of layers of their own in some models.
_FURTHER_STACKS: Final = ("mtp", "nextn")

_NUM_EXPERTS: Final = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_TOP_K: Final = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k")


def read_safetensors(path: Path) -> Model:
    """The model in `path`: a folder with an index or complete shards, or one file."""
    folder = path if path.is_dir() else path.parent
    index = _read_index(folder) if path.is_dir() else None
    names = sorted(set(index.values())) if index else _names_without_index(path)
    files = tuple(find_weights(folder, name) for name in names)
    config = _read_config(folder)
    return Model(
        source=str(path),
        format="safetensors",
        name=folder.resolve().name,
        architecture=_architecture(config),
        files=files,
        tensors=_tensors(folder, files, index),
        place=_Places(str(path)),
        check_shapes=_any_shapes,
        num_experts=_count(config, _NUM_EXPERTS),
        top_k=_count(config, _TOP_K),
        routed_layers=_count(config, ("num_hidden_layers",)),
    )


def _read_index(folder: Path) -> dict[str, str] | None:
    names = sorted(name for name in os.listdir(folder) if name.endswith(INDEX_SUFFIX))
    if not names:
        return None
    if len(names) > 1:
        raise NotAModel(f"{folder}: has {len(names)} indexes ({', '.join(names[:5])}); keep one")
    where = folder / names[0]
    entries = bounded_json(_read_json(where), str(where)).get("weight_map")
    if not isinstance(entries, dict) or not entries:
        raise DamagedHeader(f"{where}: has no weight_map; download it again")
    for tensor, name in entries.items():
        # A path could lead out of the folder.
        if not isinstance(name, str) or not name.endswith(SUFFIX) or os.path.basename(name) != name:
            raise DamagedHeader(
                f"{where}: tensor {tensor!r:.80} lies in {name!r:.80}, which is no name of a "
                "safetensors file; download it again"
            )
    return entries


def _names_without_index(path: Path) -> list[str]:
    if not path.is_dir():
        return [path.name]
    names = sorted(name for name in os.listdir(path) if name.endswith(SUFFIX))
    if not names:
        raise NotAModel(f"{path}: holds no safetensors files; name the folder of a model")
    shards = [shard for name in names if (shard := _SHARD.fullmatch(name))]
    if len(shards) < len(names) and len(names) > 1:
        raise NotAModel(
            f"{path}: has {len(names)} safetensors files and no index, so it is not known which "
            f"make the model; download its *{INDEX_SUFFIX}"
        )
    for shard in shards:
        _require_all_shards(path, shard, names)
    return names


def _require_all_shards(folder: Path, shard: re.Match[str], names: list[str]) -> None:
    count = int(shard["count"])
    if len(names) == count and int(shard["number"]) <= count:
        return
    raise MissingShard(
        f"{folder}: has {len(names)} of the {count} shards {shard['prefix']}-*{SUFFIX}; download "
        "all files of the model"
    )


def _read_config(folder: Path) -> dict[str, Any]:
    where = folder / CONFIG_NAME
    if not where.exists():
        return {}
    config = bounded_json(_read_json(where), str(where))
    # Models that see images or hear keep the numbers of the language model apart.
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else config


def _read_json(where: Path) -> bytes:
    weights = find_weights(where.parent, where.name)
    with opened_weights(weights) as fd, open(fd, "rb", closefd=False) as file:
        raw = file.read(MAX_JSON_BYTES + 1)
    if len(raw) > MAX_JSON_BYTES:
        raise DamagedHeader(f"{where}: is larger than {MAX_JSON_BYTES} bytes; download it again")
    return raw


def _architecture(config: dict[str, Any]) -> str | None:
    names = config.get("architectures")
    first = names[0] if isinstance(names, list) and names else config.get("model_type")
    return first if isinstance(first, str) else None


def _count(config: dict[str, Any], keys: tuple[str, ...]) -> int | None:
    found = (config.get(key) for key in keys)
    return next((n for n in found if type(n) is int and 0 < n <= MAX_COUNT), None)


def _tensors(
    folder: Path, files: tuple[WeightFile, ...], expected: dict[str, str] | None
) -> Iterator[Tensor]:
    """The tensors of all files; `expected`, the index, is emptied on the way."""
    seen: set[str] = set()
    for number, weights in enumerate(files):
        where = folder / weights.name
        with opened_weights(weights) as fd, open(fd, "rb", closefd=False) as file:
            tensors = read_header(file, str(where), number)
            require_unchanged(weights, fd)
        for tensor in tensors:
            if expected is not None:
                _check_off(expected, tensor.name, weights.name, where)
            elif tensor.name in seen:
                raise DuplicateTensor(
                    f"{where}: tensor {tensor.name} stands in another file too; keep one of them"
                )
            else:
                seen.add(tensor.name)
            yield tensor
    if expected:
        name, shard = next(iter(expected.items()))
        raise MissingTensor(
            f"{folder / shard}: lacks tensor {name}, as {len(expected)} that the index names are "
            "missing; download the shard again"
        )


def _check_off(expected: dict[str, str], tensor: str, shard: str, where: Path) -> None:
    found = expected.pop(tensor, None)
    if found is None:
        raise DuplicateTensor(
            f"{where}: tensor {tensor} is not in the index, or stands in another shard too; the "
            "shards are of different models, so download them again"
        )
    if found != shard:
        raise DuplicateTensor(
            f"{where}: tensor {tensor} should lie in {found} by the index; the shards are of "
            "different models, so download them again"
        )


@dataclass(frozen=True, slots=True)
class _Places:
    source: str

    def __call__(self, name: str) -> Place | Router | Unrouted | None:
        if match := _EXPERT.fullmatch(name):
            return self._expert(name, match)
        match = _ROUTER.fullmatch(name)
        if match is None or _is_further(match["stack"]):
            return None
        return Router(int(match["layer"]))

    def _expert(self, name: str, match: re.Match[str]) -> Place | Unrouted | None:
        if _OF_THE_ROUTER.fullmatch(match["part"]):
            return None
        part = _PART.fullmatch(match["part"])
        if part is None:
            raise UnknownTensor(
                f"{self.source}: tensor {name!r:.120} lies among the experts and is none of "
                f"{', '.join(_ROLES)}; this pagetier does not know this model"
            )
        if _is_further(match["stack"]):
            return Unrouted()
        expert = None if match["expert"] is None else int(match["expert"])
        return Place(int(match["layer"]), f"{_ROLES[part[1]]}.{part[2] or 'weight'}", expert)


def _is_further(stack: str) -> bool:
    return any(word in stack for word in _FURTHER_STACKS)


def _any_shapes(layer: int, shapes: dict[str, tuple[int, ...]]) -> None:
    """Matrices are stored either way round, and packed by quantisation: nothing to compare."""
