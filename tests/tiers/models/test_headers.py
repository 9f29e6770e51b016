# SPDX-License-Identifier: Apache-2.0
"""Headers of strangers: an error in bounded time and memory, whatever they hold."""

import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagetier.tiers.models import errors, gguf_header, safetensors_header
from pagetier.tiers.models.geometry import read_geometry
from pagetier.tiers.models.gguf import read_gguf
from pagetier.tiers.models.safetensors import read_safetensors

MAX_PEAK_BYTES = 64 << 20


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def gguf_bytes(
    fields: list[bytes], tensors: list[tuple[str, tuple[int, ...], int, int]], data: int = 0
) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)) + b"".join(fields)
    for name, shape, kind, offset in tensors:
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
    return head + b"\0" * (-len(head) % 32 + data)


def number(key: str, value: int) -> bytes:
    return text(key) + struct.pack("<II", 4, value)


VALID = gguf_bytes(
    [
        text("general.architecture") + struct.pack("<I", 8) + text("m"),
        number("m.expert_count", 2),
        number("m.block_count", 1),
        text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b"),
        text("scores") + struct.pack("<IIQ", 9, 6, 3) + b"\0" * 12,
    ],
    [
        ("blk.0.ffn_gate_inp.weight", (32, 2), 0, 0),
        ("blk.0.ffn_up_exps.weight", (32, 1, 2), 2, 256),
        ("blk.0.ffn_down_exps.weight", (1, 32, 2), 0, 320),
    ],
    data=320 + 256,
)


def open_bytes(folder: Path, content: bytes, file_bytes: int = 0) -> BinaryIO:
    path = folder / "m.gguf"
    path.write_bytes(content)
    if file_bytes:
        with path.open("r+b") as file:
            file.truncate(file_bytes)
    return path.open("rb")


def test_the_valid_one_is_valid(tmp_path: Path) -> None:
    with open_bytes(tmp_path, VALID) as file:
        header = gguf_header.read_header(file, "m")
    assert header.fields == {
        "general.architecture": "m",
        "m.expert_count": 2,
        "m.block_count": 1,
    }
    assert [tensor.bytes for tensor in header.tensors] == [256, 36, 256]
    assert read_geometry(read_gguf(tmp_path / "m.gguf")).num_experts == 2


def bomb(key: str) -> bytes:
    """A metadata field that asks for more than there is."""
    many, string = 1 << 40, 8
    return {
        "string": text("k") + struct.pack("<IQ", string, many),
        "array of strings": text("k") + struct.pack("<IIQ", 9, string, many),
        "array of numbers": text("k") + struct.pack("<IIQ", 9, 4, 1 << 62),
        "key": struct.pack("<Q", many),
    }[key]


@pytest.mark.parametrize("key", ["string", "array of strings", "array of numbers", "key"])
@pytest.mark.parametrize("file_bytes", [0, 1 << 43])
def test_a_field_that_asks_for_terabytes(tmp_path: Path, key: str, file_bytes: int) -> None:
    """In a small file, and in a sparse one in which all of it would be there."""
    refused_soon(tmp_path, gguf_bytes([bomb(key)], []), file_bytes)


@pytest.mark.parametrize(("tensors", "fields"), [(1 << 60, 0), (0, 1 << 60), (1 << 20, 1 << 16)])
def test_counts_beyond_reason(tmp_path: Path, tensors: int, fields: int) -> None:
    content = b"GGUF" + struct.pack("<IQQ", 3, tensors, fields)
    refused_soon(tmp_path, content, 0)
    refused_soon(tmp_path, content, 1 << 43)


