# SPDX-License-Identifier: Apache-2.0
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from pagetier.native.extents import ExtentTable
from pagetier.tiers.models import errors, gguf_header
from pagetier.tiers.models.gguf_header import BLOCK_TYPES
from pagetier.tiers.models.map import map_model
from pagetier.tiers.models.pool import MappedPool
from pagetier.tiers.pool import open_pool, storage_problems

Q = gguf.GGMLQuantizationType
MakeGguf = Callable[..., Any]
ReadExtents = Callable[[ExtentTable], Iterator[bytes]]

OF_EXPERTS = re.compile(r"blk\.(\d+)\.ffn_(?:gate_up|gate|up|down)(?:_exps|\.(\d+))\.\w+")


def expected_experts(files: list[Path], experts: int) -> list[bytes]:
    """Every expert by the gguf package and numpy: its slices in the order of the files."""
    found: dict[tuple[int, int], list[bytes]] = {}
    for file in files:
        for tensor in sorted(gguf.GGUFReader(file).tensors, key=lambda one: one.data_offset):
            if (match := OF_EXPERTS.fullmatch(tensor.name)) is None:
                continue
            layer = int(match[1])
            if match[2] is not None:
                found.setdefault((layer, int(match[2])), []).append(tensor.data.tobytes())
                continue
            for expert in range(experts):
                found.setdefault((layer, expert), []).append(tensor.data[expert].tobytes())
    return [b"".join(found[key]) for key in sorted(found)]


def fused(model: Any, experts: int) -> None:
    for layer in range(2):
        for role in ("gate", "up"):
            del model.tensors[f"blk.{layer}.ffn_{role}_exps.weight"]
        model.add(f"blk.{layer}.ffn_gate_up_exps.weight", (experts, 1024, 256), Q.Q5_K)


def with_biases(model: Any, experts: int) -> None:
    for layer in range(2):
        for role, length in (("gate", 512), ("up", 512), ("down", 256)):
            model.add(f"blk.{layer}.ffn_{role}_exps.bias", (experts, length))
            model.add(f"blk.{layer}.ffn_{role}_exps.scale", (experts,))


def one_by_one(model: Any, experts: int) -> None:
    for layer in range(2):
        for role, shape in (("gate", (512, 256)), ("up", (512, 256)), ("down", (256, 512))):
            del model.tensors[f"blk.{layer}.ffn_{role}_exps.weight"]
            # Written backwards: the order on file is not that of the numbers.
            for expert in reversed(range(experts)):
                model.add(f"blk.{layer}.ffn_{role}.{expert}.weight", shape, Q.Q4_1)


def larger_in_one_layer(model: Any, experts: int) -> None:
    model.add("blk.1.ffn_down_exps.weight", (experts, 256, 512), Q.Q8_0)


@pytest.mark.parametrize("change", [None, fused, with_biases, one_by_one, larger_in_one_layer])
@pytest.mark.parametrize("tensors_per_shard", [0, 5, 1])
@pytest.mark.parametrize("experts", [1, 3])
def test_every_expert_is_the_slices_that_numpy_cuts(
    make_gguf: MakeGguf,
    extents_of: ReadExtents,
    disk: Path,
    change: Callable[[Any, int], None] | None,
    tensors_per_shard: int,
    experts: int,
) -> None:
    model = make_gguf(experts=experts)
    if change is not None:
        change(model, experts)
    files = model.write(disk / "m.gguf", tensors_per_shard)
    pool = map_model(files[-1], disk / "pool")
    assert open_pool(disk / "pool").digest == pool.digest
    read = list(extents_of(pool.extent_table()))
    assert read == expected_experts(files, experts)
    assert pool.expert_sizes.tolist() == [len(one) for one in read]
    everything = sum(sum(t.n_bytes for t in gguf.GGUFReader(file).tensors) for file in files)
    assert pool.manifest.spine_bytes == everything - sum(map(len, read))
    assert pool.manifest.unrouted_bytes == 0
    assert pool.files() == tuple(str(file) for file in files)


