# SPDX-License-Identifier: Apache-2.0
"""Files of ``torch.save``, read without torch and without running their pickle.

A pickle is a program.  This reader steps through its opcodes (pickletools takes them apart) and
obeys only those that build plain values: numbers, text, lists, tuples, dictionaries, and tensors by
the one function that torch.save uses for them.  Names are never imported and nothing is called; any
other name or opcode refuses the file.
"""

import math
import pickletools
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.importers.arrays import Array, read_member
from pagetier.analysis.traces.importers.source import Source

__all__ = ["Tensor", "TorchFile", "is_torch"]

_DTYPES = {
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
}
_PICKLE = "/data.pkl"
_REBUILD = "torch._utils _rebuild_tensor_v2"
_DICTIONARY = "collections OrderedDict"
_MAX_DIMENSIONS = 8
_REMEDY = "it was refused; save the ids with numpy.save and import that"


@dataclass(frozen=True, slots=True)
class _Mark:
    """The start of a run of items on the stack."""


@dataclass(frozen=True, slots=True)
class _Name:
    """A global of the pickle: text, never imported."""

    name: str


@dataclass(frozen=True, slots=True)
class _Storage:
    """Where the numbers of a tensor lie in the archive."""

    key: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that is still in the archive."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def is_torch(source: Source) -> bool:
    """Whether the file is an archive of torch.save."""
    return any(name.endswith(_PICKLE) for name in source.members)


class TorchFile:
    """The values of a file; `root` is what was saved, with Tensor where tensors were."""

    def __init__(self, source: Source, archive: zipfile.ZipFile) -> None:
        self._source = source
        self._archive = archive
        name = next((name for name in archive.namelist() if name.endswith(_PICKLE)), None)
        if name is None:
            raise source.error("is no file of torch.save: it has no data.pkl")
        self._folder = name.removesuffix("data.pkl")
        content = read_member(archive, name, source.error)
        self._storages: dict[_Storage, Array] = {}
        try:
            self.root = _Machine().run(bytes(content))
        except _Refused as error:
            raise source.error(f"the pickle holds {error}: {_REMEDY}") from error

    def array(self, tensor: Tensor) -> Array:
        """The numbers of a tensor."""
        flat = self._storage(tensor.storage)
        last = tensor.offset + sum(
            (size - 1) * step for size, step in zip(tensor.shape, tensor.stride, strict=True)
        )
        count = math.prod(tensor.shape)
        if not count:
            return np.zeros(tensor.shape, flat.dtype)
        if last >= len(flat) or count > len(flat):
            raise self._source.error("a tensor reaches beyond its storage: the file is damaged")
        strides = [step * flat.itemsize for step in tensor.stride]
        return np.lib.stride_tricks.as_strided(
            flat[tensor.offset :], tensor.shape, strides, writeable=False
        )

    def _storage(self, storage: _Storage) -> Array:
        if storage not in self._storages:
            name = f"{self._folder}data/{storage.key}"

            def fail(message: str) -> InputError:
                return self._source.error(f"tensor {storage.key!r} {message}")

            content = read_member(self._archive, name, fail)
            dtype = np.dtype(storage.dtype)
            whole = len(content) // dtype.itemsize
            self._storages = {storage: np.frombuffer(content, dtype, whole)}
        return self._storages[storage]


class _Refused(Exception):
    """Something that a file of plain values does not hold."""


