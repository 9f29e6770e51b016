# SPDX-License-Identifier: Apache-2.0
"""The header of one safetensors file, and JSON of strangers in bounded memory.

A header is 8 bytes of length and one JSON object; the data follows without gaps and ends with the
file, so a truncated download shows at once.  Format: https://github.com/huggingface/safetensors
"""

import json
import math
import os
from typing import Any, BinaryIO, Final

from pagetier.tiers.models.errors import (
    DamagedHeader,
    DuplicateTensor,
    GeometryMismatch,
    NotAModel,
    TruncatedFile,
    UnknownTensor,
)
from pagetier.tiers.models.model import Tensor

__all__ = ["DTYPE_BITS", "bounded_json", "read_header"]

MAX_HEADER_BYTES: Final = 100_000_000  # MAX_HEADER_SIZE of the reference implementation
# A value takes at most some 100 bytes of memory, so a document at most some 400 MB.  The largest
# index so far names 140,000 tensors, the largest shard holds 20,000.
MAX_JSON_VALUES: Final = 1 << 22
MAX_DIMENSIONS: Final = 16
MAX_NAME_CHARACTERS: Final = 1024
MAX_OFFSET: Final = (1 << 63) - 1

DTYPE_BITS: Final = {
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}


def read_header(file: BinaryIO, source: str, number: int) -> list[Tensor]:
    """The tensors of an open file, the `number`th of its model, in the order of its header."""
    file_bytes = os.fstat(file.fileno()).st_size
    length = int.from_bytes(_take(file, 8, source), "little")
    if length > MAX_HEADER_BYTES:
        raise NotAModel(
            f"{source}: its first bytes ask for a header of {length} bytes, so it is no "
            "safetensors file; name a GGUF or safetensors model"
        )
    if length > file_bytes - 8:
        raise TruncatedFile(
            f"{source}: its {file_bytes} bytes end within the header; the download is not "
            "complete, so resume it"
        )
    header = bounded_json(_take(file, length, source), source)
    start = 8 + length
    tensors = [
        _tensor(name, entry, start, number, source)
        for name, entry in header.items()
        if name != "__metadata__"
    ]
    _require_whole(tensors, start, file_bytes, source)
    return tensors


def bounded_json(raw: bytes, source: str) -> dict[str, Any]:
    """A JSON object; DamagedHeader for anything else, and for more values than any model has."""
    values = sum(raw.count(mark) for mark in (b",", b"[", b"{"))
    if values > MAX_JSON_VALUES:
        raise DamagedHeader(
            f"{source}: has {values} JSON values, more than any model; download it again"
        )
    try:
        found = json.loads(raw, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        if isinstance(error, _Twice):
            raise DuplicateTensor(
                f"{source}: names {error} twice; convert the model again"
            ) from error
        raise DamagedHeader(
            f"{source}: is not JSON where it should be ({error!s:.200}); download it again"
        ) from error
    if not isinstance(found, dict):
        raise DamagedHeader(f"{source}: has no JSON object where it should; download it again")
    return found


class _Twice(ValueError):
    """A name that an object has twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _Twice(f"{name!r:.80}")
            seen.add(name)
    return found


def _take(file: BinaryIO, length: int, source: str) -> bytes:
    taken = file.read(length)
    if len(taken) < length:
        raise TruncatedFile(f"{source}: ends within its header; the download is not complete")
    return taken


def _tensor(name: str, entry: Any, start: int, file: int, source: str) -> Tensor:
    if len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
        raise DamagedHeader(
            f"{source}: a tensor is called {name!r:.80}, as none is; download it again"
        )
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        raise DamagedHeader(
            f"{source}: tensor {name!r:.80} lacks dtype, shape or data_offsets; download it again"
        ) from error
    counts = [*shape, begin, end] if isinstance(shape, list) else [None]
    if len(counts) > MAX_DIMENSIONS + 2 or any(
        type(count) is not int or not 0 <= count <= MAX_OFFSET for count in counts
    ):
        raise DamagedHeader(
            f"{source}: tensor {name!r:.80} has an impossible shape or offset; download it again"
        )
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise UnknownTensor(
            f"{source}: tensor {name!r:.80} is of type {dtype!r:.40}, whose size this pagetier "
            "does not know; convert the model"
        )
    bits = math.prod(shape) * DTYPE_BITS[dtype]
    if end < begin or bits != 8 * (end - begin):
        raise GeometryMismatch(
            f"{source}: tensor {name!r:.80} has {end - begin} bytes, its type {dtype} and shape "
            f"{shape} make {bits} bits; download it again"
        )
    return Tensor(name, file, start + begin, end - begin, tuple(shape), _slice_bytes(shape, bits))


def _slice_bytes(shape: list[int], bits: int) -> int | None:
    """None for a scalar, an empty tensor, and slices that end within a byte."""
    if not shape or not bits or bits % (8 * shape[0]):
        return None
    return bits // 8 // shape[0]


def _require_whole(tensors: list[Tensor], start: int, file_bytes: int, source: str) -> None:
    end = max((tensor.offset + tensor.bytes for tensor in tensors), default=start)
    if end > file_bytes:
        last = max(tensors, key=lambda tensor: tensor.offset + tensor.bytes)
        raise TruncatedFile(
            f"{source}: tensor {last.name} ends at byte {end} and the file at {file_bytes}; the "
            "download is not complete, so resume it"
        )
    if end < file_bytes:
        raise DamagedHeader(
            f"{source}: has {file_bytes - end} bytes behind its last tensor; download it again"
        )
