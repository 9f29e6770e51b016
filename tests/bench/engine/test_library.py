# SPDX-License-Identifier: Apache-2.0
"""The extra that may be missing, tensors with strides, and signals that wait."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pagetier.analysis.errors import CapabilityError
from pagetier.bench.engine import library
from pagetier.bench.engine.interrupts import held_interrupts
from pagetier.bench.engine.tensors import TensorReader, _Head


def test_without_the_extra_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    library.library.cache_clear()
    with pytest.raises(CapabilityError, match=r"pip install 'pagetier\[capture\]'"):
        library.library()


def test_a_version_without_load_modes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(__version__="0.3.1"))
    library.library.cache_clear()
    with pytest.raises(CapabilityError, match=r"llama-cpp-python 0\.3\.1 is too old"):
        library.library()


def test_the_command_line_does_not_import_the_extra() -> None:
    code = (
        "import sys; sys.modules['llama_cpp'] = None; from pagetier.bench.cli import app;"
        "app(['trace', 'capture', '--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--temperature" in done.stdout


class Export:
    """A function of a shared library: callable, with types that may be set."""

    def __init__(self, call: Any) -> None:
        self.call = call

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)


class Ggml:
    """As much of ggml as a reader uses, over one tensor in memory."""

    def __init__(self, values: NDArray[np.generic], shape: tuple[int, ...], rows: int) -> None:
        self.values = np.ascontiguousarray(values)
        self.head = _Head()
        self.head.type = 26
        self.head.ne[:] = (*shape, 1, 1)
        self.head.nb[:] = (4, rows, rows * shape[1], rows * shape[1])
        last = (shape[0] - 1) * 4 + (shape[1] - 1) * rows
        elements = shape[0] * shape[1]
        self.ggml_get_name = Export(lambda tensor: b"t")
        self.ggml_nbytes = Export(lambda tensor: last + 4)
        self.ggml_nelements = Export(lambda tensor: elements)
        self.ggml_type_name = Export(lambda kind: {26: b"i32", 0: b"f32", 1: b"f16"}[kind])
        self.ggml_backend_tensor_get = Export(self._get)

    @property
    def tensor(self) -> int:
        return ctypes.addressof(self.head)

    def _get(self, tensor: int, into: int, offset: int, size: int) -> None:
        ctypes.memmove(into, self.values.ctypes.data + offset, size)


@pytest.fixture
def sorted_ids() -> NDArray[np.int32]:
    """Three tokens, all eight ids of each in order of rank."""
    return np.array([np.roll(np.arange(8), n) for n in (1, 4, 6)], dtype=np.int32)


def test_a_view_of_wider_rows_is_read_row_by_row(sorted_ids: NDArray[np.int32]) -> None:
    ggml: Any = Ggml(sorted_ids, (3, 3), rows=32)
    values = TensorReader(ggml).read(ggml.tensor)
    assert values.shape == (1, 1, 3, 3)
    np.testing.assert_array_equal(values[0, 0], sorted_ids[:, :3])


def test_a_tensor_of_another_layout_is_refused(sorted_ids: NDArray[np.int32]) -> None:
    wrong: list[Any] = [Ggml(sorted_ids, (3, 3), rows=32) for _ in range(4)]
    wrong[0].ggml_nelements = Export(lambda tensor: 10)
    wrong[1].ggml_nbytes = Export(lambda tensor: 36)
    wrong[2].head.type = 1
    wrong[3].head.ne[2] = 0
    for ggml in wrong:
        with pytest.raises(CapabilityError, match="install llama-cpp-python"):
            TensorReader(ggml).read(ggml.tensor)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_until_it_is_let_through(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    done = []
    with pytest.raises(KeyboardInterrupt), held_interrupts() as release:
        os.kill(os.getpid(), number)
        done.append("after the signal")
        release()
        done.append("never")
    assert done == ["after the signal"] and signal.getsignal(number) is before


def test_a_signal_that_nobody_asked_for_comes_at_the_end() -> None:
    with pytest.raises(KeyboardInterrupt), held_interrupts():
        os.kill(os.getpid(), signal.SIGINT)


def test_other_threads_hold_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def work() -> None:
        with held_interrupts() as release:
            seen.append(signal.getsignal(signal.SIGINT))
            release()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
