# SPDX-License-Identifier: Apache-2.0
"""A campaign on the experts of a model, under a wall: measured where they lie, and left alone."""

import ctypes
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from pagetier.analysis.generate import default_trace
from pagetier.analysis.online import OnlineLru
from pagetier.analysis.plans import build_plan
from pagetier.analysis.results import read_results
from pagetier.bench.cell import VERIFY_EVERY
from pagetier.tiers.pool import open_pool

pytestmark = pytest.mark.live

Q = gguf.GGMLQuantizationType
LAYERS, EXPERTS, TOP_K, ITERATIONS = 6, 16, 3, 40
TRACE = {"layers": LAYERS, "experts": EXPERTS, "top_k": TOP_K, "iterations": ITERATIONS, "seed": 3}
CAPACITY_BYTES = 24_000_000  # three iterations' demand, half of the experts
IN_CLOSE_WRITE, IN_MODIFY = 0x8, 0x2


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of one file behind a dense layer: half of the layers have larger down projections,
    as in a Q4_K_M; no expert starts on a page."""
    path = tmp_path / "weights" / "m.gguf"
    path.parent.mkdir()
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_block_count(1 + LAYERS)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(TOP_K)
    random = np.random.default_rng(5)
    for layer in range(1, 1 + LAYERS):
        for role in ("down", "gate", "up"):
            kind = Q.Q6_K if role == "down" and layer % 2 else Q.Q4_K
            block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
            stack = random.integers(0, 256, (EXPERTS, 512, 512 // block * block_bytes), np.uint8)
            writer.add_tensor(f"blk.{layer}.ffn_{role}_exps.weight", stack, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path


def pagetier(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pagetier.bench.cli", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def campaign(model: Path, tmp_path: Path) -> Path:
    """Every way in which a tier reads or holds experts, on the mapped pool."""
    mapped = pagetier(tmp_path, "pool", "map", str(model), "pool")
    assert mapped.returncode == 0, mapped.stderr
    document = {
        "trace": {"generate": TRACE},
        "pool": "pool",
        "mechanisms": ["wall"],
        "capacities": [CAPACITY_BYTES],
        "tiers": ["page-cache", "hybrid", "direct"],
        "advice": ["random"],
        "threads": 4,
        # Other readers of a shared disk may not decide over these tests.
        "limits": {"foreign_share": 1, "disagreement_share": 1},
    }
    path = tmp_path / "c.yaml"
    path.write_text(json.dumps(document))  # JSON is YAML
    return path


@contextmanager
def watched(path: Path) -> Iterator[list[bytes]]:
    """Events of any process that had the file open for writing, or wrote to it."""
    libc = ctypes.CDLL(None, use_errno=True)
    found: list[bytes] = []
    fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        events = IN_CLOSE_WRITE | IN_MODIFY
        assert libc.inotify_add_watch(fd, os.fsencode(path), events) >= 0
        yield found
        try:
            found.append(os.read(fd, 4096))
        except BlockingIOError:
            return
    finally:
        os.close(fd)


def state(path: Path) -> tuple[str, int, int, int]:
    status = path.stat()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return digest, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def missed_bytes(sizes: list[int]) -> int:
    """Of the second of two passes, by the LRU that is fed read for read."""
    lru, after = OnlineLru(sizes, CAPACITY_BYTES), [0]
    for _ in range(2):
        lru.read(build_plan(default_trace(**TRACE)).experts.tolist())
        after.append(lru.computed().miss_bytes)
    return after[2] - after[1]


def test_a_mapped_model_is_measured_and_left_alone(
    live: None, model: Path, campaign: Path, tmp_path: Path
) -> None:
    before = state(model)
    with watched(model) as writers:
        done = pagetier(tmp_path, "run", str(campaign), "-o", "out", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (state(model), writers) == (before, [])
    with watched(model) as writers:
        model.open("ab").close()
    assert len(writers) == 1, "a look at the watch itself"

    cells: dict[str, dict[str, Any]] = {
        cell["tier"]: cell for cell in json.loads(done.stdout)["cells"]
    }
    assert {(cell["state"], cell["layout"]) for cell in cells.values()} == {("kept", "mapped")}
    assert len({cell["content_hash"] for cell in cells.values()}) == 1
    plan, sizes = build_plan(default_trace(**TRACE)), open_pool(tmp_path / "pool").expert_sizes
    assert len(set(sizes.tolist())) == 2
    demand_bytes = int(sizes[plan.experts].sum())
    for cell in cells.values():
        assert cell["demand_bytes_per_iteration"] * ITERATIONS == pytest.approx(demand_bytes)
        # The kernel is no LRU, least of all of so few pages; what is nominal is compared below.
        assert 2 / 3 < cell["in_extent_amplification"] < 3 / 2
    for record in read_results(tmp_path / "out").cells:
        assert record.passes["warm-up"].result["verified_reads"] == -(
            -plan.num_reads // VERIFY_EVERY
        )

    nominal = {tier: cell["nominal_miss_bytes_per_iteration"] for tier, cell in cells.items()}
    assert nominal["page-cache"] * ITERATIONS == pytest.approx(missed_bytes(sizes.tolist()))
    assert nominal["direct"] * ITERATIONS == pytest.approx(demand_bytes)
    held = cells["hybrid"]["budget"]
    assert held["locked_read_bytes"] == held["locked_asked_bytes"] > 0


def test_weights_that_are_not_what_they_were_are_no_measurement(
    live: None, model: Path, campaign: Path, tmp_path: Path
) -> None:
    """The same inode, size and times: only the content tells."""
    assert pagetier(tmp_path, "run", str(campaign), "-o", "good").returncode == 0
    pool, status = open_pool(tmp_path / "pool"), model.stat()
    with model.open("r+b") as file:
        for extent in pool.extent_table().extents:
            file.seek(int(extent["offset"]) + int(extent["length"]) - 1)
            last = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([last ^ 1]))
        file.flush()
        os.fsync(file.fileno())
    os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns))
    done = pagetier(tmp_path, "run", str(campaign), "-o", "bad", "--json")
    assert done.returncode == 1, done.stderr
    for cell in json.loads(done.stdout)["cells"]:
        assert cell["state"] == "rejected"
        assert "content is not what the pool was filled with" in cell["reasons"][0]


def test_a_guest_has_no_model(live: None, campaign: Path, tmp_path: Path) -> None:
    done = pagetier(tmp_path, "lab", "run", str(campaign), "-o", "lab")
    assert done.returncode == 2
    assert "a model on this host, which a guest has not" in " ".join(done.stderr.split())
    assert not (tmp_path / "lab").exists()
