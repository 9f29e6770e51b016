# SPDX-License-Identifier: Apache-2.0
"""The header of one GGUF file, version 2 or 3, read without touching the data behind it.

Of the metadata, numbers and short strings are kept; vocabularies are stepped over.  A header is
data of strangers: counts, lengths and offsets are checked against the file and against what any
model needs before anything is allocated for them.  Format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from pagetier.tiers.models.errors import (
    DamagedHeader,
    DuplicateTensor,
    NotAModel,
    TruncatedFile,
    UnknownTensor,
)

__all__ = ["BLOCK_TYPES", "GgufHeader", "GgufTensor", "Value", "read_header"]

MAGIC: Final = b"GGUF"
DEFAULT_ALIGNMENT: Final = 32
# Largest vocabularies with their merges are some 20 MB.
MAX_HEADER_BYTES: Final = 128 << 20
# One tensor per expert and matrix, as old converters wrote them, of the largest model: 250,000.
MAX_TENSORS: Final = 1 << 20
MAX_FIELDS: Final = 1 << 16
# All vocabularies and merges of a model: half a million.  They are stepped over one by one.
MAX_STRINGS: Final = 1 << 21
MAX_KEY_BYTES: Final = (1 << 16) - 1  # gguf.md
MAX_NAME_BYTES: Final = 1024
MAX_KEPT_STRING_BYTES: Final = 256
MAX_DIMENSIONS: Final = 4  # GGML_MAX_DIMS
MAX_TENSOR_BYTES: Final = (1 << 63) - 1

# GGML_TYPE_*: name, elements of a block, bytes of a block.  From ggml's type traits.
BLOCK_TYPES: Final = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}

# GGUF_TYPE_*: the numbers among them, as struct reads them.
_NUMBERS: Final = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING: Final = 8
_ARRAY: Final = 9

Value = int | float | bool | str


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """`shape` has the innermost dimension first, as on file; `offset` is from the file's start."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Metadata by key (numbers and short strings only), and all tensors in their order."""

    fields: dict[str, Value]
    tensors: tuple[GgufTensor, ...]
    header_bytes: int


def read_header(file: BinaryIO, source: str) -> GgufHeader:
    """The header of an open file; `source` names it in errors."""
    cursor = _Cursor(file, source)
    if cursor.take(4, "the magic number") != MAGIC:
        raise NotAModel(f"{source}: does not start with GGUF; name a GGUF or safetensors model")
    _check_version(cursor)
    num_tensors = cursor.count("the number of tensors", MAX_TENSORS)
    num_fields = cursor.count("the number of metadata fields", MAX_FIELDS)
    fields = _read_fields(cursor, num_fields)
    alignment = _alignment(fields, source)
    described = list(_read_tensors(cursor, num_tensors))
    data_start = _round_up(cursor.at, alignment)
    tensors = tuple(_placed(cursor, one, data_start, alignment) for one in described)
    return GgufHeader(fields, tensors, cursor.at)


class _Cursor:
    """Reads forward, never behind the end of the file or of what a header may be."""

    def __init__(self, file: BinaryIO, source: str) -> None:
        self.at = 0
        self.source = source
        self.file_bytes = os.fstat(file.fileno()).st_size
        self._file = file
        self._strings = 0
        self._end = min(self.file_bytes, MAX_HEADER_BYTES)

    def take(self, length: int, what: str) -> bytes:
        self._require(length, what)
        taken = self._file.read(length)
        if len(taken) < length:
            raise TruncatedFile(f"{self.source}: ends within {what}; download it again")
        self.at += length
        return taken

    def skip(self, length: int, what: str) -> None:
        self._require(length, what)
        self._file.seek(length, os.SEEK_CUR)
        self.at += length

    def skip_strings(self, count: int, what: str) -> None:
        self._strings += count
        if self._strings > MAX_STRINGS:
            raise self.damaged(f"{what} and those before it have {self._strings} strings")
        for _ in range(count):
            self.skip(int.from_bytes(self.take(8, what), "little"), what)

    def value(self, form: str, what: str) -> Value:
        found: Value = struct.unpack(form, self.take(struct.calcsize(form), what))[0]
        return found

    def number(self, form: str, what: str) -> int:
        return int(self.value(form, what))

    def count(self, what: str, most: int) -> int:
        found = self.number("<Q", what)
        if found > most:
            raise self.damaged(f"{what} is {found}, and {most} is more than any model has")
        return found

    def text(self, what: str, most: int) -> str:
        length = self.count(f"the length of {what}", most)
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError as error:
            raise self.damaged(f"{what} is not UTF-8") from error

    def damaged(self, problem: str) -> DamagedHeader:
        return DamagedHeader(
            f"{self.source}: byte {self.at}: {problem}; the file is damaged or no GGUF, so "
            "download it again"
        )

    def _require(self, length: int, what: str) -> None:
        if length <= self._end - self.at:
            return
        if self._end < self.file_bytes:
            raise self.damaged(f"the header goes on behind {MAX_HEADER_BYTES} bytes, in {what}")
        raise TruncatedFile(
            f"{self.source}: its {self.file_bytes} bytes end within {what}; download it again"
        )