def test_block_sizes_are_those_of_the_gguf_package() -> None:
    known = {kind.value: (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert known == BLOCK_TYPES


@pytest.mark.parametrize("kind", sorted(gguf.GGML_QUANT_SIZES))
def test_every_type_is_cut_on_its_blocks(
    make_gguf: MakeGguf, extents_of: ReadExtents, disk: Path, kind: Q
) -> None:
    files = make_gguf(gate=kind).write(disk / "m.gguf")
    pool = map_model(files[0], disk / "pool")
    assert list(extents_of(pool.extent_table())) == expected_experts(files, 3)


def test_geometry_is_that_of_the_metadata(make_gguf: MakeGguf, disk: Path) -> None:
    (file,) = make_gguf(layers=3, experts=5, dense=2).write(disk / "m.gguf")
    pool = map_model(file, disk / "pool")
    assert (pool.num_layers, pool.num_experts, pool.total_experts) == (3, 5, 15)
    assert pool.manifest.top_k == 2
    # The first layers of the model are dense: layer 0 of a trace is its layer 2.
    assert [layer.model_layer for layer in pool.manifest.layers] == [2, 3, 4]
    assert pool.facts()["model_layers"] == "2-4"
    assert (pool.manifest.model.name, pool.manifest.model.architecture) == ("small", "qwen3moe")
    assert pool.expert_bytes == 256 * 512 // 256 * (210 + 144 + 144)
    assert pool.layout == "mapped"


def test_layers_that_alternate_are_numbered_in_their_order(make_gguf: MakeGguf, disk: Path) -> None:
    model = make_gguf(layers=5)
    for layer in (0, 2, 3):
        for name in [name for name in model.tensors if name.startswith(f"blk.{layer}.ffn")]:
            del model.tensors[name]
    (file,) = model.write(disk / "m.gguf")
    pool = map_model(file, disk / "pool")
    assert pool.facts()["model_layers"] == "1, 4"


def test_layers_that_predict_further_tokens_are_not_routed(make_gguf: MakeGguf, disk: Path) -> None:
    model = make_gguf(layers=3)
    model.fields["nextn_predict_layers"] = 1
    (file,) = model.write(disk / "m.gguf")
    pool = map_model(file, disk / "pool")
    assert pool.num_layers == 2
    assert pool.manifest.unrouted_bytes == pool.total_bytes // 2


def test_tensors_that_belong_to_no_single_expert_are_spine(make_gguf: MakeGguf, disk: Path) -> None:
    plain = map_model(make_gguf().write(disk / "a.gguf")[0], disk / "a")
    model = make_gguf()
    for name in ("ffn_norm_exps.weight", "ffn_gate_chexps.weight", "ffn_gate_inp.bias"):
        model.add(f"blk.0.{name}", (3, 256))
    (file,) = model.write(disk / "b.gguf")
    pool = map_model(file, disk / "b")
    assert pool.total_bytes == plain.total_bytes
    assert pool.manifest.spine_bytes == plain.manifest.spine_bytes + 3 * 3 * 256 * 4


def refused(disk: Path, model: Any, kind: type[errors.ModelError], message: str) -> None:
    files = model.write(disk / "m.gguf") if not isinstance(model, Path) else [model]
    with pytest.raises(kind, match=message) as caught:
        map_model(files[0], disk / "pool")
    assert "\n" not in str(caught.value)
    assert str(disk) in str(caught.value)
    assert not (disk / "pool").exists()


def test_a_dense_model_has_no_pool(make_gguf: MakeGguf, disk: Path) -> None:
    refused(disk, make_gguf(layers=0, dense=2), errors.DenseModel, "has no experts")


@pytest.mark.parametrize("role", ["gate", "up", "down"])
def test_a_missing_sibling_is_named(make_gguf: MakeGguf, disk: Path, role: str) -> None:
    model = make_gguf()
    del model.tensors[f"blk.1.ffn_{role}_exps.weight"]
    refused(disk, model, errors.MissingTensor, rf"experts of layer 1 have .* and no {role};")


def test_a_model_without_gates_is_whole_and_one_without_down_is_not(
    make_gguf: MakeGguf, disk: Path
) -> None:
    model = make_gguf()
    for layer in range(2):
        del model.tensors[f"blk.{layer}.ffn_gate_exps.weight"]
    assert map_model(model.write(disk / "ungated.gguf")[0], disk / "ungated").num_experts == 3
    for layer in range(2):
        del model.tensors[f"blk.{layer}.ffn_down_exps.weight"]
    refused(disk, model, errors.MissingTensor, "layer 0 have up and no down")


def test_a_router_without_experts_is_a_missing_layer(make_gguf: MakeGguf, disk: Path) -> None:
    model = make_gguf()
    for role in ("gate", "up", "down"):
        del model.tensors[f"blk.1.ffn_{role}_exps.weight"]
    refused(disk, model, errors.MissingTensor, r"layer 1 has a router \(blk\.1\.ffn_gate_inp")


def test_an_uneven_stack_is_named(make_gguf: MakeGguf, disk: Path) -> None:
    model = make_gguf()
    model.add("blk.1.ffn_up_exps.weight", (4, 512, 256), Q.Q4_K)
    refused(disk, model, errors.UnevenStack, r"blk\.1\.ffn_up_exps\.weight .* stack of 4")


def test_a_stack_that_is_cut_within_a_block(make_gguf: MakeGguf, disk: Path) -> None:
    model = make_gguf(experts=32)
    model.add("blk.0.ffn_up_exps.scale", (32,), Q.Q4_0)
    refused(disk, model, errors.UnevenStack, "32 experts of whole blocks")


@pytest.mark.parametrize(
    ("key", "value", "kind", "message"),
    [
        ("expert_count", 4, errors.UnevenStack, "is a stack of 3 and the model has 4 experts"),
        ("expert_count", 1 << 31, errors.GeometryMismatch, "more than any model"),
        ("expert_feed_forward_length", 500, errors.GeometryMismatch, "512 x 256 .* 500 x 256"),
    ],
)
def test_metadata_that_contradicts_the_tensors(
    make_gguf: MakeGguf, disk: Path, key: str, value: int, kind: Any, message: str
) -> None:
    model = make_gguf()
    model.fields[key] = value
    refused(disk, model, kind, message)


def test_shapes_that_contradict_each_other(make_gguf: MakeGguf, disk: Path) -> None:
    model = make_gguf()
    model.add("blk.1.ffn_up_exps.weight", (3, 256, 512), Q.Q4_K)
    refused(disk, model, errors.GeometryMismatch, r"blk\.1\.ffn_up_exps is 512 x 256")


def test_a_router_of_another_number_of_experts(make_gguf: MakeGguf, disk: Path) -> None:
    model = make_gguf()
    model.add("blk.1.ffn_gate_inp.weight", (5, 256))
    refused(disk, model, errors.GeometryMismatch, "knows 5 experts and the model has 3")


def test_an_expert_that_is_missing_or_too_many(make_gguf: MakeGguf, disk: Path) -> None:
    model = make_gguf()
    one_by_one(model, 3)
    kept = model.tensors.pop("blk.1.ffn_up.1.weight")
    refused(disk, model, errors.MissingTensor, r"no up\.weight of expert 1, and 2 of 3")
    model.tensors["blk.1.ffn_up.1.weight"] = kept
    model.tensors["blk.1.ffn_up.3.weight"] = kept
    refused(disk, model, errors.GeometryMismatch, "of expert 3 and the model has 3")


def test_a_stack_beside_single_tensors(make_gguf: MakeGguf, disk: Path) -> None:
    model = make_gguf()
    model.add("blk.0.ffn_up.1.weight", (512, 256), Q.Q4_K)
    refused(disk, model, errors.DuplicateTensor, r"up\.weight of layer 0")


@pytest.mark.parametrize("missing_bytes", [1, 1000, 100_000])
def test_a_truncated_download(make_gguf: MakeGguf, disk: Path, missing_bytes: int) -> None:
    (file,) = make_gguf().write(disk / "m.gguf")
    end = max(t.data_offset + t.n_bytes for t in gguf.GGUFReader(file).tensors)
    os.truncate(file, end - missing_bytes)
    refused(disk, file, errors.TruncatedFile, rf"the file at {end - missing_bytes}; the download")


def test_a_file_cut_within_its_header(make_gguf: MakeGguf, disk: Path) -> None:
    (file,) = make_gguf().write(disk / "m.gguf")
    for size in (300, 20, 7, 3):
        os.truncate(file, size)
        refused(disk, file, errors.TruncatedFile, "end within")


def test_a_missing_shard_is_named(make_gguf: MakeGguf, disk: Path) -> None:
    files = make_gguf().write(disk / "m.gguf", 5)
    assert len(files) > 2
    files[1].unlink()
    refused(disk, files[0], errors.MissingShard, rf"{files[1].name}: is missing; download all")


def test_a_shard_under_another_name(make_gguf: MakeGguf, disk: Path) -> None:
    first, second, *_ = make_gguf().write(disk / "m.gguf", 5)
    alone = disk / "alone.gguf"
    alone.hardlink_to(first)
    refused(disk, alone, errors.MissingShard, "is one of 4 shards by its header and of 1")
    first.rename(disk / "kept")
    second.rename(first)
    (disk / "kept").rename(second)
    refused(disk, first, errors.MissingShard, "is shard 1 by its header and 0 by its name")


def test_shards_of_different_models(make_gguf: MakeGguf, disk: Path) -> None:
    (disk / "other").mkdir()
    files = make_gguf().write(disk / "m.gguf", 5)
    others = make_gguf(layers=3).write(disk / "other" / "m.gguf", 7)
    assert len(files) == len(others)
    others[1].replace(files[1])
    refused(disk, files[0], errors.MissingTensor, "tensors and .* by their header")


def test_a_tensor_in_two_shards(make_gguf: MakeGguf, disk: Path) -> None:
    (disk / "other").mkdir()
    model = make_gguf()
    files = model.write(disk / "m.gguf", 5)
    model.tensors = dict(reversed(model.tensors.items()))
    model.write(disk / "other" / "m.gguf", 5)[2].replace(files[2])
    refused(disk, files[0], errors.DuplicateTensor, "stands in another shard too")


def test_a_pointer_instead_of_the_weights(make_gguf: MakeGguf, disk: Path) -> None:
    pointer = disk / "m.gguf"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n")
    refused(disk, pointer, errors.PointerFile, "fetch them with `git lfs pull`")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<!DOCTYPE html>" + b" " * 100, "does not start with GGUF"),
        (b"GGUF\1\0\0\0" + b"\0" * 16, "GGUF version 1 and this pagetier reads 2 and 3"),
        (b"GGUF\0\0\0\3" + b"\0" * 16, "big-endian"),
    ],
)
def test_files_of_another_kind(disk: Path, content: bytes, message: str) -> None:
    (disk / "m.gguf").write_bytes(content)
    refused(disk, disk / "m.gguf", errors.NotAModel, message)


