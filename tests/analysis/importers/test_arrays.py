# SPDX-License-Identifier: Apache-2.0
"""Arrays: their axes, their sentinels, and what they claim of themselves."""

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces import Trace
from pagetier.analysis.traces.importers import Imported, read_physical_map

Ids = npt.NDArray[np.int32]
Import = Callable[..., Imported]
Fails = Callable[..., str]
Write = Callable[[str, bytes], Path]


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz(compressed: bool = False, **arrays: Any) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)
    return buffer.getvalue()


def same(trace: Trace, ids: npt.NDArray[np.generic]) -> bool:
    return bool(np.array_equal(trace.experts, ids.reshape(-1)))


@pytest.mark.parametrize("dtype", ["<i2", ">i4", "<i8", "u1", "<u2", "<u8"])
def test_any_whole_numbers(bring: Import, write: Write, ids: Ids, dtype: str) -> None:
    found = bring(write("run.npy", npy(ids.astype(dtype))))
    assert found.format == "npy"
    assert same(found.trace, ids)
    assert found.trace.requests == ("run",)
    assert found.trace.header.top_k == 2


def test_fortran_order(bring: Import, write: Write, ids: Ids) -> None:
    content = npy(np.asfortranarray(ids))
    assert b"'fortran_order': True" in content
    assert same(bring(write("a.npy", content)).trace, ids)


def test_axes(bring: Import, write: Write, ids: Ids) -> None:
    turned = write("a.npy", npy(ids.transpose(1, 0, 2)))
    assert same(bring(turned, axes="ltk").trace, ids)
    assert not same(bring(turned).trace, ids)
    assert same(bring(write("b.npy", npy(ids.transpose(2, 1, 0))), axes="klt").trace, ids)


@pytest.mark.parametrize("compressed", [False, True])
def test_npz_with_one_array_under_any_name(
    bring: Import, write: Write, ids: Ids, compressed: bool
) -> None:
    found = bring(write("a.npz", npz(compressed, whatever=ids)))
    assert found.format == "npz"
    assert same(found.trace, ids)


def test_npz_among_others(bring: Import, fails: Fails, write: Write, ids: Ids) -> None:
    path = write("a.npz", npz(first=ids, second=ids[::-1]))
    assert "holds the arrays first, second: name the one" in fails(path)
    assert same(bring(path, columns={"experts": "second"}).trace, ids[::-1])
    assert same(bring(write("b.npz", npz(routed_experts=ids, other=ids[0]))).trace, ids)


def test_prompt_tokens_beside_the_routes(bring: Import, write: Write, ids: Ids) -> None:
    content = npz(routed_experts=ids, prompt_token_ids=np.arange(1), output_token_ids=np.arange(2))
    found = bring(write("a.npz", content))
    assert same(found.trace, ids[1:])
    assert found.notes == ("a.npz: 1 positions of the prompt were left out",)
    assert same(bring(write("b.npy", npy(ids)), prompt_tokens=2).trace, ids[2:])


def test_one_array_per_layer(bring: Import, fails: Fails, write: Write, ids: Ids) -> None:
    content = npz(E_layer9=ids[:, 1], E_layer3=ids[:, 0], freq=np.zeros((2, 6)))
    found = bring(write("a.npz", content))
    assert same(found.trace, ids)
    assert found.notes == ("a.npz: layers 3,9 of the file are layers 0-1 here",)
    ragged = npz(E_layer0=ids[:, 1], E_layer1=ids[1:, 0])
    assert "differ in shape" in fails(write("b.npz", ragged))


def test_positions_from_a_prefix_cache_are_left_out(bring: Import, write: Write, ids: Ids) -> None:
    cached = np.concatenate([np.full((4, 2, 2), -1, np.int16), ids.astype(np.int16)])
    found = bring(write("a.npy", npy(cached)))
    assert same(found.trace, ids)
    assert found.trace.step.tolist() == [0, 0, 1, 1, 2, 2]
    assert found.notes == ("a.npy: 4 positions without recorded routes (-1) were left out",)


def test_dense_layers_of_minus_one_are_no_layers(bring: Import, write: Write, ids: Ids) -> None:
    dense = np.concatenate([np.full((3, 1, 2), -1, np.int32), ids], axis=1)
    found = bring(write("a.npy", npy(dense)))
    assert same(found.trace, ids)
    assert "layers 1-2 of the file are layers 0-1 here" in found.notes[0]


