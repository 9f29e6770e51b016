# SPDX-License-Identifier: Apache-2.0
"""Arrays of npy and npz files, read without trust in what they say of themselves.

The header is matched, never evaluated; only plain numbers are taken (an array of objects is a
pickle, which runs code when it is read); memory grows with the bytes that are really there.
"""

import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.importers.source import Source

__all__ = ["Array", "as_ids", "decode_npy", "read_member", "read_npy", "read_npz"]

# Of any type of number; what the numbers are is checked where they are used.
Array = npt.NDArray[Any]

_MAGIC = b"\x93NUMPY"
_HEADER = re.compile(
    r"\{'descr': '(?P<descr>[^']*)', 'fortran_order': (?P<order>True|False),"
    r" 'shape': \((?P<shape>[0-9]{0,18}(?:, ?[0-9]{1,18})*,?)\),? ?\}\s*",
)
_NUMBER = re.compile(r"[<>|=](?:[iu][1248]|f[248]|b1)")
_MAX_HEADER_BYTES = 1 << 14
_MAX_DIMENSIONS = 8
# A member that unpacks to more is a bomb: deflate makes ids 2 to 10 times smaller.
_MAX_RATIO = 200
_MAX_ARRAY_BYTES = 1 << 34
_FREE_BYTES = 256 << 20
_PIECE_BYTES = 1 << 22


Fail = Callable[[str], InputError]


def read_npy(source: Source) -> Array:
    """The array of an npy file, plain or packed."""
    return decode_npy(source.whole(_MAX_ARRAY_BYTES), source.error)


def read_npz(source: Source, name: str) -> Array:
    """One array of an npz archive."""

    def fail(message: str) -> InputError:
        return source.error(f"array {name!r}: {message}")

    with source.archive() as archive:
        content = read_member(archive, f"{name}.npy", fail)
    return decode_npy(content, fail)


def read_member(archive: zipfile.ZipFile, name: str, fail: Fail) -> bytearray:
    """The bytes of one member; InputError from `fail` when it is damaged or a bomb."""
    try:
        info = archive.getinfo(name)
    except KeyError as error:
        raise fail("is not in the archive: name one that is") from error
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
        raise fail("is encrypted or packed in a way that is not known: save it again")
    limit_bytes = max(_FREE_BYTES, _MAX_RATIO * info.compress_size)
    try:
        with archive.open(info) as member:
            content = _read_up_to(member, limit_bytes + 1)
    # struct.error: a header that ends early; RuntimeError: a password, or what zipfile lacks.
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        ValueError,
        struct.error,
        RuntimeError,
    ) as error:
        raise fail(f"is damaged ({error}): copy or save the file again") from error
    if len(content) > limit_bytes:
        raise fail(f"unpacks to more than {_MAX_RATIO} times its size, as no trace does")
    return content


def _read_up_to(stream: IO[bytes], size_bytes: int) -> bytearray:
    content = bytearray()
    while len(content) < size_bytes:
        piece = stream.read(min(_PIECE_BYTES, size_bytes - len(content)))
        if not piece:
            break
        content += piece
    return content


def decode_npy(content: bytes | bytearray, fail: Fail) -> Array:
    """The array in the bytes of an npy file; InputError from `fail` for all but plain numbers."""
    prefix = bytes(content[:12])
    if len(prefix) < 12 or not prefix.startswith(_MAGIC) or prefix[6] not in (1, 2, 3):
        raise fail("is no npy data of version 1 to 3: save it with numpy.save")
    start = 10 if prefix[6] == 1 else 12
    length = int.from_bytes(prefix[8:start], "little")
    if length > _MAX_HEADER_BYTES:
        raise fail(f"has an npy header of {length} B: an array of plain numbers needs less")
    dtype, order, shape = _header(bytes(content[start : start + length]), fail)
    size_bytes = math.prod(shape) * dtype.itemsize
    given = len(content) - start - length
    if given < size_bytes:
        raise fail(f"ends after {given} of {size_bytes} B, it is truncated: copy or save it again")
    flat: Array = np.frombuffer(content, dtype, math.prod(shape), start + length)
    return flat.reshape(shape, order=order)


def _header(
    text: bytes, fail: Fail
) -> "tuple[np.dtype[np.generic], Literal['C', 'F'], tuple[int, ...]]":
    header = _HEADER.fullmatch(text.decode("latin-1"))
    if header is None or not _NUMBER.fullmatch(header["descr"]):
        raise fail(
            "holds Python objects, records or text, which are not read: save plain whole numbers,"
            " for example array.astype('int32')"
        )
    shape = tuple(int(size) for size in header["shape"].replace(" ", "").split(",") if size)
    if len(shape) > _MAX_DIMENSIONS:
        raise fail(f"has {len(shape)} axes: routes have 3")
    return np.dtype(header["descr"]), "F" if header["order"] == "True" else "C", shape


def as_ids(array: Array, axes: str, fail: Fail) -> npt.NDArray[np.integer]:
    """Expert ids as [position, layer, k], from an array whose axes are `axes`: a form of "tlk".

    Ids of -1 stand for routes that were not recorded.
    """
    if array.ndim != 3:
        raise fail(
            f"has {array.ndim} axes {array.shape}: routes have 3 (position, layer, choice); an"
            " array with one number per expert is a table of counts and cannot be replayed"
        )
    if array.dtype.kind not in "iu":
        raise fail(f"holds {array.dtype} instead of whole numbers: ids are not {array.dtype}")
    if not array.size:
        raise fail(f"is empty {array.shape}: record some positions")
    if array.min() < -1 or array.max() >= 2**31:
        raise fail(
            f"holds ids from {array.min()} to {array.max()}: expected ids of 0 and more, or -1"
            " for a route that was not recorded"
        )
    return array.transpose([axes.index(axis) for axis in "tlk"])
