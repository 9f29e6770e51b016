# SPDX-License-Identifier: Apache-2.0
"""Builders of small traces and of stored cells whose every number differs."""

import copy
import dataclasses
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pagetier.analysis.results import Cell, Iteration, Pass, Sample

HEADER = {
    "format": "moe-route-trace",
    "version": 1,
    "model": "tiny",
    "num_layers": 2,
    "num_experts": 5,
    "top_k": 2,
}


def record(req: Any, step: Any, layer: Any, experts: Any, **more: Any) -> dict[str, Any]:
    return {"req": req, "step": step, "layer": layer, "experts": experts, **more}


RECORDS = [
    record("a", 0, 0, [4, 1]),
    record("a", 0, 1, [0, 2]),
    record("a", 1, 0, [1, 3]),
    record("a", 1, 1, [2, 0]),
    record("b", 0, 0, [1, 0]),
    record("b", 0, 1, [4, 3]),
]

WriteTrace = Callable[..., Path]


@pytest.fixture
def records() -> list[dict[str, Any]]:
    """Two requests of two and one steps over two layers of five experts, k = 2."""
    return copy.deepcopy(RECORDS)


@pytest.fixture
def write_lines(tmp_path: Path) -> WriteTrace:
    """Writes a trace from records, or from texts that stand for lines as they are."""

    def write(
        lines: list[Any], *, header: Any = HEADER, packed: bool = False, end: str = "\n"
    ) -> Path:
        texts = [line if isinstance(line, str) else json.dumps(line) for line in [header, *lines]]
        encoded = ("\n".join(texts) + end).encode()
        path = tmp_path / "trace.jsonl"
        path.write_bytes(gzip.compress(encoded) if packed else encoded)
        return path

    return write


MB = 10**6
S = 10**9


def snapshot(at_s: float, **values: Any) -> dict[str, Any]:
    """A snapshot after `read` bytes: all three counters tell the same story by default."""
    read = values.get("read", 0)
    return {
        "at_ns": int(at_s * S),
        "device": {
            "major": 254,
            "minor": 0,
            "name": "vda",
            # Sectors are whole: the device's bytes here are multiples of 8 MB.
            "sectors_read": (7 * 512 + values.get("device", read)) // 512,
            "reads": 11 + read // MB,
        },
        "process": {"read_bytes": 13 + read, "rchar": 17 + read, "vm_swap_bytes": 0},
        "scope": {
            "current_bytes": values.get("current", 590 * MB),
            "peak_bytes": values.get("peak", 600 * MB),
            "file_bytes": values.get("file", 500 * MB),
            "pgscan_pages": 19 + values.get("scan", 0),
            "pgsteal_pages": 23 + values.get("steal", 0),
            "refault_file_pages": 29,
            "events": {"oom": 0, "oom_kill": 0, "max": 31},
            "io": {"254:0": 37 + read},
            "pressure": {"some_total_us": 41, "full_total_us": 43},
        },
        "vmstat": {
            "pgscan_kswapd": 47 + values.get("kswapd_scan", 0),
            "pgscan_direct": 53,
            "pgsteal_kswapd": 59 + values.get("kswapd_steal", 0),
            "pgsteal_direct": 61,
            "pgscan_file": 67 + values.get("file_scan", 0),
            "pgsteal_file": 71 + values.get("file_steal", 0),
            "pswpin": 73,
            "oom_kill": 79,
            "nr_dirty": 83,
        },
        "psi": {"memory": {"some_total_us": 89, "full_total_us": 97}, "cpu": None},
        "balloon": None,
    }


def _warm_up() -> Pass:
    # 1000 MB asked for: 800 MB first, the rest from cache.
    return Pass(
        name="warm-up",
        before=snapshot(0, read=0, file=0),
        after=snapshot(10, read=800 * MB),
        result={"start_ns": 0, "verified_reads": 5},
        iterations=(
            Iteration(0, 4 * S, 4 * S, 500 * MB, 50, 500 * MB, 0, None),
            Iteration(1, 9 * S, 5 * S, 500 * MB, 50, 300 * MB, 0, None),
        ),
        samples=(),
    )


def _measured() -> Pass:
    # 1000 MB asked for: 20 first, 180 repeat, 50 over-read; 6 of others; 240 nominal misses.
    return Pass(
        name="measured",
        before=snapshot(10, read=800 * MB),
        after=snapshot(16, read=1050 * MB, device=1056 * MB, scan=6000, steal=4000, kswapd_scan=90),
        result={"start_ns": 10 * S, "verified_reads": 0},
        iterations=(
            Iteration(0, 12 * S, 2 * S, 500 * MB, 50, 20 * MB, 80 * MB, 15),
            Iteration(1, 15 * S, 3 * S, 500 * MB, 50, 0, 100 * MB, 9),
        ),
        samples=(Sample(12 * S, snapshot(12, read=900 * MB, file=400 * MB)),),
    )


@pytest.fixture
def cell() -> Cell:
    """A kept cell under a wall: 100 reads of 10 MB a pass, C = 500 MB."""
    return Cell(
        id="c1",
        position=0,
        spec={
            "tier": "page-cache",
            "mechanism": "wall",
            "capacity_bytes": 500 * MB,
            "pool": "/data/my-pool",
            "layout": "files",
            "mglru": "keep",
            "advice": "default",
            "repetition": 1,
        },
        state="kept",
        reasons=(),
        labels=(),
        started="2026-01-01T00:00:00+00:00",
        finished="2026-01-01T00:01:00+00:00",
        enforced={
            "mechanism": "wall",
            "capacity_bytes": 500 * MB,
            "headroom_bytes": 100 * MB,
            "limit_bytes": 600 * MB,
            "locked_bytes": None,
        },
        facts={
            "expert_bytes": 10 * MB,
            "reads_per_pass": 100,
            "demand_bytes_per_pass": 1000 * MB,
            "nominal_misses": 24,
            "effective_misses": 25,
            "accepted_tokens": 4,
            "eviction": {"proven": True, "reason": None},
        },
        passes={"warm-up": _warm_up(), "measured": _measured()},
    )


Amend = Callable[..., Cell]


@pytest.fixture
def amend(cell: Cell) -> Amend:
    """A copy of the cell with one number set: amend(("measured", "after", "device", ...), 5)."""

    def change(path: tuple[str, ...], value: Any, base: Cell | None = None) -> Cell:
        changed = copy.deepcopy(base or cell)
        name, *inner, last = path
        target: Any = changed.passes.get(name) or getattr(changed, name)
        for key in inner:
            target = target[key] if isinstance(target, dict) else getattr(target, key)
        if isinstance(target, dict):
            target[last] = value
            return changed
        replaced = dataclasses.replace(target, **{last: value})
        return dataclasses.replace(changed, passes={**changed.passes, name: replaced})

    return change