def test_padding_to_a_wider_k(bring: Import, fails: Fails, write: Write, ids: Ids) -> None:
    padded = np.concatenate([ids, np.full((3, 2, 6), -1, np.int32)], axis=2)
    path = write("a.npy", npy(padded))
    assert "wrong width: 2 experts, expected top_k 8" in fails(path, num_experts=9)
    assert same(bring(path, top_k=2).trace, ids)


def test_a_hole_is_refused_unless_repaired(
    bring: Import, fails: Fails, write: Write, ids: Ids
) -> None:
    holed = ids.copy()
    holed[1, 1, 0] = -1
    path = write("a.npy", npy(holed))
    message = fails(path)
    assert message == (
        f"{path}: array[1][1]: wrong width: 1 experts, expected top_k 2"
        " (or more in a speculative record, at most 6)"
    )
    found = bring(path, repair=True)
    assert same(found.trace, ids[[0, 2]])
    assert "repaired: 1 of 3 iterations were left out, the first at" in found.notes[0]


def test_layers_by_name(bring: Import, fails: Fails, write: Write, ids: Ids) -> None:
    path = write("a.npy", npy(ids))
    found = bring(path, layers=(1,))
    assert found.trace.header.num_layers == 1
    assert same(found.trace, ids[:, 1])
    assert "3 records of layers 0 were left out" in found.notes[1]
    assert "layer 5 of --layers routes nothing" in fails(path, layers=(0, 5))


def test_physical_ids(bring: Import, fails: Fails, write: Write, ids: Ids) -> None:
    """Copies 6 and 7 are experts 3 and 1 of layer 0, and 2 and 3 of layer 1."""
    tables = np.array([[0, 1, 2, 3, 4, 5, 3, 1], [0, 1, 2, 3, 4, 5, 2, 3]])
    mapping = write("map.npy", npy(tables))
    physical = ids.copy()
    physical[:, 0][ids[:, 0] == 1] = 7
    physical[:, 1][ids[:, 1] == 2] = 6
    path = write("a.npy", npy(physical))
    assert same(bring(path, physical_map=read_physical_map(mapping)).trace, ids)
    assert "expert id 7 is out of range" in fails(path)
    short = write("short.npy", npy(np.tile([0, 1, 2, 3, 4, 5, 3], (2, 1))))
    assert "expert 7 is not in the physical map of 2 layers and 7 copies" in fails(
        path, physical_map=read_physical_map(short)
    )
    for bad in (ids, np.zeros((2, 3)), np.full((1, 1), -1)):
        with pytest.raises(Exception, match="a physical map"):
            read_physical_map(write("bad.npy", npy(bad)))


BAD_ARRAYS: list[tuple[Any, str]] = [
    (np.array([[[1.0, np.nan]]]), "holds float64 instead of whole numbers"),
    (np.array([[[1.5, 2.0]]], "f2"), "holds float16 instead of whole numbers"),
    (np.array([[[True, False]]]), "holds bool instead of whole numbers"),
    (np.array([[[1, -2]]]), "holds ids from -2 to 1"),
    (np.array([[[1, 2**40]]]), "holds ids from 1 to 1099511627776"),
    (np.array([[[1, 2**63]]], "u8"), "holds ids from 1 to 9223372036854775808"),
    (np.zeros((2, 6), np.int64), "a table of counts and cannot be replayed"),
    (np.zeros((3, 0, 2), np.int64), "is empty (3, 0, 2)"),
    (np.arange(12).reshape(1, 2, 6) % 5, "counts are a table"),
    (np.array([[[1, 1]]]), "expert id 1 appears twice in one record"),
    (np.array([[[1, 6]]]), "expert id 6 is out of range: ids are 0..5"),
    (np.array([None, 1], object), "holds Python objects, records or text"),
    (np.array(["a"]), "holds Python objects, records or text"),
    (np.array([(1, 2)], [("a", "i4"), ("b", "i4")]), "holds Python objects, records or text"),
    (np.array(["2026-01-01"], "M8[D]"), "holds Python objects, records or text"),
    (np.zeros((1,) * 9, np.int64), "has 9 axes"),
]