def _check_version(cursor: _Cursor) -> None:
    version = cursor.number("<I", "the version")
    if version in (2, 3):
        return
    if version & 0xFFFF == 0:
        raise NotAModel(
            f"{cursor.source}: is a big-endian GGUF; convert it to little-endian, as engines here "
            "need it too"
        )
    raise NotAModel(
        f"{cursor.source}: is GGUF version {version} and this pagetier reads 2 and 3; convert "
        "it again"
    )


def _read_fields(cursor: _Cursor, count: int) -> dict[str, Value]:
    fields: dict[str, Value] = {}
    seen: set[str] = set()
    for _ in range(count):
        key = cursor.text("a metadata key", MAX_KEY_BYTES)
        if key in seen:
            raise cursor.damaged(f"metadata field {key!r:.80} is given twice")
        seen.add(key)
        value = _read_value(cursor, cursor.number("<I", f"the type of {key!r:.80}"), key)
        if value is not None:
            fields[key] = value
    return fields


def _read_value(cursor: _Cursor, kind: int, key: str) -> Value | None:
    what = f"metadata field {key!r:.80}"
    if kind in _NUMBERS:
        return cursor.value(_NUMBERS[kind], what)
    if kind == _STRING:
        return _short_text(cursor, what)
    if kind == _ARRAY:
        _skip_array(cursor, what)
        return None
    raise cursor.damaged(f"{what} is of type {kind}, which GGUF has not")


def _short_text(cursor: _Cursor, what: str) -> str | None:
    length = cursor.number("<Q", what)
    if length > MAX_KEPT_STRING_BYTES:
        cursor.skip(length, what)
        return None
    return cursor.take(length, what).decode(errors="replace")


def _skip_array(cursor: _Cursor, what: str) -> None:
    kind = cursor.number("<I", what)
    length = cursor.number("<Q", what)
    if kind in _NUMBERS:
        cursor.skip(length * struct.calcsize(_NUMBERS[kind]), what)
    elif kind == _STRING:
        cursor.skip_strings(length, what)
    else:
        raise cursor.damaged(f"{what} is an array of type {kind}, which GGUF has not")


@dataclass(frozen=True, slots=True)
class _Described:
    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int


def _read_tensors(cursor: _Cursor, count: int) -> Iterator[_Described]:
    seen: set[str] = set()
    for _ in range(count):
        name = cursor.text("a tensor's name", MAX_NAME_BYTES)
        if not name.isprintable():
            raise cursor.damaged(f"a tensor is called {name!r:.80}")
        if name in seen:
            raise DuplicateTensor(
                f"{cursor.source}: has two tensors {name}; convert the model again"
            )
        seen.add(name)
        dimensions = cursor.number("<I", f"the shape of {name!r:.80}")
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise cursor.damaged(f"tensor {name!r:.80} has {dimensions} dimensions")
        shape = struct.unpack(
            f"<{dimensions}Q", cursor.take(8 * dimensions, f"the shape of {name}")
        )
        type_id = cursor.number("<I", f"the type of {name!r:.80}")
        yield _Described(name, shape, type_id, cursor.number("<Q", f"the offset of {name!r:.80}"))


def _placed(cursor: _Cursor, one: _Described, data_start: int, alignment: int) -> GgufTensor:
    length = _bytes_of(cursor, one)
    if one.offset % alignment:
        raise cursor.damaged(
            f"tensor {one.name!r:.80} starts at {one.offset}, which is not aligned to {alignment}"
        )
    start = data_start + one.offset
    if start + length > cursor.file_bytes:
        raise TruncatedFile(
            f"{cursor.source}: tensor {one.name} ends at byte {start + length} and the file at "
            f"{cursor.file_bytes}; the download is not complete, so resume it"
        )
    return GgufTensor(one.name, one.shape, one.type_id, start, length)


def _bytes_of(cursor: _Cursor, one: _Described) -> int:
    if one.type_id not in BLOCK_TYPES:
        raise UnknownTensor(
            f"{cursor.source}: tensor {one.name} is of ggml type {one.type_id}, whose size this "
            "pagetier does not know; convert the model to a type of llama.cpp"
        )
    name, block, block_bytes = BLOCK_TYPES[one.type_id]
    elements = math.prod(one.shape)
    if elements == 0 or elements > MAX_TENSOR_BYTES // block_bytes:
        raise cursor.damaged(f"tensor {one.name!r:.80} has the shape {list(one.shape)}")
    if one.shape[0] % block:
        raise cursor.damaged(
            f"a row of tensor {one.name!r:.80} has {one.shape[0]} elements, which are not whole "
            f"{name} blocks of {block}"
        )
    return elements // block * block_bytes


def _alignment(fields: dict[str, Value], source: str) -> int:
    found = fields.get("general.alignment", DEFAULT_ALIGNMENT)
    if isinstance(found, bool) or not isinstance(found, int) or found < 1 or found & (found - 1):
        raise DamagedHeader(
            f"{source}: general.alignment is {found!r:.40} and no power of two; convert the model "
            "again"
        )
    return found


def _round_up(position: int, unit: int) -> int:
    return -(-position // unit) * unit
