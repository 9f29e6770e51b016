# SPDX-License-Identifier: Apache-2.0
"""From the tensors of a model to the extents of its experts, with every contradiction named.

Layers with experts are numbered in their order: layer 0 of a trace is the first layer of the model
that has a router, whatever its number there.  An expert is its parts (gate, up, down, their biases
and scales) in the order in which they lie on file.  What is no routed expert is spine; the experts
of heads that predict further tokens are neither, for plain decoding reads them never.
"""

from array import array
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pagetier.tiers.models.errors import (
    DenseModel,
    DuplicateTensor,
    GeometryMismatch,
    MissingTensor,
    OverlappingTensors,
    UnevenStack,
)
from pagetier.tiers.models.model import (
    MAX_EXPERTS_OF_LAYER,
    MAX_LAYERS,
    Model,
    Place,
    Router,
    Tensor,
    Unrouted,
)
from pagetier.tiers.models.parts import Part, Singles, Stack

__all__ = ["MAX_EXTENTS", "Geometry", "read_geometry"]

# Ten times those of the largest model with nine tensors per expert; 24 bytes each in memory.
MAX_EXTENTS = 1 << 23


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where the experts lie; `layers` are the model's own numbers of the layers with experts."""

    layers: tuple[int, ...]
    num_experts: int
    parts: tuple[tuple[Part, ...], ...]
    spine_bytes: int
    unrouted_bytes: int


def read_geometry(model: Model) -> Geometry:
    """Reads all tensors of the model; a ModelError says what does not fit and where."""
    gathered = _gather(model)
    _require_apart(model, gathered.all_tensors)
    if not gathered.layers:
        raise DenseModel(
            f"{model.source}: has no experts, so there is no pool in it; name a mixture-of-experts "
            "model"
        )
    num_experts = _num_experts(model, gathered)
    layers = tuple(sorted(gathered.layers))
    parts = tuple(_parts(model, gathered.layers[layer], num_experts) for layer in layers)
    _require_roles(model, gathered)
    _require_routers(model, gathered, num_experts)
    return Geometry(layers, num_experts, parts, gathered.spine_bytes, gathered.unrouted_bytes)


@dataclass(slots=True)
class _Columns:
    """Tensors as numbers, for there may be 10^6 of them."""

    expert: "array[int]" = field(default_factory=lambda: array("q"))
    file: "array[int]" = field(default_factory=lambda: array("q"))
    offset: "array[int]" = field(default_factory=lambda: array("q"))
    bytes: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, expert: int, tensor: Tensor) -> None:
        self.expert.append(expert)
        self.file.append(tensor.file)
        self.offset.append(tensor.offset)
        self.bytes.append(tensor.bytes)


@dataclass(slots=True)
class _Layer:
    number: int
    stacks: dict[str, Tensor] = field(default_factory=dict)
    singles: dict[str, _Columns] = field(default_factory=dict)
    roles: set[str] = field(default_factory=set)

    @property
    def num_parts(self) -> int:
        return len(self.stacks) + len(self.singles)

    def add(self, model: Model, place: Place, tensor: Tensor) -> None:
        taken = place.part in self.stacks or (place.expert is None and place.part in self.singles)
        if taken:
            raise DuplicateTensor(
                f"{model.source}: tensor {tensor.name} is {place.part} of layer {place.layer}, "
                "which another tensor is already; convert the model again"
            )
        self.roles.add(place.role)
        if place.expert is None:
            self.stacks[place.part] = tensor
        elif place.expert >= MAX_EXPERTS_OF_LAYER:
            raise GeometryMismatch(
                f"{model.source}: tensor {tensor.name} is of expert {place.expert}, more than "
                f"{MAX_EXPERTS_OF_LAYER}; convert the model again"
            )
        else:
            self.singles.setdefault(place.part, _Columns()).add(place.expert, tensor)


@dataclass(slots=True)
class _Gathered:
    layers: dict[int, _Layer] = field(default_factory=dict)
    routers: dict[int, Tensor] = field(default_factory=dict)
    all_tensors: _Columns = field(default_factory=_Columns)
    spine_bytes: int = 0
    unrouted_bytes: int = 0


def _gather(model: Model) -> _Gathered:
    found = _Gathered()
    routed = MAX_LAYERS if model.routed_layers is None else model.routed_layers
    for tensor in model.tensors:
        found.all_tensors.add(0, tensor)
        place = model.place(tensor.name)
        if isinstance(place, Place) and place.layer < routed:
            _require_layer(model, place, tensor)
            layer = found.layers.setdefault(place.layer, _Layer(place.layer))
            layer.add(model, place, tensor)
        elif isinstance(place, Place | Unrouted):
            found.unrouted_bytes += tensor.bytes
        else:
            found.spine_bytes += tensor.bytes
            if isinstance(place, Router) and place.layer < routed:
                found.routers[place.layer] = tensor
    return found


def _require_layer(model: Model, place: Place, tensor: Tensor) -> None:
    if place.layer >= MAX_LAYERS:
        raise GeometryMismatch(
            f"{model.source}: tensor {tensor.name} is of layer {place.layer}, more than "
            f"{MAX_LAYERS}; convert the model again"
        )


