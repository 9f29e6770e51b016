# SPDX-License-Identifier: Apache-2.0
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagetier.native.extents import ExtentTable
from pagetier.tiers.models import errors
from pagetier.tiers.models.map import map_model

ReadExtents = Callable[[ExtentTable], Iterator[bytes]]
NewSafe = Callable[[], Any]

HIDDEN, INNER, EXPERTS = 40, 24, 4


def mixtral(model: Any, layer: int) -> None:
    block = f"model.layers.{layer}.block_sparse_moe"
    model.add(f"{block}.gate.weight", (EXPERTS, HIDDEN))
    for expert in range(EXPERTS):
        for matrix, shape in (
            ("w1", (INNER, HIDDEN)),
            ("w2", (HIDDEN, INNER)),
            ("w3", (INNER, HIDDEN)),
        ):
            model.add(f"{block}.experts.{expert}.{matrix}.weight", shape)


def qwen(model: Any, layer: int) -> None:
    block = f"model.layers.{layer}.mlp"
    model.add(f"{block}.gate.weight", (EXPERTS, HIDDEN))
    model.add(f"{block}.shared_expert_gate.weight", (1, HIDDEN))
    model.add(f"{block}.shared_expert.gate_proj.weight", (INNER, HIDDEN))
    for expert in range(EXPERTS):
        for matrix in ("gate_proj", "up_proj", "down_proj"):
            model.add(f"{block}.experts.{expert}.{matrix}.weight", (INNER, HIDDEN))


def deepseek(model: Any, layer: int) -> None:
    """With scales of its FP8, shared experts, and a bias of the router."""
    qwen(model, layer)
    block = f"model.layers.{layer}.mlp"
    model.add(f"{block}.gate.e_score_correction_bias", (EXPERTS,))
    model.add(f"{block}.shared_experts.down_proj.weight", (INNER, HIDDEN))
    for expert in range(EXPERTS):
        for matrix in ("gate_proj", "up_proj", "down_proj"):
            model.add(f"{block}.experts.{expert}.{matrix}.weight", (INNER, HIDDEN), np.uint8)
            model.add(f"{block}.experts.{expert}.{matrix}.weight_scale_inv", (1, 3), np.float32)


def gpt_oss(model: Any, layer: int) -> None:
    """MXFP4: blocks and scales of stacks, and biases."""
    block = f"model.layers.{layer}.mlp"
    model.add(f"{block}.router.weight", (EXPERTS, HIDDEN))
    model.add(f"{block}.router.bias", (EXPERTS,))
    for matrix, rows in (("gate_up_proj", 2 * INNER), ("down_proj", HIDDEN)):
        model.add(f"{block}.experts.{matrix}_blocks", (EXPERTS, rows, 2, 16), np.uint8)
        model.add(f"{block}.experts.{matrix}_scales", (EXPERTS, rows, 2), np.uint8)
        model.add(f"{block}.experts.{matrix}_bias", (EXPERTS, rows))


def fused(model: Any, layer: int) -> None:
    block = f"model.language_model.layers.{layer}.mlp"
    model.add(f"{block}.gate.weight", (EXPERTS, HIDDEN))
    model.add(f"{block}.experts.gate_up_proj", (EXPERTS, HIDDEN, 2 * INNER))
    model.add(f"{block}.experts.down_proj", (EXPERTS, INNER, HIDDEN))


def build(new_safe: NewSafe, kind: Callable[[Any, int], None], layers: int = 2) -> Any:
    model = new_safe()
    model.config = {
        "architectures": ["SmallMoe"],
        "num_local_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "num_hidden_layers": layers,
    }
    model.add("model.embed_tokens.weight", (7, HIDDEN))
    for layer in range(layers):
        model.add(f"model.layers.{layer}.self_attn.q_proj.weight", (HIDDEN, HIDDEN))
        kind(model, layer)
    return model


