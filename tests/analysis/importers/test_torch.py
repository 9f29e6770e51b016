# SPDX-License-Identifier: Apache-2.0
"""SGLang's recorder files: read without torch, and without running what is in them."""

import io
import os
import pickle
import sys
import tracemalloc
import types
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pagetier.analysis.traces.importers import Imported

Ids = npt.NDArray[np.int32]
Import = Callable[..., Imported]
Fails = Callable[..., str]
Write = Callable[[str, bytes], Path]

KINDS = {"i4": "IntStorage", "i8": "LongStorage", "i2": "ShortStorage"}


class Tensor:
    """Pickled as torch.save pickles a tensor."""

    def __init__(self, array: npt.NDArray[Any], strides: tuple[int, ...] | None = None) -> None:
        self.array = array
        self.strides = strides or tuple(step // array.itemsize for step in array.strides)


def save(value: Any, monkeypatch: pytest.MonkeyPatch, protocol: int = 2) -> bytes:
    """The archive that torch.save writes; its names resolve to stand-ins while it is made."""

    def rebuild(*arguments: Any) -> None:
        raise AssertionError("nothing may be called")

    rebuild.__module__, rebuild.__qualname__, rebuild.__name__ = (
        "torch._utils",
        "_rebuild_tensor_v2",
        "_rebuild_tensor_v2",
    )
    storages = {name: type(name, (), {"__module__": "torch"}) for name in KINDS.values()}
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(**storages))
    monkeypatch.setitem(
        sys.modules, "torch._utils", types.SimpleNamespace(_rebuild_tensor_v2=rebuild)
    )
    arrays: list[npt.NDArray[Any]] = []

    class Storage:
        def __init__(self, array: npt.NDArray[Any]) -> None:
            self.array = array

    class Pickler(pickle.Pickler):
        def reducer_override(self, item: Any) -> Any:
            if not isinstance(item, Tensor):
                return NotImplemented
            storage = Storage(item.array)
            shape = item.array.shape
            return rebuild, (storage, 0, shape, item.strides, False, OrderedDict())

        def persistent_id(self, item: Any) -> Any:
            if not isinstance(item, Storage):
                return None
            arrays.append(item.array)
            kind = storages[KINDS[item.array.dtype.str[1:]]]
            return "storage", kind, str(len(arrays) - 1), "cpu", item.array.size

    pickled = io.BytesIO()
    Pickler(pickled, protocol).dump(value)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("recorder/data.pkl", pickled.getvalue())
        archive.writestr("recorder/byteorder", "little")
        for number, array in enumerate(arrays):
            archive.writestr(f"recorder/data/{number}", np.ascontiguousarray(array).tobytes())
        archive.writestr("recorder/version", "3\n")
    return content.getvalue()


def forward(index: int, mode: int, positions: list[int], ids: npt.NDArray[Any]) -> dict[str, Any]:
    """A record: ids [layer, token, 8], padded with -1, under one dense layer."""
    layers, tokens, top_k = ids.shape
    padded = np.full((layers + 1, tokens, 8), -1, np.int32)
    padded[1:, :, :top_k] = ids
    return {
        "forward_pass_id": index,
        "rank": 0,
        "gatherer_key": "primary",
        "input_ids": [5] * tokens,
        "positions": positions,
        "extend_seq_lens": None,
        "forward_mode": mode,
        "topk_ids_of_layer": Tensor(padded),
        "misc_objects": [],
        "global_physical_count": Tensor(np.zeros((layers + 1, 8), np.int32)),
    }


@pytest.fixture
def recorded(ids: Ids) -> dict[str, Any]:
    """A prompt of two tokens, then the three steps."""
    records = [forward(0, 1, [0, 1], np.zeros((2, 2, 2), np.int32))]
    records += [forward(1 + i, 2, [2 + i], ids[i : i + 1].transpose(1, 0, 2)) for i in range(3)]
    mapping = np.tile(np.arange(6, dtype=np.int64), (3, 1))
    return {"records": records, "last_physical_to_logical_map": Tensor(mapping)}


@pytest.mark.parametrize("protocol", [2, 4])
def test_decode_passes_are_read(
    bring: Import,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    recorded: dict[str, Any],
    ids: Ids,
    protocol: int,
) -> None:
    found = bring(write("a.pt", save(recorded, monkeypatch, protocol)))
    assert found.format == "sglang-recorder"
    assert found.trace.experts.tolist() == ids.reshape(-1).tolist()
    assert found.trace.header.top_k == 2
    assert found.trace.requests == ("request-0",)
    assert "1 passes of prefill were left out" in found.notes[0]


def test_physical_copies_are_mapped(
    bring: Import,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    recorded: dict[str, Any],
    ids: Ids,
) -> None:
    mapping = np.tile(np.array([5, 4, 3, 2, 1, 0]), (3, 1))
    recorded["last_physical_to_logical_map"] = Tensor(mapping)
    found = bring(write("a.pt", save(recorded, monkeypatch)))
    assert found.trace.experts.tolist() == (5 - ids).reshape(-1).tolist()


def test_requests_are_followed_through_batches(
    bring: Import, write: Write, monkeypatch: pytest.MonkeyPatch, ids: Ids
) -> None:
    """a decodes at 4, 5, 6; b joins at 9, and stays when a has ended."""
    a, b = ids, 5 - ids
    passes = [([4], [a[0]]), ([5, 9], [a[1], b[0]]), ([6, 10], [a[2], b[1]]), ([11], [b[2]])]
    records = [
        forward(number, 2, positions, np.stack(rows, axis=1))
        for number, (positions, rows) in enumerate(passes)
    ]
    found = bring(write("a.pt", save({"records": records}, monkeypatch)))
    assert found.trace.requests == ("request-0", "request-1")
    assert found.trace.experts.tolist() == np.concatenate([a, b]).reshape(-1).tolist()