def test_a_folder_with_one_model_is_that_model(make_gguf: MakeGguf, disk: Path) -> None:
    (disk / "m").mkdir()
    files = make_gguf().write(disk / "m" / "a.gguf", 5)
    assert map_model(disk / "m", disk / "p").files() == tuple(str(file) for file in files)
    make_gguf().write(disk / "m" / "b.gguf")
    refused(disk, disk / "m", errors.NotAModel, r"holds 2 GGUF models \(a-.*b\.gguf\)")
    (disk / "empty").mkdir()
    refused(disk, disk / "empty", errors.NotAModel, "holds neither GGUF nor safetensors")


def test_links_of_a_download_cache_are_resolved(make_gguf: MakeGguf, disk: Path) -> None:
    (disk / "blobs").mkdir()
    (disk / "snapshot").mkdir()
    files = make_gguf().write(disk / "m.gguf", 5)
    for number, file in enumerate(files):
        file.rename(disk / "blobs" / f"{number:064}")
        (disk / "snapshot" / file.name).symlink_to(f"../blobs/{number:064}")
    pool = map_model(disk / "snapshot" / files[0].name, disk / "pool")
    assert [Path(path).parent.name for path in pool.files()] == ["blobs"] * len(files)
    assert [file.name for file in pool.weight_files] == [file.name for file in files]
    (disk / "blobs" / f"{1:064}").unlink()
    (disk / "pool" / "pool.json").unlink()
    (disk / "pool").rmdir()
    refused(disk, disk / "snapshot", errors.PointerFile, "is a link to a file that is not there")