def _require_apart(model: Model, tensors: _Columns) -> None:
    """No byte belongs to two tensors."""
    file = np.frombuffer(tensors.file, dtype=np.int64)
    start = np.frombuffer(tensors.offset, dtype=np.int64)
    length = np.frombuffer(tensors.bytes, dtype=np.int64)
    kept = np.flatnonzero(length)
    order = kept[np.lexsort((start[kept], file[kept]))]
    end = start[order] + length[order]
    bad = np.flatnonzero((np.diff(file[order]) == 0) & (start[order][1:] < end[:-1]))
    if len(bad):
        at = order[bad[0] + 1]
        raise OverlappingTensors(
            f"{model.files[file[at]].path}: byte {start[at]} belongs to two tensors; the header is "
            "damaged, so download the file again"
        )


def _num_experts(model: Model, gathered: _Gathered) -> int:
    """By the metadata, else by the first layer; whether all agree is checked part by part."""
    found = model.num_experts
    if found is None:
        first = gathered.layers[min(gathered.layers)]
        counts = [tensor.shape[0] if tensor.shape else 1 for tensor in first.stacks.values()]
        counts += [max(columns.expert) + 1 for columns in first.singles.values()]
        found = max(counts)
    extents = found * sum(layer.num_parts for layer in gathered.layers.values())
    if found > MAX_EXPERTS_OF_LAYER or extents > MAX_EXTENTS:
        raise GeometryMismatch(
            f"{model.source}: has {len(gathered.layers)} layers of {found} experts, more than any "
            "model; convert the model again"
        )
    return found


def _parts(model: Model, layer: _Layer, num_experts: int) -> tuple[Part, ...]:
    parts: list[Part] = [_stack(model, layer, one, num_experts) for one in layer.stacks.values()]
    parts += [_singles(model, layer, name, num_experts) for name in layer.singles]
    model.check_shapes(layer.number, {name: one.shape for name, one in layer.stacks.items()})
    return tuple(sorted(parts, key=lambda part: part.start))


def _stack(model: Model, layer: _Layer, tensor: Tensor, num_experts: int) -> Stack:
    found = tensor.shape[0] if tensor.shape else 0
    if found != num_experts:
        raise UnevenStack(
            f"{model.source}: tensor {tensor.name} of layer {layer.number} is a stack of {found} "
            f"and the model has {num_experts} experts; convert the model again"
        )
    if not tensor.slice_bytes:
        raise UnevenStack(
            f"{model.source}: tensor {tensor.name} cannot be cut into {num_experts} experts of "
            "whole blocks; convert the model again"
        )
    return Stack(tensor.name, tensor.file, tensor.offset, tensor.slice_bytes)


def _singles(model: Model, layer: _Layer, name: str, num_experts: int) -> Singles:
    columns, where = layer.singles[name], f"{model.source}: layer {layer.number}"
    expert = np.frombuffer(columns.expert, dtype=np.int64)
    _require_each_once(where, name, np.bincount(expert, minlength=num_experts), num_experts)
    order = np.argsort(expert)
    file, offset, length = (
        np.frombuffer(column, dtype=np.int64)[order]
        for column in (columns.file, columns.offset, columns.bytes)
    )
    if length.min() == 0:
        raise GeometryMismatch(
            f"{where}: {name} of expert {length.argmin()} is empty; convert the model again"
        )
    return Singles(name, file, offset, length)


def _require_each_once(where: str, name: str, count: NDArray[np.int64], num_experts: int) -> None:
    if len(count) > num_experts:
        raise GeometryMismatch(
            f"{where} has {name} of expert {len(count) - 1} and the model has {num_experts} "
            "experts; convert the model again"
        )
    if count.max() > 1:
        raise DuplicateTensor(
            f"{where} has {name} of expert {count.argmax()} twice; convert the model again"
        )
    if count.min() == 0:
        raise MissingTensor(
            f"{where} has no {name} of expert {count.argmin()}, and {int(count.sum())} of "
            f"{num_experts} in all; a file of the model is missing or damaged"
        )


def _require_roles(model: Model, gathered: _Gathered) -> None:
    """Every layer has the matrices that the others have, and all that an expert needs."""
    everywhere = set().union(*(layer.roles for layer in gathered.layers.values()))
    for number, layer in sorted(gathered.layers.items()):
        needed = everywhere | {"down"} | (set() if layer.roles & {"up", "gate_up"} else {"up"})
        missing = sorted(needed - layer.roles)
        if missing:
            raise MissingTensor(
                f"{model.source}: the experts of layer {number} have "
                f"{', '.join(sorted(layer.roles))} and no {' and no '.join(missing)}; a "
                "file of the model is missing or damaged"
            )
        # What MXFP4 is packed as: neither half is of use alone.
        for part in sorted(layer.stacks):
            scales = f"{part.removesuffix('blocks')}scales"
            if part.endswith(".blocks") and scales not in layer.stacks:
                raise MissingTensor(
                    f"{model.source}: the experts of layer {number} have {part} and no {scales}; a "
                    "file of the model is missing or damaged"
                )


def _require_routers(model: Model, gathered: _Gathered, num_experts: int) -> None:
    for number, tensor in sorted(gathered.routers.items()):
        if number not in gathered.layers:
            raise MissingTensor(
                f"{model.source}: layer {number} has a router ({tensor.name}) and no experts; a "
                "file of the model is missing or damaged"
            )
        found = tensor.shape[0] if tensor.shape else 0
        if found != num_experts:
            raise GeometryMismatch(
                f"{model.source}: the router {tensor.name} knows {found} experts and the model has "
                f"{num_experts}; convert the model again"
            )