def expected_experts(model: Any, files: list[Path]) -> list[bytes]:
    """Every expert by numpy alone: from the arrays that were written, in the order on file."""
    layers: dict[int, list[list[bytes]]] = {}
    order: dict[tuple[int, str], tuple[int, int]] = {}
    for number, file in enumerate(files):
        raw = file.read_bytes()
        header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
        for name, entry in header.items():
            if name != "__metadata__" and ".experts." in name:
                order[int(name.split("layers.")[1].split(".")[0]), name] = (
                    number,
                    entry["data_offsets"][0],
                )
    pieces: dict[tuple[int, int], list[tuple[tuple[int, int], bytes]]] = {}
    part_start: dict[tuple[int, str], tuple[int, int]] = {}
    for (layer, name), start in order.items():
        words = name.split(".experts.")[1].split(".")
        if words[0].isdecimal():
            part = ".".join(words[1:])
            if words[0] == "0":
                part_start[layer, part] = start
        else:
            part_start[layer, ".".join(words)] = start
    for layer, name in order:
        words = name.split(".experts.")[1].split(".")
        data = model.tensors[name]
        single = words[0].isdecimal()
        part = ".".join(words[1:] if single else words)
        for expert in [int(words[0])] if single else range(EXPERTS):
            cut = data if single else data[expert]
            pieces.setdefault((layer, expert), []).append((part_start[layer, part], cut.tobytes()))
    assert not layers
    return [b"".join(cut for _, cut in sorted(pieces[key])) for key in sorted(pieces)]


@pytest.mark.parametrize("kind", [mixtral, qwen, deepseek, gpt_oss, fused])
@pytest.mark.parametrize("shards", [1, 3])
def test_every_expert_is_what_numpy_wrote(
    new_safe: NewSafe,
    extents_of: ReadExtents,
    disk: Path,
    kind: Callable[[Any, int], None],
    shards: int,
) -> None:
    model = build(new_safe, kind)
    files = model.write(disk / "model", shards)
    pool = map_model(disk / "model", disk / "pool")
    read = list(extents_of(pool.extent_table()))
    assert read == expected_experts(model, files)
    assert (pool.num_layers, pool.num_experts, pool.manifest.top_k) == (2, EXPERTS, 2)
    everything = sum(data.nbytes for data in model.tensors.values())
    assert pool.manifest.spine_bytes == everything - sum(map(len, read))
    assert pool.manifest.model.architecture == "SmallMoe"