@pytest.mark.parametrize(("array", "message"), BAD_ARRAYS)
def test_each_bad_array_is_refused(
    fails: Fails, write: Write, array: npt.NDArray[np.generic], message: str
) -> None:
    assert message in fails(write("a.npy", npy(array)))
    assert message in fails(write("a.npz", npz(routed_experts=array)))


def header(text: str, version: int = 1) -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            header("{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999, 8, 8), }\n"),
            "ends after 0 of",
        ),
        (
            header("{'descr': '<i4', 'fortran_order': False, 'shape': (1, 1, 2), }\n") + b"\0" * 7,
            "ends after 7 of 8 B",
        ),
        (
            header(f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({'9' * 5000},), }}\n"),
            "holds Python objects",
        ),
        (header("__import__('os').system('true')"), "holds Python objects"),
        (
            header("{'descr': '<i4', 'fortran_order': False, 'shape': (-1, 1, 2), }\n"),
            "holds Python objects",
        ),
        (b"\x93NUMPY\x02\0" + struct.pack("<I", 2**31), "has an npy header of 2147483648 B"),
        (b"\x93NUMPY\x09\0\x10\0", "is no npy data of version 1 to 3"),
        (b"\x93NUMPY", "is no npy data of version 1 to 3"),
    ],
)
def test_headers_are_not_believed(fails: Fails, write: Write, content: bytes, message: str) -> None:
    assert message in fails(write("a.npy", content))


def test_later_header_versions(bring: Import, write: Write, ids: Ids) -> None:
    text = "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 2, 2), }\n"
    assert same(bring(write("a.npy", header(text, 2) + ids.astype("<i4").tobytes())).trace, ids)


def test_a_bomb_in_a_zip(fails: Fails, write: Write) -> None:
    """300 MB of zeros in 300 KB: refused while it unpacks, not after."""
    buffer = io.BytesIO()
    text = header("{'descr': '<i1', 'fortran_order': False, 'shape': (300000000, 1, 1), }\n")
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("routed_experts.npy", text + bytes(300_000_000))
    assert len(buffer.getvalue()) < 10**6
    assert "unpacks to more than 200 times its size" in fails(write("a.npz", buffer.getvalue()))


def test_damaged_archives(fails: Fails, write: Write, ids: Ids) -> None:
    whole = npz(routed_experts=ids)
    for length in range(4, len(whole), 7):
        fails(write("a.npz", whole[:length]))
    flipped = bytearray(whole)
    flipped[whole.index(b"\x93NUMPY") + 140] ^= 1
    assert "is damaged" in fails(write("a.npz", bytes(flipped)))


def test_a_name_in_an_archive_that_is_no_text(fails: Fails, write: Write, ids: Ids) -> None:
    """Found by fuzzing: zipfile decodes the names of a directory."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("\u00e4.npy", npy(ids))
    damaged = buffer.getvalue().replace("\u00e4".encode(), b"\xff\xff")
    assert "the archive is damaged" in fails(write("a.npz", damaged))


def test_every_flipped_byte_of_an_archive(bring: Import, write: Write, ids: Ids) -> None:
    whole = npz(True, routed_experts=ids)
    for offset in range(len(whole)):
        flipped = bytearray(whole)
        flipped[offset] ^= 0x55
        try:
            bring(write("a.npz", bytes(flipped)))
        except InputError as error:
            assert "a.npz" in str(error)


def test_a_zip_of_other_things(fails: Fails, write: Write) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert "is in no format that is known" in fails(write("a.zip", buffer.getvalue()))
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", npy(np.zeros((1, 1, 1), int)))
    assert "packed in a way that is not known" in fails(write("a.npz", buffer.getvalue()))


def test_files_of_several_requests(bring: Import, fails: Fails, write: Write, ids: Ids) -> None:
    one, two = write("one.npy", npy(ids)), write("two.npy", npy(ids[::-1].copy()))
    found = bring(one, two)
    assert found.trace.requests == ("one", "two")
    assert found.trace.request.tolist() == [0] * 6 + [1] * 6
    assert same(found.trace, np.concatenate([ids, ids[::-1]]))
    three = write("three.npy", npy(ids[:, :1].copy()))
    with pytest.raises(Exception, match=r"three.npy: 1 layers of 6 experts, top-2, are another"):
        bring(one, three)
    with pytest.raises(Exception, match="a file was given twice"):
        bring(one, one)
