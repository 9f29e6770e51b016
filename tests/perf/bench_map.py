# SPDX-License-Identifier: Apache-2.0
"""How long `pagetier pool map` takes for the largest models, and what memory it needs.

The models are headers alone, in sparse files of the full size: stacks of 92 layers x 896 experts in
a GGUF of several shards, and the same experts as one tensor each, quantised with scales and shapes,
in safetensors shards with an index.  Each is mapped by a process of its own.  The GGUF is also read
by the `gguf` package, for comparison.  Exit status 1 when a bar is missed.
"""

import argparse
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np

LAYERS, EXPERTS, HIDDEN, INNER = 92, 896, 7168, 2048
GGUF_SHARDS, SAFETENSORS_SHARDS = 12, 93
SECONDS_BAR = 10.0
BYTES_BAR = 500_000_000
VOCABULARY = 200_000


def write_gguf(folder: Path) -> Path:
    """Headers of Q4_K stacks with a real-sized vocabulary; the first shard."""
    writer = gguf.GGUFWriter(
        None, "kimi", split_max_tensors=-(-(5 * LAYERS + 3) // GGUF_SHARDS), use_temp_file=False
    )
    writer.add_block_count(LAYERS + 1)
    writer.add_leading_dense_block_count(1)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(16)
    writer.add_token_list([f"token-{number}" for number in range(VOCABULARY)])
    writer.add_token_merges([f"merge {number}" for number in range(VOCABULARY)])
    for name, shape in _gguf_tensors():
        blocks = int(np.prod(shape)) // 256 * 144
        row = (*shape[:-1], shape[-1] // 256 * 144)
        writer.add_tensor_info(
            name, row, np.dtype(np.uint8), blocks, gguf.GGMLQuantizationType.Q4_K
        )
    writer.write_header_to_file(folder / "large.gguf")
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for file, tensors in zip(writer.fout or [], writer.tensors, strict=True):
        data = sum(-(-tensor.nbytes // 32) * 32 for tensor in tensors.values())
        file.truncate(-(-file.tell() // 32) * 32 + data)
    writer.close()
    return min(folder.glob("*.gguf"))


def _gguf_tensors() -> Iterator[tuple[str, tuple[int, ...]]]:
    for layer in range(1, LAYERS + 1):
        block = f"blk.{layer}"
        yield f"{block}.attn_q.weight", (HIDDEN, HIDDEN)
        yield f"{block}.ffn_gate_inp.weight", (EXPERTS, HIDDEN)
        yield f"{block}.ffn_gate_exps.weight", (EXPERTS, INNER, HIDDEN)
        yield f"{block}.ffn_up_exps.weight", (EXPERTS, INNER, HIDDEN)
        yield f"{block}.ffn_down_exps.weight", (EXPERTS, HIDDEN, INNER)


def write_safetensors(folder: Path) -> Path:
    """Headers of one tensor per expert, matrix, scale and shape; the folder."""
    index: dict[str, str] = {}
    for layer in range(1, LAYERS + 1):
        name = f"model-{layer:05}-of-{SAFETENSORS_SHARDS:05}.safetensors"
        header: dict[str, object] = {}
        end = 0
        for tensor, dtype, shape, size in _safetensors_tensors(layer):
            header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
            index[tensor] = name
            end += size
        raw = json.dumps(header).encode()
        with (folder / name).open("wb") as file:
            file.write(struct.pack("<Q", len(raw)) + raw)
            file.truncate(8 + len(raw) + end)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    config = {"num_hidden_layers": LAYERS + 1, "n_routed_experts": EXPERTS}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _safetensors_tensors(layer: int) -> Iterator[tuple[str, str, list[int], int]]:
    yield f"model.layers.{layer}.mlp.gate.weight", "BF16", [EXPERTS, HIDDEN], 2 * EXPERTS * HIDDEN
    for expert in range(EXPERTS):
        for matrix in ("gate_proj", "up_proj", "down_proj"):
            name = f"model.layers.{layer}.mlp.experts.{expert}.{matrix}"
            yield f"{name}.weight_packed", "I32", [INNER, HIDDEN // 8], INNER * HIDDEN // 2
            yield f"{name}.weight_scale", "BF16", [INNER, HIDDEN // 32], INNER * HIDDEN // 16
            yield f"{name}.weight_shape", "I32", [2], 8


def map_in_a_process(model: Path, pool: Path) -> dict[str, float]:
    """What the command takes, start of Python and imports included."""
    command = [sys.executable, "-m", "pagetier.bench.cli", "pool", "map", str(model), str(pool)]
    return _measured([*command, "--json"])


def read_by_the_package(model: Path) -> dict[str, float]:
    """The same for the first shard alone, by gguf.GGUFReader."""
    return _measured([sys.executable, "-c", f"import gguf; gguf.GGUFReader({str(model)!r})"])


def _measured(command: list[str]) -> dict[str, float]:
    """Wall and CPU seconds of a process, and its greatest memory."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: failed")
    return {
        "seconds": time.monotonic() - started,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "bytes": usage.ru_maxrss * 1024,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, help="where the sparse files go, on a disk")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        folder = Path(name)
        (folder / "gguf").mkdir()
        (folder / "safetensors").mkdir()
        first = write_gguf(folder / "gguf")
        figures = {
            "gguf": map_in_a_process(first, folder / "gguf-pool"),
            "safetensors": map_in_a_process(
                write_safetensors(folder / "safetensors"), folder / "safetensors-pool"
            ),
            "gguf package, one shard": read_by_the_package(first),
        }
        manifests = {
            kind: (folder / f"{kind}-pool" / "pool.json").stat().st_size
            for kind in ("gguf", "safetensors")
        }
    if arguments.json:
        print(json.dumps({"figures": figures, "manifest_bytes": manifests}))
    for kind, figure in figures.items():
        print(
            f"{kind}: {figure['seconds']:.2f} s of wall, {figure['cpu_seconds']:.2f} s of CPU, "
            f"{figure['bytes'] / 1e6:.0f} MB",
            file=sys.stderr if arguments.json else sys.stdout,
        )
    mapped = figures["gguf"]
    return int(mapped["seconds"] > SECONDS_BAR or mapped["bytes"] > BYTES_BAR)


if __name__ == "__main__":
    sys.exit(main())