def test_experts_of_different_sizes_in_one_layer(
    new_safe: NewSafe, extents_of: ReadExtents, disk: Path
) -> None:
    model = build(new_safe, qwen)
    model.add("model.layers.1.mlp.experts.2.up_proj.weight", (INNER, 2 * HIDDEN))
    files = model.write(disk / "model")
    pool = map_model(disk / "model", disk / "pool")
    assert list(extents_of(pool.extent_table())) == expected_experts(model, files)
    usual = 3 * INNER * HIDDEN * 2
    assert pool.expert_sizes.tolist() == [usual] * 6 + [usual * 4 // 3, usual]


def test_a_first_dense_layer_and_a_head_for_further_tokens(new_safe: NewSafe, disk: Path) -> None:
    model = build(new_safe, qwen, layers=3)
    for name in [name for name in model.tensors if name.startswith("model.layers.0.mlp")]:
        del model.tensors[name]
    model.add("model.layers.0.mlp.gate_proj.weight", (INNER, HIDDEN))
    qwen(model, 3)
    fused_head = f"mtp.layers.0.mlp.experts.{0}"
    for matrix in ("gate_proj", "up_proj", "down_proj"):
        model.add(f"{fused_head}.{matrix}.weight", (INNER, HIDDEN))
    model.write(disk / "model")
    pool = map_model(disk / "model", disk / "pool")
    assert pool.facts()["model_layers"] == "1-2"
    assert pool.manifest.unrouted_bytes == (EXPERTS + 1) * 3 * INNER * HIDDEN * 2


def test_geometry_without_a_config_is_that_of_the_tensors(new_safe: NewSafe, disk: Path) -> None:
    for kind in (qwen, gpt_oss):
        model = build(new_safe, kind)
        (file,) = model.write(disk / kind.__name__)
        (disk / kind.__name__ / "config.json").unlink()
        pool = map_model(file, disk / f"{kind.__name__}-pool")
        assert (pool.num_experts, pool.manifest.top_k) == (EXPERTS, None)


def test_the_config_of_a_model_that_also_sees(new_safe: NewSafe, disk: Path) -> None:
    model = build(new_safe, fused)
    model.config = {"model_type": "seeing_moe", "text_config": model.config}
    model.write(disk / "model")
    pool = map_model(disk / "model", disk / "pool")
    assert (pool.num_experts, pool.manifest.model.architecture) == (EXPERTS, "SmallMoe")


def refused(disk: Path, kind: type[errors.ModelError], message: str, name: str = "model") -> None:
    with pytest.raises(kind, match=message) as caught:
        map_model(disk / name, disk / "pool")
    assert "\n" not in str(caught.value)
    assert str(disk) in str(caught.value)
    assert not (disk / "pool").exists()


def test_a_dense_model_has_no_pool(new_safe: NewSafe, disk: Path) -> None:
    model = new_safe()
    model.add("model.layers.0.mlp.up_proj.weight", (INNER, HIDDEN))
    model.write(disk / "model")
    refused(disk, errors.DenseModel, "has no experts")


def test_a_shard_that_the_index_names_is_missing(new_safe: NewSafe, disk: Path) -> None:
    files = build(new_safe, qwen).write(disk / "model", 3)
    files[1].unlink()
    refused(disk, errors.MissingShard, f"{files[1].name}: is missing")


def test_a_shard_that_the_names_promise_is_missing(new_safe: NewSafe, disk: Path) -> None:
    files = build(new_safe, qwen).write(disk / "model", 3)
    (disk / "model" / "model.safetensors.index.json").unlink()
    assert map_model(disk / "model", disk / "whole").num_layers == 2
    files[2].unlink()
    refused(disk, errors.MissingShard, "has 2 of the 3 shards")


def test_a_tensor_that_the_index_names_is_missing(new_safe: NewSafe, disk: Path) -> None:
    model = build(new_safe, qwen)
    model.write(disk / "model", 3)
    index = json.loads((disk / "model" / "model.safetensors.index.json").read_text())
    lost = "model.layers.1.mlp.experts.2.up_proj.weight"
    shard = index["weight_map"][lost]
    from safetensors.numpy import save_file

    kept = {n: model.tensors[n] for n, s in index["weight_map"].items() if s == shard and n != lost}
    save_file(kept, disk / "model" / shard)
    refused(disk, errors.MissingTensor, rf"{shard}: lacks tensor {lost}")


def test_a_tensor_in_two_shards(new_safe: NewSafe, disk: Path) -> None:
    model = build(new_safe, qwen)
    files = model.write(disk / "model", 3)
    files[1].write_bytes(files[0].read_bytes())
    refused(disk, errors.DuplicateTensor, "stands in another shard|should lie in")
    (disk / "model" / "model.safetensors.index.json").unlink()
    refused(disk, errors.DuplicateTensor, "stands in another file too")


def test_an_index_that_leads_out_of_the_folder(new_safe: NewSafe, disk: Path) -> None:
    build(new_safe, qwen).write(disk / "model", 3)
    index = disk / "model" / "model.safetensors.index.json"
    for name in ("../other.safetensors", "/etc/x.safetensors", "passwd", 3, None):
        index.write_text(json.dumps({"weight_map": {"a": name}}))
        refused(disk, errors.DamagedHeader, "which is no name of a safetensors file")
    for text in ("[]", "{", '{"weight_map": []}', '{"a": 1}', "[" * 100_000):
        index.write_text(text)
        refused(disk, errors.DamagedHeader, "download it again")


def test_an_expert_that_is_missing_or_too_many(new_safe: NewSafe, disk: Path) -> None:
    model = build(new_safe, qwen)
    del model.tensors["model.layers.1.mlp.experts.2.up_proj.weight"]
    model.write(disk / "model")
    refused(disk, errors.MissingTensor, r"layer 1 has no up\.weight of expert 2, and 3 of 4")
    model.add("model.layers.1.mlp.experts.2.up_proj.weight", (INNER, HIDDEN))
    model.add("model.layers.1.mlp.experts.4.up_proj.weight", (INNER, HIDDEN))
    model.write(disk / "model")
    refused(disk, errors.GeometryMismatch, "of expert 4 and the model has 4 experts")


def test_blocks_without_their_scales(new_safe: NewSafe, disk: Path) -> None:
    model = build(new_safe, gpt_oss)
    del model.tensors["model.layers.1.mlp.experts.down_proj_scales"]
    model.write(disk / "model")
    refused(disk, errors.MissingTensor, r"layer 1 have down\.blocks and no down\.scales")


def test_a_name_that_nobody_knows_among_the_experts(new_safe: NewSafe, disk: Path) -> None:
    model = build(new_safe, qwen)
    model.add("model.layers.1.mlp.experts.2.sideways_proj.weight", (INNER, HIDDEN))
    model.write(disk / "model")
    refused(disk, errors.UnknownTensor, r"sideways_proj.* lies among the experts")


def test_a_stack_of_another_number(new_safe: NewSafe, disk: Path) -> None:
    model = build(new_safe, fused)
    model.add("model.language_model.layers.1.mlp.experts.down_proj", (EXPERTS + 1, INNER, HIDDEN))
    model.write(disk / "model")
    refused(disk, errors.UnevenStack, "is a stack of 5 and the model has 4")


def test_a_truncated_shard(new_safe: NewSafe, disk: Path) -> None:
    *_, last = build(new_safe, qwen).write(disk / "model", 3)
    whole = last.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 100, 5):
        last.write_bytes(whole[:size])
        refused(disk, errors.TruncatedFile, "download is not complete")
    last.write_bytes(whole + b"x")
    refused(disk, errors.DamagedHeader, "has 1 bytes behind its last tensor")