def test_counts_are_refused(
    fails: Fails, write: Write, monkeypatch: pytest.MonkeyPatch, recorded: dict[str, Any]
) -> None:
    counts = {"rank": 0, "logical_count": Tensor(np.zeros((4, 2, 6), np.int32))}
    assert "cannot be replayed" in fails(write("a.pt", save(counts, monkeypatch)))
    for record in recorded["records"]:
        del record["topk_ids_of_layer"]
    assert "record 0 has no ids of tokens" in fails(write("a.pt", save(recorded, monkeypatch)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"forward_mode": 5}, "record 1 is of mode 5: record without speculation"),
        ({"positions": None}, "record 1 has no token positions"),
        ({"positions": [1, 2]}, "record 1 has 2 positions for 1 tokens"),
        ({"topk_ids_of_layer": Tensor(np.zeros((2, 2), np.int32))}, "record 1 has 2 axes"),
        ({"topk_ids_of_layer": Tensor(np.zeros((9, 1, 8), np.int32))}, "record 1 of 9 layers x 8"),
        ({"topk_ids_of_layer": Tensor(np.zeros((3, 1, 9), np.int32))}, "record 1 of 3 layers x 9"),
        (
            {"topk_ids_of_layer": Tensor(np.zeros((3, 1, 8), np.int32), (8, 8, 999))},
            "reaches beyond its storage",
        ),
        (
            {"topk_ids_of_layer": Tensor(np.zeros((1, 1, 1), np.int32), (0, 0, -1))},
            "a tensor of no shape",
        ),
    ],
)
def test_each_bad_record_is_named(
    fails: Fails,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    recorded: dict[str, Any],
    change: dict[str, Any],
    message: str,
) -> None:
    recorded["records"][1] |= change
    assert message in fails(write("a.pt", save(recorded, monkeypatch)))


def test_a_tensor_that_claims_to_be_huge(
    fails: Fails, write: Write, monkeypatch: pytest.MonkeyPatch, recorded: dict[str, Any]
) -> None:
    """Strides of 0 make one number look like 10^12."""
    small = Tensor(np.zeros((1, 1, 1), np.int32), (0, 0, 0))
    small.array = np.lib.stride_tricks.as_strided(small.array, (10**4, 10**4, 10**4), (0, 0, 0))
    recorded["records"][1]["topk_ids_of_layer"] = small
    monkeypatch.setattr(np, "ascontiguousarray", lambda array: np.zeros(1, np.int32))
    assert "reaches beyond its storage" in fails(write("a.pt", save(recorded, monkeypatch)))


# A pair of the same value twice, twenty times over: small in memory, a million leaves when shown.
NESTED = b"\x88" + b"q\x00h\x00\x86" * 20


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (b"\x88" * 32 + b"\x93" * 24, "a bool where a str should be"),
        (b"}" + NESTED + b"\x88s", "a tuple as a key"),
        (b"}(" + NESTED + b"\x88u", "a tuple as a key"),
        (NESTED + b"Q", "a reference that is no tensor"),
        (
            b"ctorch._utils\n_rebuild_tensor_v2\n("
            b"(X\x07\x00\x00\x00storagectorch\nIntStorage\nX\x01\x00\x00\x000tQ"
            b"K\x00" + NESTED + b")tR",
            "a tensor of no shape",
        ),
        (
            b"}X\x07\x00\x00\x00records]}(X\x0c\x00\x00\x00forward_mode"
            + NESTED
            + b"X\x11\x00\x00\x00"
            b"topk_ids_of_layerctorch._utils\n_rebuild_tensor_v2\n("
            b"(X\x07\x00\x00\x00storagectorch\nIntStorage\nX\x01\x00\x00\x000tQ"
            b"K\x00))tRuas",
            "is of mode no number (tuple)",
        ),
    ],
    ids=["name", "key", "keys", "reference", "shape", "mode"],
)
def test_a_value_that_holds_itself_many_times_over_is_never_shown(
    fails: Fails, write: Write, program: bytes, message: str
) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("recorder/data.pkl", b"\x80\x02" + program + b".")
    path = write("a.pt", content.getvalue())
    tracemalloc.start()
    try:
        assert message in fails(path)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


class Evil:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
def test_nothing_in_a_pickle_is_run(
    fails: Fails,
    write: Write,
    tmp_path: Path,
    recorded: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    protocol: int,
) -> None:
    trap = tmp_path / "trap"
    recorded["misc"] = Evil(trap)
    content = write("a.pt", save(recorded, monkeypatch, protocol))
    monkeypatch.setattr(pickle, "loads", lambda *_: pytest.fail("pickle was used"))
    assert "it was refused; save the ids with numpy.save" in fails(content)
    assert not trap.exists()


@pytest.mark.parametrize(
    "pickled",
    [
        b"",
        b".",
        b"\x80\x02.",
        b"\x80\x02t.",
        b"\x80\x02h\x07.",
        b"\x80\x02}u.",
        b"\x80\x02](K\x01K\x02u.",
        b"\x80\x02K\x01Q.",
        b"\x80\x02cos\nsystem\n(X\x04\0\0\0truetR.",
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.",
        b"\x80\x02K\x01K\x02R.",
        b"\x80\x02X\xff\xff\xff\xffabc.",
        b"\x80\x02}]K\x01s.",
        b"(" * 1000 + b".",
    ],
)
def test_pickles_that_make_no_sense(fails: Fails, write: Write, pickled: bytes) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("x/data.pkl", pickled)
    fails(write("a.pt", content.getvalue()))
