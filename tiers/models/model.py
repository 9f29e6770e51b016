# SPDX-License-Identifier: Apache-2.0
"""What every format says about a model: its files, its tensors, and which of them are experts'.

A format is one module with one function that makes a ``Model``.  Offsets and sizes are bytes, of
the file and not of its data section; shapes have the outermost dimension first.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from pagetier.tiers.models.weights import WeightFile

__all__ = ["MAX_EXPERTS_OF_LAYER", "MAX_LAYERS", "Model", "Place", "Router", "Tensor", "Unrouted"]

# Far above any model: they bound what a hostile header can make us allocate.
MAX_LAYERS = 4096
MAX_EXPERTS_OF_LAYER = 1 << 16


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor on file; `slice_bytes` is one entry of its outermost dimension, None where that is
    no whole number of bytes or of quantisation blocks."""

    name: str
    file: int
    offset: int
    bytes: int
    shape: tuple[int, ...]
    slice_bytes: int | None


@dataclass(frozen=True, slots=True)
class Place:
    """An expert's tensor: which part of which expert of which layer; a stack (`expert` None) holds
    that part of all experts of its layer.

    `part` is a role (gate, up, down, gate_up), a dot, and what of it: "gate.weight", "down.bias".
    """

    layer: int
    part: str
    expert: int | None

    @property
    def role(self) -> str:
        """What the part does: gate, up, down or gate_up."""
        return self.part.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Router:
    """The router of a layer, which says that the layer has experts, and how many."""

    layer: int


@dataclass(frozen=True, slots=True)
class Unrouted:
    """An expert's tensor of a head that predicts further tokens: plain decoding reads it never."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model as its headers describe it; None for what they do not say.

    `tensors` are read as they are asked for and raise a ModelError for a file that is not whole.
    `place` tells an expert's tensor by its name, or a router; None is any other tensor.  Layers
    from `routed_layers` on predict further tokens: their experts are unrouted.
    `check_shapes` takes a layer and the shapes of its stacks by part, and raises for a mismatch.
    """

    source: str
    format: Literal["gguf", "safetensors"]
    name: str | None
    architecture: str | None
    files: tuple[WeightFile, ...]
    tensors: Iterable[Tensor]
    place: Callable[[str], Place | Router | Unrouted | None]
    check_shapes: Callable[[int, dict[str, tuple[int, ...]]], None]
    num_experts: int | None
    top_k: int | None
    routed_layers: int | None