def test_a_file_that_grows_under_our_eyes(
    make_gguf: MakeGguf, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = make_gguf().write(disk / "m.gguf")
    real = gguf_header.read_header

    def growing(opened: Any, source: str) -> Any:
        os.truncate(file, file.stat().st_size + 1)
        return real(opened, source)

    monkeypatch.setattr("pagetier.tiers.models.gguf.read_header", growing)
    refused(disk, file, errors.ChangedFile, "let it be written to its end")


def test_a_folder_or_pipe_in_place_of_a_model(disk: Path) -> None:
    os.mkfifo(disk / "m.gguf")
    refused(disk, disk / "m.gguf", errors.ModelError, "is not a regular file")
    refused(disk, disk / "absent.gguf", errors.MissingShard, "is not there")


def test_the_order_of_the_parts_is_that_of_the_file(make_gguf: MakeGguf, disk: Path) -> None:
    (file,) = make_gguf().write(disk / "m.gguf")
    pool = map_model(file, disk / "pool")
    assert isinstance(pool, MappedPool)
    tensors = [part.tensor for part in pool.manifest.layers[1].parts]
    assert tensors == [f"blk.1.ffn_{role}_exps.weight" for role in ("down", "gate", "up")]
    assert np.all(np.diff(pool.table.extents["offset"][:3].astype(np.int64)) > 0)


def test_the_largest_model_is_mapped_from_its_headers_and_not_replayed(disk: Path) -> None:
    """92 layers x 896 experts in sparse shards of the full size: 1.4 TB without a block."""
    layers, experts, hidden, inner = 92, 896, 7168, 2048
    writer = gguf.GGUFWriter(None, "kimi", split_max_tensors=30)
    writer.add_block_count(layers)
    writer.add_expert_count(experts)
    for layer in range(layers):
        for role, rows, row in (
            ("gate", inner, hidden),
            ("up", inner, hidden),
            ("down", hidden, inner),
        ):
            row_bytes = row // 256 * 144
            writer.add_tensor_info(
                f"blk.{layer}.ffn_{role}_exps.weight",
                (experts, rows, row_bytes),
                np.dtype(np.uint8),
                experts * rows * row_bytes,
                Q.Q4_K,
            )
    writer.write_header_to_file(disk / "large.gguf")
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for file, tensors in zip(writer.fout or [], writer.tensors, strict=True):
        end = sum(-(-tensor.nbytes // 32) * 32 for tensor in tensors.values())
        file.truncate(-(-file.tell() // 32) * 32 + end)
    writer.close()
    pool = map_model(min(disk.glob("large-*.gguf")), disk / "pool")
    assert (pool.num_layers, pool.num_experts, pool.total_experts) == (92, 896, 82_432)
    assert len(pool.table.extents) == 3 * 82_432
    assert pool.expert_bytes == 3 * inner * hidden // 256 * 144
    assert pool.total_bytes == 82_432 * pool.expert_bytes > 1 << 40
    assert (disk / "pool" / "pool.json").stat().st_size < 200_000
    assert open_pool(disk / "pool").digest == pool.digest
    (problem,) = storage_problems(pool)
    assert "is not fully allocated on its device, as are 10 of 10 files" in problem