def test_empty_strings_without_end(tmp_path: Path) -> None:
    """Each costs nothing but its length: there may still not be ever more of them."""
    field = text("k") + struct.pack("<IIQ", 9, 8, gguf_header.MAX_STRINGS // 2)
    other = text("l") + struct.pack("<IIQ", 9, 8, gguf_header.MAX_STRINGS)
    content = gguf_bytes([field + b"\0" * 8 * (gguf_header.MAX_STRINGS // 2), other], [])
    with (
        open_bytes(tmp_path, content, 1 << 40) as file,
        pytest.raises(errors.DamagedHeader, match="strings"),
    ):
        gguf_header.read_header(file, "m")


def refused_soon(folder: Path, content: bytes, file_bytes: int) -> None:
    tracemalloc.start()
    try:
        with open_bytes(folder, content, file_bytes) as file, pytest.raises(errors.ModelError):
            gguf_header.read_header(file, "m")
        assert tracemalloc.get_traced_memory()[1] < MAX_PEAK_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (("t", (31,), 2, 0), "31 elements, which are not whole Q4_0 blocks of 32"),
        (("t", (0,), 0, 0), "has the shape"),
        (("t", (1 << 40, 1 << 40), 0, 0), "has the shape"),
        (("t", (8,), 4, 0), "is of ggml type 4"),
        (("t", (8,), 0, 1), "not aligned to 32"),
        (("t", (), 0, 0), "has 0 dimensions"),
        (("t", (1, 1, 1, 1, 1), 0, 0), "has 5 dimensions"),
        (("t", (8,), 0, 1 << 62), "the download is not complete"),
        (("t", (1 << 50,), 0, 0), "the download is not complete"),
        (("t" * 2000, (8,), 0, 0), "the length of a tensor's name is 2000"),
    ],
)
def test_a_tensor_that_cannot_be(
    tmp_path: Path, tensor: tuple[str, tuple[int, ...], int, int], message: str
) -> None:
    with (
        open_bytes(tmp_path, gguf_bytes([], [tensor], 64)) as file,
        pytest.raises(errors.ModelError, match=message),
    ):
        gguf_header.read_header(file, "m")


@pytest.mark.parametrize("alignment", [0, 3, 48])
def test_an_alignment_that_is_none(tmp_path: Path, alignment: int) -> None:
    content = gguf_bytes([number("general.alignment", alignment)], [])
    with (
        open_bytes(tmp_path, content) as file,
        pytest.raises(errors.DamagedHeader, match="no power of two"),
    ):
        gguf_header.read_header(file, "m")


def test_an_alignment_of_its_own(tmp_path: Path) -> None:
    content = gguf_bytes([number("general.alignment", 4096)], [("t", (8,), 0, 4096)], 1 << 14)
    with open_bytes(tmp_path, content) as file:
        (tensor,) = gguf_header.read_header(file, "m").tensors
    assert tensor.offset == 8192


def test_names_given_twice(tmp_path: Path) -> None:
    one = ("t", (8,), 0, 0)
    for content, kind in (
        (gguf_bytes([number("a", 1), number("a", 1)], []), errors.DamagedHeader),
        (gguf_bytes([], [one, one], 64), errors.DuplicateTensor),
    ):
        with open_bytes(tmp_path, content) as file, pytest.raises(kind, match=r"twice|two tensors"):
            gguf_header.read_header(file, "m")


def test_tensors_that_share_bytes(tmp_path: Path) -> None:
    one, two = ("a", (16,), 0, 0), ("b", (16,), 0, 32)
    with open_bytes(tmp_path, gguf_bytes([], [two, one], 128)):
        pass
    with pytest.raises(errors.OverlappingTensors, match="belongs to two tensors"):
        read_geometry(read_gguf(tmp_path / "m.gguf"))


def test_stacks_of_an_impossible_number_of_experts(tmp_path: Path) -> None:
    """The sizes fit a sparse file, the extents would not fit any memory."""
    experts = 1 << 30
    content = gguf_bytes([], [("blk.0.ffn_up_exps.weight", (1, 1, experts), 24, 0)], 0)
    with open_bytes(tmp_path, content, 1 << 40):
        pass
    with pytest.raises(errors.GeometryMismatch, match="more than any model"):
        read_geometry(read_gguf(tmp_path / "m.gguf"))


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(
            st.integers(4, len(VALID) - 577),
            st.sampled_from([1, 2, 4, 8]),
            st.integers(0, (1 << 64) - 1),
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, len(VALID)),
    st.booleans(),
)
def test_a_mutated_gguf_is_read_or_refused(
    tmp_path: Path, changes: list[tuple[int, int, int]], cut: int, sparse: bool
) -> None:
    content = bytearray(VALID)
    for at, width, value in changes:
        content[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    raw = bytes(content) if sparse else bytes(content[: max(cut, 24)])
    read_or_refused(lambda: read_geometry(read_gguf(write(tmp_path / "m.gguf", raw, sparse))))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_any_bytes_behind_the_magic_number_are_read_or_refused(
    tmp_path: Path, content: bytes
) -> None:
    raw = b"GGUF\3\0\0\0" + content
    read_or_refused(lambda: read_geometry(read_gguf(write(tmp_path / "m.gguf", raw, False))))


def write(path: Path, raw: bytes, sparse: bool) -> Path:
    path.write_bytes(raw)
    if sparse:
        with path.open("r+b") as file:
            file.truncate(1 << 42)
    return path


def read_or_refused(read: Callable[[], object]) -> None:
    tracemalloc.start()
    try:
        read()
    except errors.ModelError as error:
        assert "\n" not in str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MAX_PEAK_BYTES


SAFE = {
    "model.layers.0.mlp.experts.0.w2.weight": ("F16", [2, 4], 0, 16),
    "model.layers.0.mlp.experts.0.w3.weight": ("F8_E4M3", [2, 4], 16, 24),
    "model.layers.0.mlp.experts.1.w2.weight": ("F16", [2, 4], 24, 40),
    "model.layers.0.mlp.experts.1.w3.weight": ("F4", [2, 8], 40, 48),
}


def safe_header(entries: dict[str, tuple[Any, Any, Any, Any]]) -> bytes:
    header = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        for name, (dtype, shape, begin, end) in entries.items()
    }
    return json.dumps(header).encode()


def safe_bytes(header: bytes, data: int = 48) -> bytes:
    return struct.pack("<Q", len(header)) + header + b"\0" * data


def test_the_valid_safetensors_is_valid(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", safe_bytes(safe_header(SAFE)), False)
    geometry = read_geometry(read_safetensors(path))
    sizes = [np.asarray(part.bytes).tolist() for part in geometry.parts[0]]
    assert sizes == [[16, 16], [8, 8]]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (("F16", [2, 4], 0, 15), "15 bytes"),
        (("F4", [1, 3], 0, 2), "make 12 bits"),
        (("F12", [2, 4], 0, 16), "of type 'F12'"),
        ((3, [2, 4], 0, 16), "of type 3"),
        (("F16", [2, -4], 0, 16), "impossible shape"),
        (("F16", [2, 4.0], 0, 16), "impossible shape"),
        (("F16", [True, 8], 0, 16), "impossible shape"),
        (("F16", "24", 0, 16), "impossible shape"),
        (("F16", [1] * 99, 0, 2), "impossible shape"),
        (("F16", [2, 4], -16, 0), "impossible shape or offset"),
        (("F16", [2, 4], 16, 0), "-16 bytes"),
        (("F16", [2, 4], 64, 80), "download is not complete"),
    ],
)
def test_a_safetensor_that_cannot_be(
    tmp_path: Path, entry: tuple[Any, Any, Any, Any], message: str
) -> None:
    raw = safe_bytes(safe_header({**SAFE, "model.layers.0.mlp.experts.0.w2.weight": entry}))
    path = write(tmp_path / "m.safetensors", raw, False)
    with pytest.raises(errors.ModelError, match=message):
        read_geometry(read_safetensors(path))


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"a": 1}',
        b'{"a": []}',
        b'{"a": {"dtype": "F16"}}',
        b'{"a": {"dtype": "F16", "shape": [], "data_offsets": [1]}}',
        b'{"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, "a": 1}',
        b'{"a": 1' + b"0" * 5000 + b"}",
        b'{"a": ' + b"[" * 100_000,
        b'{"a": [' + b"[]," * 500_000 + b"[]]}",
        b'{"a": [' + b"{}," * 5_000_000 + b"{}]}",
    ],
    ids=lambda header: header[:20].decode(errors="replace"),
)
def test_json_that_is_no_header(tmp_path: Path, header: bytes) -> None:
    path = write(tmp_path / "m.safetensors", safe_bytes(header), False)
    with pytest.raises(errors.ModelError) as caught:
        read_geometry(read_safetensors(path))
    assert len(str(caught.value)) < 1000


def test_a_header_as_long_as_the_world(tmp_path: Path) -> None:
    for length in (1 << 63, 100_000_001, 100_000_000):
        raw = struct.pack("<Q", length) + b"{}"
        with (
            open_bytes(tmp_path, raw) as file,
            pytest.raises(errors.ModelError, match=r"ask for a header|within the header"),
        ):
            safetensors_header.read_header(file, "m", 0)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(st.integers(0, len(safe_header(SAFE)) - 1), st.binary(min_size=0, max_size=6)),
        min_size=1,
        max_size=3,
    )
)
def test_a_mutated_safetensors_is_read_or_refused(
    tmp_path: Path, changes: list[tuple[int, bytes]]
) -> None:
    header = bytearray(safe_header(SAFE))
    for at, value in changes:
        header[at : at + 4] = value
    path = write(tmp_path / "m.safetensors", safe_bytes(bytes(header)), False)
    read_or_refused(lambda: read_geometry(read_safetensors(path)))