class _Machine:
    """The part of the pickle machine that builds plain values."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, content: bytes) -> Any:
        try:
            for opcode, argument, _ in pickletools.genops(content):
                self._step(opcode.name, argument)
            return self._stack[-1]
        # genops: ValueError for an opcode or an argument that is none; the stack: IndexError.
        except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
            raise _Refused(f"no plain values ({error})") from error

    def _step(self, name: str, argument: Any) -> None:
        if name in _IGNORED:
            return
        if name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name]())
        elif name in _LITERALS:
            self._stack.append(argument)
        elif name in _ACTIONS:
            _ACTIONS[name](self, argument)
        else:
            raise _Refused(f"the opcode {name}")

    def _mark(self, argument: Any) -> None:
        self._stack.append(_Mark())

    def _global(self, argument: str) -> None:
        self._stack.append(_Name(argument))

    def _stack_global(self, argument: Any) -> None:
        name, module = self._as(str, self._stack.pop()), self._as(str, self._stack.pop())
        self._stack.append(_Name(f"{module} {name}"))

    def _put(self, argument: int) -> None:
        self._memo[argument] = self._stack[-1]

    def _memoize(self, argument: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _get(self, argument: int) -> None:
        self._stack.append(self._memo[argument])

    def _since_mark(self) -> list[Any]:
        at = len(self._stack) - 1
        while not isinstance(self._stack[at], _Mark):
            at -= 1
            if at < 0:
                raise IndexError("no mark")
        items = self._stack[at + 1 :]
        del self._stack[at:]
        return items

    def _tuple(self, argument: Any) -> None:
        self._stack.append(tuple(self._since_mark()))

    def _short_tuple(self, size: int) -> None:
        items = tuple(self._stack[-size:])
        if len(items) < size:
            raise IndexError("too few items")
        del self._stack[-size:]
        self._stack.append(items)

    def _append(self, argument: Any) -> None:
        item = self._stack.pop()
        self._as(list, self._stack[-1]).append(item)

    def _appends(self, argument: Any) -> None:
        items = self._since_mark()
        self._as(list, self._stack[-1]).extend(items)

    def _setitem(self, argument: Any) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._as(dict, self._stack[-1])[_plain_key(key)] = value

    def _setitems(self, argument: Any) -> None:
        items = self._since_mark()
        pairs = zip(map(_plain_key, items[::2]), items[1::2], strict=True)
        self._as(dict, self._stack[-1]).update(pairs)

    def _as(self, kind: type, value: Any) -> Any:
        if type(value) is not kind:
            raise _Refused(f"a {type(value).__name__} where a {kind.__name__} should be")
        return value

    def _persistent(self, argument: Any) -> None:
        match self._stack.pop():
            case ("storage", _Name(name=name), str(key), *_):
                kind = name.removeprefix("torch ")
                if kind not in _DTYPES or not key.isalnum():
                    raise _Refused(f"a tensor of {name}")
                self._stack.append(_Storage(key, _DTYPES[kind]))
            case _:
                raise _Refused("a reference that is no tensor")

    def _reduce(self, argument: Any) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        match function, arguments:
            case _Name(name=name), () if name == _DICTIONARY:
                self._stack.append({})
            case _Name(name=name), (
                _Storage() as storage,
                int(offset),
                tuple(shape),
                tuple(stride),
                *_,
            ) if name == _REBUILD:
                self._stack.append(_tensor(storage, offset, shape, stride))
            case _Name(name=name), _:
                raise _Refused(f"a call of {name!r:.60}")
            case _:
                raise _Refused("a call of no name")


def _plain_key(key: Any) -> Any:
    """Values may hold one another many times over: to hash or show them takes 2^n steps."""
    if type(key) not in (str, int):
        raise _Refused(f"a {type(key).__name__} as a key")
    return key


def _tensor(
    storage: _Storage, offset: int, shape: tuple[Any, ...], stride: tuple[Any, ...]
) -> Tensor:
    numbers = (offset, *shape, *stride)
    plain = all(type(number) is int and 0 <= number < 2**62 for number in numbers)
    if not plain or len(shape) != len(stride) or len(shape) > _MAX_DIMENSIONS:
        raise _Refused("a tensor of no shape")
    return Tensor(storage, offset, shape, stride)


_IGNORED = {"PROTO", "FRAME", "STOP"}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
_LITERALS = {
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "BINFLOAT",
    "BINUNICODE",
    "SHORT_BINUNICODE",
}
_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": _Machine._mark,
    "GLOBAL": _Machine._global,
    "STACK_GLOBAL": _Machine._stack_global,
    "BINPUT": _Machine._put,
    "LONG_BINPUT": _Machine._put,
    "MEMOIZE": _Machine._memoize,
    "BINGET": _Machine._get,
    "LONG_BINGET": _Machine._get,
    "TUPLE": _Machine._tuple,
    "TUPLE1": lambda machine, _: machine._short_tuple(1),
    "TUPLE2": lambda machine, _: machine._short_tuple(2),
    "TUPLE3": lambda machine, _: machine._short_tuple(3),
    "APPEND": _Machine._append,
    "APPENDS": _Machine._appends,
    "SETITEM": _Machine._setitem,
    "SETITEMS": _Machine._setitems,
    "BINPERSID": _Machine._persistent,
    "REDUCE": _Machine._reduce,
}
