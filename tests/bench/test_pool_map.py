# SPDX-License-Identifier: Apache-2.0
"""`pagetier pool map` and the other pool commands on what it made."""

import json
import os
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest


def run(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pagetier.bench.cli", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The first of several shards of a model of 2 layers x 3 experts behind a dense one."""
    writer = gguf.GGUFWriter(None, "qwen3moe", split_max_tensors=2)
    writer.add_block_count(3)
    writer.add_expert_count(3)
    writer.add_expert_used_count(2)
    random = np.random.default_rng(1)
    for layer in (1, 2):
        for role, shape in (("gate", (3, 8, 32)), ("up", (3, 8, 32)), ("down", (3, 32, 8))):
            writer.add_tensor(
                f"blk.{layer}.ffn_{role}_exps.weight", random.random(shape, dtype=np.float32)
            )
    writer.write_header_to_file(tmp_path / "m.gguf")
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    first = Path((writer.fout or [])[0].name)
    writer.close()
    return first


def test_maps_and_tells_how_layers_are_numbered(model: Path, tmp_path: Path) -> None:
    made = run("pool", "map", model.name, "pool", cwd=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.splitlines() == [
        "pool: 6 experts, 18.4 KB in 18 extents of 3 files; spine 0 B",
        "layers 0-1 of a trace are layers 1-2 of the model",
    ]
    info = json.loads(run("pool", "info", "pool", "--json", cwd=tmp_path).stdout)
    assert (info["layout"], info["num_layers"], info["num_experts"]) == ("mapped", 2, 3)
    assert info["expert_bytes"] == {"min": 3072, "max": 3072, "mean": 3072.0}
    assert info["extents_per_expert"] == {"min": 3, "max": 3}
    again = run("pool", "map", model.name, "pool", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["digest"] == info["digest"]


def test_the_other_commands_take_a_mapped_pool(model: Path, tmp_path: Path) -> None:
    run("pool", "map", model.name, "pool", cwd=tmp_path)
    assert run("pool", "info", "pool", cwd=tmp_path).returncode == 0
    assert run("pool", "check", "pool", cwd=tmp_path).returncode == 0
    again = run("pool", "check", "pool", cwd=tmp_path)
    assert again.stdout == "pool: every expert is as it was when it was first read\n"
    evicted = run("pool", "evict", "pool", "--json", cwd=tmp_path)
    assert json.loads(evicted.stdout)["proven"] is True, evicted.stdout
    status = os.stat(model)
    with model.open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(b"x")
    changed = run("pool", "check", "pool", cwd=tmp_path)
    assert changed.returncode == 2
    assert changed.stderr == (
        f"pagetier: {model}: was written to after it was mapped; map the model again\n"
    )
    os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns))
    checked = run("pool", "check", "pool", "--json", cwd=tmp_path)
    assert checked.returncode == 1
    assert "layer 0 expert 2: its bytes hash to" in json.loads(checked.stdout)["problem"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("absent.gguf", "pool"), "absent.gguf: is not there"),
        (("dense.gguf", "pool"), "dense.gguf: does not start with GGUF"),
        ((".", "pool"), "holds 2 GGUF models"),
        (("m-00001-of-00003.gguf", "taken"), "taken: is no pool"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    model: Path, tmp_path: Path, arguments: tuple[str, str], message: str
) -> None:
    (tmp_path / "dense.gguf").write_text("not a model")
    (tmp_path / "taken").mkdir()
    failed = run("pool", "map", *arguments, cwd=tmp_path)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert message in failed.stderr
    assert len(failed.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "pool").exists()
