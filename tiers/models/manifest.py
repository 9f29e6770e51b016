# SPDX-License-Identifier: Apache-2.0
"""Version 2 of ``pool.json``: a pool that is the experts inside the weight files of a model.

It names the weight files by their real path with what tells each from others, and for every layer
the extents of its experts: per part of an expert either one offset, from which the slices of all
experts follow one another, or one offset for each expert.  A list that would repeat one number is
that number.  Sizes and offsets are bytes.
"""

import hashlib
import json
from dataclasses import asdict, replace
from typing import Annotated, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pagetier.native.extents import ExtentTable
from pagetier.native.residency import page_bytes as host_page_bytes
from pagetier.tiers.models.geometry import MAX_EXTENTS, Geometry
from pagetier.tiers.models.model import MAX_EXPERTS_OF_LAYER, MAX_LAYERS, Model
from pagetier.tiers.models.parts import Part, Singles, Stack, expert_sizes, extent_table
from pagetier.tiers.pages import extent_pages

__all__ = [
    "MAPPED_VERSION",
    "MAX_MAPPED_MANIFEST_BYTES",
    "MappedManifest",
    "encode_mapped",
    "make_mapped",
    "mapped_digest",
]

MAPPED_VERSION: Final = 2
CREATED_BY: Final = "pagetier pool map"
MAX_MAPPED_MANIFEST_BYTES: Final = 128 << 20
MAX_FILES: Final = 100_000

Bytes = Annotated[int, Field(ge=0, lt=1 << 63)]
Length = Annotated[int, Field(ge=1, lt=1 << 63)]
FileNumber = Annotated[int, Field(ge=0, lt=MAX_FILES)]
Experts = Annotated[int, Field(ge=1, le=MAX_EXPERTS_OF_LAYER)]


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ModelEntry(_Entry):
    """The model as its headers describe it."""

    source: str
    format: Literal["gguf", "safetensors"]
    name: str | None
    architecture: str | None


class FileEntry(_Entry):
    """A weight file; see ``WeightFile``."""

    name: str
    path: Annotated[str, Field(pattern=r"^/")]
    device: Annotated[int, Field(ge=0, lt=1 << 64)]
    inode: Annotated[int, Field(ge=0, lt=1 << 64)]
    bytes: Bytes
    mtime_ns: int


class PartEntry(_Entry):
    """Part of every expert of a layer: a stack where `offset` is a number, else one per expert."""

    tensor: str
    file: FileNumber | list[FileNumber]
    offset: Bytes | list[Bytes]
    bytes: Length | list[Length]

    def part(self, num_experts: int) -> Part:
        """The same as arrays; ValueError for lists that are not one number per expert."""
        if isinstance(self.offset, int):
            if not isinstance(self.file, int) or not isinstance(self.bytes, int):
                raise ValueError(f"{self.tensor} is a stack of several files or sizes")
            return Stack(self.tensor, self.file, self.offset, self.bytes)
        columns = [_spread(one, num_experts) for one in (self.file, self.offset, self.bytes)]
        if any(len(column) != num_experts for column in columns):
            raise ValueError(f"{self.tensor} has not one entry for each of {num_experts} experts")
        return Singles(self.tensor, *columns)


class LayerEntry(_Entry):
    """A layer with experts: its number in the model, and where its experts lie."""

    model_layer: Annotated[int, Field(ge=0, lt=MAX_LAYERS)]
    expert_bytes: Length | list[Length]
    page_rounded_bytes: Length | list[Length]
    parts: Annotated[list[PartEntry], Field(min_length=1)]


class MappedManifest(_Entry):
    """Layer i of a trace is layers[i]; `page_bytes` is the page that sizes were rounded to."""

    format: Literal["pagetier-pool"]
    version: Literal[2]
    layout: Literal["mapped"]
    model: ModelEntry
    num_layers: Annotated[int, Field(ge=1, le=MAX_LAYERS)]
    num_experts: Experts
    top_k: Experts | None
    page_bytes: Annotated[int, Field(ge=512, le=1 << 30)]
    spine_bytes: Bytes
    unrouted_bytes: Bytes
    files: Annotated[list[FileEntry], Field(min_length=1, max_length=MAX_FILES)]
    layers: list[LayerEntry]
    created_by: Literal["pagetier pool map"]

    @property
    def total_experts(self) -> int:
        """Experts of all layers."""
        return self.num_layers * self.num_experts

    @property
    def expert_parts(self) -> list[tuple[Part, ...]]:
        """The parts of each layer's experts."""
        return [tuple(part.part(self.num_experts) for part in layer.parts) for layer in self.layers]

    def extent_table(self) -> ExtentTable:
        """Where every expert lies, with absolute paths."""
        paths = tuple(file.path for file in self.files)
        table = extent_table(paths, self.expert_parts, self.num_experts)
        marks = [(file.device, file.inode) for file in self.files]
        return replace(table, identities=np.array(marks, dtype=np.uint64))

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.layers) != self.num_layers:
            raise ValueError(f"num_layers is {self.num_layers} and layers has {len(self.layers)}")
        if self.num_experts * sum(len(layer.parts) for layer in self.layers) > MAX_EXTENTS:
            raise ValueError(f"has more than {MAX_EXTENTS} extents")
        table = self.extent_table()
        _require_inside(table, [file.bytes for file in self.files])
        sizes = _sizes_of_layers(table, self.num_layers, self.page_bytes)
        for number, (layer, (raw, rounded)) in enumerate(zip(self.layers, sizes, strict=True)):
            if (layer.expert_bytes, layer.page_rounded_bytes) != (raw, rounded):
                raise ValueError(f"the sizes of layer {number} are not those of its extents")
        return self