def test_a_pointer_instead_of_a_shard(new_safe: NewSafe, disk: Path) -> None:
    *_, last = build(new_safe, qwen).write(disk / "model", 3)
    last.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n")
    refused(disk, errors.PointerFile, f"{last.name}: is a Git LFS pointer")


def test_two_models_in_one_folder(new_safe: NewSafe, disk: Path) -> None:
    build(new_safe, qwen).write(disk / "model")
    (disk / "model" / "consolidated.safetensors").write_bytes(b"")
    refused(disk, errors.NotAModel, "has 2 safetensors files and no index")
    (disk / "model" / "x.gguf").write_bytes(b"")
    refused(disk, errors.NotAModel, "holds both GGUF and safetensors")


def test_links_of_a_download_cache_are_resolved(new_safe: NewSafe, disk: Path) -> None:
    folder = disk / "snapshots" / "0123"
    folder.parent.mkdir()
    (disk / "blobs").mkdir()
    build(new_safe, qwen).write(folder, 2)
    for number, file in enumerate(sorted(folder.iterdir())):
        blob = disk / "blobs" / f"{number:064}"
        file.rename(blob)
        file.symlink_to(f"../../blobs/{blob.name}")
    pool = map_model(folder, disk / "pool")
    assert {Path(path).parent for path in pool.files()} == {disk / "blobs"}
    assert [file.name for file in pool.weight_files] == [
        f"model-0000{number}-of-00002.safetensors" for number in (1, 2)
    ]
