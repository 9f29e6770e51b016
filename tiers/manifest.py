# SPDX-License-Identifier: Apache-2.0
"""The pool manifest ``pool.json``: version 1, the geometry of a uniform pool that was made, from
which all extents follow, or version 2, the extents of a mapped pool (``models.manifest``).

Sizes are bytes.  The text of version 1 depends on the geometry and the seed alone, so two such
pools with one digest have the same content.  Anything but a well-formed manifest of a known version
is an ``InputError`` naming file and field.
"""

import hashlib
import json
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pagetier.analysis.errors import InputError
from pagetier.tiers.models.manifest import MAPPED_VERSION, MappedManifest

__all__ = [
    "MANIFEST_NAME",
    "PoolManifest",
    "encode_manifest",
    "make_manifest",
    "manifest_digest",
    "parse_manifest",
]

MANIFEST_NAME = "pool.json"
FORMAT = "pagetier-pool"
VERSION = 1
CREATED_BY = "pagetier pool create"
# Of a mapped pool of 10^6 tensors some 20 MB, with 1.5 million numbers; of any other 200 bytes.
# More is another file under its name.
MAX_MANIFEST_BYTES = 64 << 20
MAX_VALUES = 1 << 22
# 200 times the largest pool measured so far; keeps a hostile manifest from asking for the memory
# of 2^32 extents.
MAX_EXPERTS = 1 << 24
MAX_POOL_BYTES = (1 << 63) - 1  # off_t

_Manifest = TypeVar("_Manifest", bound=BaseModel)
Count = Annotated[int, Field(ge=1, le=MAX_EXPERTS)]


class PoolManifest(BaseModel):
    """Geometry, layout and seed of a pool that ``pagetier pool create`` made."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    format: Literal["pagetier-pool"]
    version: Literal[1]
    num_layers: Count
    num_experts: Count
    expert_bytes: Annotated[int, Field(ge=1, le=MAX_POOL_BYTES)]
    layout: Literal["files", "flat"]
    seed: Annotated[int, Field(ge=0, lt=1 << 64)]
    created_by: Literal["pagetier pool create"]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.total_experts > MAX_EXPERTS:
            raise ValueError(
                f"num_layers x num_experts is {self.total_experts}, more than {MAX_EXPERTS} experts"
            )
        if self.total_experts * self.expert_bytes > MAX_POOL_BYTES:
            raise ValueError("num_layers x num_experts x expert_bytes is more than 2^63 - 1 bytes")
        return self

    @property
    def total_experts(self) -> int:
        """Experts of all layers."""
        return self.num_layers * self.num_experts


def make_manifest(
    num_layers: int, num_experts: int, expert_bytes: int, layout: str, seed: int
) -> PoolManifest:
    """The manifest of a new pool, or InputError naming the bad number."""
    fields = {
        "format": FORMAT,
        "version": VERSION,
        "num_layers": num_layers,
        "num_experts": num_experts,
        "expert_bytes": expert_bytes,
        "layout": layout,
        "seed": seed,
        "created_by": CREATED_BY,
    }
    return _validated(PoolManifest, fields, "pool geometry")


def encode_manifest(manifest: PoolManifest) -> bytes:
    """The bytes of pool.json."""
    return (json.dumps(manifest.model_dump(), indent=2) + "\n").encode()


def manifest_digest(raw: bytes) -> str:
    """SHA-256 of the manifest's bytes, in hexadecimal."""
    return hashlib.sha256(raw).hexdigest()


def parse_manifest(raw: bytes, source: str) -> PoolManifest | MappedManifest:
    """A manifest from the bytes of pool.json; `source` is its path in errors."""
    if len(raw) > MAX_MANIFEST_BYTES or raw.count(b",") > MAX_VALUES:
        raise InputError(
            f"{source}: is larger than {MAX_MANIFEST_BYTES} bytes or {MAX_VALUES} values, so no "
            "manifest"
        )
    try:
        fields = json.loads(raw, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: is not JSON ({error}); make the pool again") from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise InputError(
            f'{source}: field format is not "{FORMAT}", so this is no pool of pagetier; '
            "name the folder that `pagetier pool create` or `pagetier pool map` made"
        )
    if fields.get("version") == MAPPED_VERSION and type(fields["version"]) is int:
        return _validated(MappedManifest, fields, source)
    _require_known_version(fields.get("version"), source)
    return _validated(PoolManifest, fields, source)


def _require_known_version(version: Any, source: str) -> None:
    if type(version) is int and version == VERSION:
        return
    raise InputError(
        f"{source}: field version is {version!r} and this pagetier reads versions {VERSION} and "
        f"{MAPPED_VERSION}; use the pagetier that made the pool, or make it again"
    )


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field is given twice")
    return fields


def _validated(kind: type[_Manifest], fields: dict[str, Any], source: str) -> _Manifest:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise InputError(f"{source}: {_first_complaint(error)}") from error


def _first_complaint(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return message
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] in ("missing", "extra_forbidden"):
        return f"field {field}: {message}"
    return f"field {field}: {message}, not {first['input']!r:.80}"
