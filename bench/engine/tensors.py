# SPDX-License-Identifier: Apache-2.0
"""Tensors of ggml, read with the strides that they have.

ggml hands out no shape, so that the head of its `struct ggml_tensor` is declared here and compared
with what ggml says itself of each tensor: a ggml with another layout is a CapabilityError, never
wrong numbers.
"""

import ctypes
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pagetier.analysis.errors import CapabilityError

__all__ = ["TensorReader"]

DIMS: Final = 4  # GGML_MAX_DIMS
_TYPES: Final[dict[bytes, type[np.generic]]] = {b"f32": np.float32, b"i32": np.int32}


class _Head(ctypes.Structure):
    # ggml.h: enum ggml_type type; struct ggml_backend_buffer * buffer; int64_t ne[4]; size_t nb[4];
    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * DIMS),
        ("nb", ctypes.c_size_t * DIMS),
    )


class TensorReader:
    """Names and values of tensors through `library`, which exports ggml's own functions."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._name = _function(library, "ggml_get_name", ctypes.c_char_p)
        self._bytes = _function(library, "ggml_nbytes", ctypes.c_size_t)
        self._elements = _function(library, "ggml_nelements", ctypes.c_int64)
        self._type_name = library.ggml_type_name
        self._type_name.argtypes, self._type_name.restype = [ctypes.c_int], ctypes.c_char_p
        self._get = library.ggml_backend_tensor_get
        self._get.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
        self._get.restype = None

    def name(self, tensor: int) -> str:
        """The tensor's name, such as ``ffn_moe_topk-3``."""
        return str(self._name(tensor).decode())

    def read(self, tensor: int) -> NDArray[np.generic]:
        """A copy of its values, four axes, slowest first: [1, 1, tokens, k] for a router's choice.

        The choice is a view of the first k of each sorted row of all experts: read as if it were
        contiguous, every row but the first would be wrong.
        """
        head = _Head.from_address(tensor)
        shape = tuple(head.ne)
        strides = tuple(head.nb)
        kind = _TYPES.get(self._type_name(head.type))
        raw_bytes = int(self._bytes(tensor))
        if kind is None or not self._agrees(tensor, shape, strides, raw_bytes):
            raise CapabilityError(
                f"{self.name(tensor)}: this llama.cpp lays out its tensors in a way that this "
                "pagetier does not know; install llama-cpp-python 0.3.36"
            )
        raw = np.empty(raw_bytes, dtype=np.uint8)
        self._get(tensor, raw.ctypes.data, 0, raw_bytes)
        view = np.lib.stride_tricks.as_strided(raw.view(kind), shape[::-1], strides[::-1])
        return view.copy()

    def _agrees(
        self, tensor: int, shape: tuple[int, ...], strides: tuple[int, ...], raw_bytes: int
    ) -> bool:
        """ggml_nbytes() counts to the last element; all elements have 4 bytes here."""
        if min(shape) < 1 or int(self._elements(tensor)) != np.prod(shape, dtype=np.int64):
            return False
        last = sum((count - 1) * step for count, step in zip(shape, strides, strict=True))
        return strides[0] % 4 == 0 and last + 4 == raw_bytes


def _function(library: ctypes.CDLL, name: str, result: type) -> Any:
    """A function of one tensor."""
    function = getattr(library, name)
    function.argtypes, function.restype = [ctypes.c_void_p], result
    return function
