# SPDX-License-Identifier: Apache-2.0
"""Records per second of reading and importing traces, beside msgspec's bare decode of the lines.

Seconds of CPU time, for others may use the machine too; medians with extremes over the rounds,
which take turns.  msgspec only decodes each line into a typed object: it checks no rule between
records and builds no column.  Memory is the peak that Python's allocators saw while a file was
read, over the bytes of the arrays that came of it.  Exit status 1 when a bar is missed.
"""

import argparse
import base64
import gzip
import io
import json
import os
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import zstandard

from pagetier.analysis.traces import Trace, read_trace
from pagetier.analysis.traces.importers import ImportOptions, import_files

JSONL_BAR = 1_000_000.0
NPZ_BAR = 5_000_000.0
MEMORY_BAR = 3.0
LAYERS, EXPERTS, TOP_K = 48, 128, 8
OPTIONS = ImportOptions(num_layers=LAYERS, num_experts=EXPERTS, top_k=TOP_K)


class Record(msgspec.Struct):
    """A line of the canonical form."""

    req: str
    step: int
    layer: int
    experts: list[int]


Ids = np.ndarray[tuple[int, int, int], np.dtype[np.int16]]


def make_ids(records: int) -> Ids:
    """Routes [position, layer, choice] with distinct ids."""
    random = np.random.default_rng(5)
    first = random.integers(EXPERTS, size=(records // LAYERS, LAYERS, 1))
    gaps = random.integers(1, EXPERTS // TOP_K, size=(records // LAYERS, LAYERS, TOP_K))
    return ((first + np.cumsum(gaps, axis=2)) % EXPERTS).astype(np.int16)


def make_files(directory: Path, ids: Ids) -> dict[str, Path]:
    """The same routes in each form."""
    header = {"format": "moe-route-trace", "version": 1, "model": "bench"}
    header |= {"num_layers": LAYERS, "num_experts": EXPERTS, "top_k": TOP_K}
    canonical, engine = [json.dumps(header)], []
    for step, layers in enumerate(ids.tolist()):
        for layer, experts in enumerate(layers):
            listed = json.dumps(experts, separators=(",", ":"))
            canonical.append(f'{{"req":"a","step":{step},"layer":{layer},"experts":{listed}}}')
            engine.append(f'{{"layer": {layer}, "experts": {listed}, "t": 0.5}}')
    content = ("\n".join(canonical) + "\n").encode()
    files = {
        name: directory / name
        for name in ("trace.jsonl", "trace.jsonl.gz", "trace.jsonl.zst", "engine.jsonl")
    }
    files["trace.jsonl"].write_bytes(content)
    files["trace.jsonl.gz"].write_bytes(gzip.compress(content, 6))
    files["trace.jsonl.zst"].write_bytes(zstandard.compress(content))
    files["engine.jsonl"].write_text("\n".join(engine) + "\n")
    files["routes.npz"] = directory / "routes.npz"
    np.savez(files["routes.npz"], routed_experts=ids)
    files["packed.npz"] = directory / "packed.npz"
    np.savez_compressed(files["packed.npz"], routed_experts=ids)
    return files


def make_responses(directory: Path, ids: Ids) -> dict[str, Path]:
    """The same routes as servers return them, for which there is no bar of speed."""
    npy = io.BytesIO()
    np.save(npy, ids.astype(np.int32))
    bare = ids.astype("<i4").tobytes()
    values: dict[str, object] = {
        "response.json": ids.tolist(),
        "response, npy": base64.b64encode(npy.getvalue()).decode(),
        "response, bare": base64.b64encode(bare).decode(),
    }
    files = {name: directory / name for name in values}
    for name, value in values.items():
        files[name].write_text(json.dumps({"choices": [{"routed_experts": value}]}))
    return files


def read(path: Path) -> Trace:
    if path.name.startswith("trace"):
        return read_trace(path)
    return import_files([path], OPTIONS).trace


def decode(path: Path) -> int:
    """msgspec alone, line by line."""
    decoder = msgspec.json.Decoder(Record)
    lines = path.read_bytes().splitlines()[1:]
    for line in lines:
        decoder.decode(line)
    return len(lines)


def rates(files: dict[str, Path], records: int, rounds: int) -> dict[str, list[float]]:
    """Records per second of each file, and of msgspec on the plain one."""
    works: dict[str, Callable[[], object]] = {
        name: partial(read, path) for name, path in files.items()
    }
    works["msgspec, decode only"] = partial(decode, files["trace.jsonl"])
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            start = time.process_time()
            work()
            found[name].append(records / (time.process_time() - start))
    return found


def memory_ratio(path: Path) -> float:
    """Peak bytes while reading over the bytes of the arrays."""
    tracemalloc.start()
    trace = read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    columns = (trace.request, trace.step, trace.layer, trace.record_start, trace.experts)
    return peak / sum(column.nbytes for column in columns)


def report(found: dict[str, list[float]], files: dict[str, Path]) -> Iterator[bool]:
    """Prints each figure; yields whether it met its bar."""
    peer = statistics.median(found["msgspec, decode only"])
    for name, values in found.items():
        bar = None if name.startswith("msgspec") else JSONL_BAR
        bar = NPZ_BAR if name == "routes.npz" else bar
        median = statistics.median(values)
        said = "" if bar is None else f"bar {bar / 1e6:g}  {'ok' if median >= bar else 'MISSED'}"
        spread = f"{min(values) / 1e6:.2f}-{max(values) / 1e6:.2f}"
        print(
            f"{name:<22} {median / 1e6:6.2f} M records/s  ({spread}, n={len(values)})"
            f"  {median / peer:5.2f}x msgspec  {said}",
            flush=True,
        )
        yield bar is None or median >= bar
    for name, path in files.items():
        ratio = memory_ratio(path)
        state = "ok" if ratio <= MEMORY_BAR else "MISSED"
        print(f"{name:<22} {ratio:6.2f}x the arrays at its peak  bar {MEMORY_BAR:g}  {state}")
        yield ratio <= MEMORY_BAR


def main() -> int:
    """All figures; 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_200_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        ids = make_ids(options.records)
        files = make_files(Path(name), ids)
        records = ids.shape[0] * LAYERS
        found = rates(files, records, options.rounds)
        reached = [*report(found, files | make_responses(Path(name), ids))]
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