def make_mapped(model: Model, geometry: Geometry) -> MappedManifest:
    """The manifest of a model whose headers have been read."""
    page_bytes = host_page_bytes()
    table = extent_table((), geometry.parts, geometry.num_experts)
    sizes = _sizes_of_layers(table, len(geometry.layers), page_bytes)
    layers = [
        LayerEntry(
            model_layer=number,
            expert_bytes=raw,
            page_rounded_bytes=rounded,
            parts=[_part_entry(part) for part in parts],
        )
        for number, parts, (raw, rounded) in zip(
            geometry.layers, geometry.parts, sizes, strict=True
        )
    ]
    return MappedManifest(
        format="pagetier-pool",
        version=MAPPED_VERSION,
        layout="mapped",
        model=ModelEntry(
            source=model.source,
            format=model.format,
            name=model.name,
            architecture=model.architecture,
        ),
        num_layers=len(layers),
        num_experts=geometry.num_experts,
        top_k=model.top_k,
        page_bytes=page_bytes,
        spine_bytes=geometry.spine_bytes,
        unrouted_bytes=geometry.unrouted_bytes,
        files=[FileEntry(**asdict(file)) for file in model.files],
        layers=layers,
        created_by=CREATED_BY,
    )


def encode_mapped(manifest: MappedManifest) -> bytes:
    """The bytes of pool.json: one line per file and per layer."""
    fields = manifest.model_dump()
    lines = []
    for key, value in fields.items():
        if key in ("files", "layers"):
            rows = ",\n".join(f"  {json.dumps(row)}" for row in value)
            lines.append(f"{json.dumps(key)}: [\n{rows}\n ]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return ("{\n " + ",\n ".join(lines) + "\n}\n").encode()


def mapped_digest(manifest: MappedManifest) -> str:
    """SHA-256 of all that a mapping says, but for device numbers: a reboot may deal those anew."""
    fields = manifest.model_dump(exclude={"files": {"__all__": {"device"}}})
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _part_entry(part: Part) -> PartEntry:
    if isinstance(part, Stack):
        return PartEntry(**asdict(part))
    return PartEntry(
        tensor=part.tensor,
        file=_folded(part.file),
        offset=part.offset.tolist(),
        bytes=_folded(part.bytes),
    )


def _sizes_of_layers(
    table: ExtentTable, num_layers: int, page_bytes: int
) -> list[tuple[int | list[int], int | list[int]]]:
    raw = expert_sizes(table).reshape(num_layers, -1)
    rounded = (extent_pages(table, page_bytes) * page_bytes).reshape(num_layers, -1)
    return [(_folded(one), _folded(other)) for one, other in zip(raw, rounded, strict=True)]


def _folded(values: NDArray[np.int64]) -> int | list[int]:
    """A list that repeats one number as that number."""
    return int(values[0]) if np.all(values == values[0]) else values.tolist()


def _spread(values: int | list[int], count: int) -> NDArray[np.int64]:
    if isinstance(values, int):
        return np.full(count, values, dtype=np.int64)
    return np.array(values, dtype=np.int64)


def _require_inside(table: ExtentTable, file_bytes: list[int]) -> None:
    file = table.extents["file"]
    if int(file.max()) >= len(file_bytes):
        raise ValueError(f"an extent lies in file {file.max()} of {len(file_bytes)}")
    end = table.extents["offset"] + table.extents["length"]
    behind = np.flatnonzero(end > np.array(file_bytes, dtype=np.uint64)[file])
    if len(behind):
        raise ValueError(f"an extent ends at byte {end[behind[0]]}, behind the end of its file")
