# SPDX-License-Identifier: Apache-2.0
"""The llama_cpp package, imported here alone and when it is first used: it is an extra.

What llama.cpp logs is kept from the terminal; its first error becomes part of a message.
"""

import ctypes
import functools
import importlib
from typing import Any, Final

from pagetier.analysis.errors import CapabilityError
from pagetier.bench.engine.tensors import TensorReader

__all__ = ["Library", "library"]

# ggml_log_level: 1 debug, 2 info, 3 warning, 4 error, 5 the line before goes on.
ERROR_LEVEL: Final = 4


class Library:
    """The package, its log kept from the terminal, and ggml beside it."""

    def __init__(self) -> None:
        self.api: Any = _import("llama_cpp")
        if not hasattr(self.api, "LLAMA_LOAD_MODE_MMAP"):
            raise CapabilityError(
                f"llama-cpp-python {self.api.__version__} is too old to say how a model is loaded: "
                "pip install 'pagetier[capture]' brings 0.3.36"
            )
        ggml = _import("llama_cpp._ggml").libggml
        self.reader = TensorReader(ggml)
        self._ggml = ggml
        self._ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
        self._ggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
        self._ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
        self._ggml.ggml_backend_dev_name.argtypes = [ctypes.c_void_p]
        self._ggml.ggml_backend_dev_name.restype = ctypes.c_char_p
        self._error: str | None = None
        # The engine keeps the pointer: the callback must live as long as the process.
        self._log = self.api.llama_log_callback(self._hear)
        self.api.llama_log_set(self._log, ctypes.c_void_p(0))
        self.api.llama_backend_init()

    def backend(self) -> str:
        """Devices that the engine was built for, with commas."""
        count = self._ggml.ggml_backend_dev_count()
        devices = map(self._ggml.ggml_backend_dev_get, range(count))
        return ",".join(self._ggml.ggml_backend_dev_name(device).decode() for device in devices)

    def forget_error(self) -> None:
        """Errors of other models are no reason for this one."""
        self._error = None

    def reason(self) -> str:
        """The log's first error, as a part of a sentence; later ones follow from it."""
        return f" ({self._error})" if self._error else ""

    def _hear(self, level: int, text: bytes, _data: int | None) -> None:
        line = text.decode(errors="replace").strip()
        if level == ERROR_LEVEL and self._error is None:
            self._error = line[:200] or None


@functools.cache
def library() -> Library:
    """The one of this process; CapabilityError when the package is missing."""
    return Library()


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError, OSError) as error:
        # The package raises RuntimeError where its shared library does not load.
        raise CapabilityError(
            f"llama.cpp is not there ({error}): pip install 'pagetier[capture]' compiles it in "
            "some minutes"
        ) from error
