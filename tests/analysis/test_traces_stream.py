# SPDX-License-Identifier: Apache-2.0
"""Packed files: known by content, streamed, bounded, and damaged ones named with their line."""

import gzip
import io
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces import Trace, read_trace
from pagetier.analysis.traces.stream import blocks_of, lines_of, open_trace_file

WriteTrace = Callable[..., Path]
Records = list[dict[str, Any]]


def zstd(content: bytes) -> bytes:
    return zstandard.compress(content)


def two_frames(content: bytes) -> bytes:
    half = len(content) // 2
    return zstd(content[:half]) + zstd(b"") + zstd(content[half:])


def two_members(content: bytes) -> bytes:
    half = len(content) // 2
    return gzip.compress(content[:half]) + gzip.compress(content[half:])


PACKERS = [bytes, gzip.compress, two_members, zstd, two_frames]


@pytest.mark.parametrize("pack", PACKERS)
def test_any_packing_reads_the_same(
    write_lines: WriteTrace, records: Records, pack: Callable[[bytes], bytes]
) -> None:
    path = write_lines(records)
    plain = read_trace(path)
    path.write_bytes(pack(path.read_bytes()))
    again = read_trace(path)
    assert again.experts.tolist() == plain.experts.tolist()
    assert again.requests == plain.requests


@pytest.mark.parametrize("pack", PACKERS)
def test_blocks_hold_whole_lines(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    lines = [b"%d " % number * (number % 50) + b"\r\x0b\n" for number in range(30_000)] + [b"end"]
    path = tmp_path / "f"
    path.write_bytes(pack(b"".join(lines)))
    with open_trace_file(path) as file:
        blocks = list(blocks_of(path, file.stream))
    assert b"".join(blocks) == b"".join(lines)
    assert all(block.endswith(b"\n") for block in blocks[:-1])
    with open_trace_file(path) as file:
        assert list(lines_of(path, file.stream)) == lines


def refused(path: Path, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}:")


def test_every_cut_of_a_zstd_file_is_refused(write_lines: WriteTrace, records: Records) -> None:
    path = write_lines(records)
    whole = zstd(path.read_bytes())
    for length in range(4, len(whole)):
        path.write_bytes(whole[:length])
        refused(path, "the zstd stream ends early, the file is truncated: copy it again")


def test_every_flipped_byte_of_a_zstd_file_is_an_input_error_or_harmless(
    write_lines: WriteTrace, records: Records
) -> None:
    path = write_lines(records)
    whole = zstandard.ZstdCompressor(write_checksum=True).compress(path.read_bytes())
    for offset in range(len(whole)):
        flipped = bytearray(whole)
        flipped[offset] ^= 0x10
        path.write_bytes(flipped)
        try:
            assert read_trace(path).num_records == 6
        except InputError as error:
            assert str(path) in str(error)


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_a_bomb_is_refused_while_it_unpacks(
    write_lines: WriteTrace, pack: Callable[[bytes], bytes]
) -> None:
    """300 MB of empty lines in well under 1 MB."""
    path = write_lines([])
    path.write_bytes(pack(path.read_bytes() + b"\n" * 300_000_000))
    assert path.stat().st_size < 10**6
    with open_trace_file(path) as file, pytest.raises(InputError) as caught:
        for _ in blocks_of(path, file.stream):
            pass
    assert "the file unpacks to more than 200 times its size" in str(caught.value)


def test_a_line_without_end_in_zstd(write_lines: WriteTrace) -> None:
    path = write_lines([])
    path.write_bytes(zstd(path.read_bytes() + b" " * (5 << 20)))
    refused(path, "2: the line is longer than 4194304 B")


def test_a_window_beyond_memory_is_refused(tmp_path: Path) -> None:
    """A frame may ask for a window of terabytes before its first byte."""
    path = tmp_path / "f"
    path.write_bytes(b"\x28\xb5\x2f\xfd\x00\xf8" + b"\x01\x00\x00")
    refused(path, "1: the zstd stream is damaged")


def large(tmp_path: Path, records: int, top_k: int) -> Path:
    path = tmp_path / "large.jsonl.gz"
    header = {"format": "moe-route-trace", "version": 1, "model": "m"}
    header |= {"num_layers": 10, "num_experts": 256, "top_k": top_k}
    random = np.random.default_rng(3)
    text = io.StringIO()
    text.write(json.dumps(header) + "\n")
    for number in range(records):
        ids = (random.integers(256) + np.arange(top_k)) % 256
        row = {"req": "a", "step": number // 10, "layer": number % 10, "experts": ids.tolist()}
        text.write(json.dumps(row, separators=(",", ":")) + "\n")
    path.write_bytes(gzip.compress(text.getvalue().encode(), 1))
    return path


def array_bytes(trace: Trace) -> int:
    columns = (trace.request, trace.step, trace.layer, trace.record_start, trace.experts)
    return sum(column.nbytes for column in columns)


def test_memory_is_at_most_three_times_the_arrays(tmp_path: Path) -> None:
    path = large(tmp_path, 100_000, 8)
    read_trace(path)
    tracemalloc.start()
    trace = read_trace(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The parser's own buffers are 4 MB whatever the file holds.
    assert peak <= 3 * array_bytes(trace) + (4 << 20)
