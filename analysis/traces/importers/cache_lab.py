# SPDX-License-Identifier: Apache-2.0
"""moe-cache-lab routing JSON Lines, version 1 and the decoder of version 2.

Line 1 is metadata; each other line is one selection of one layer at one token position.  Prompt
records are layer by layer, generated ones token by token, so that the positions sort them.  Encoder
stages have experts of their own and are refused.
"""

from typing import Any

from pagetier.analysis.traces.importers.engine_jsonl import read_records
from pagetier.analysis.traces.importers.options import Format, ImportOptions
from pagetier.analysis.traces.importers.routes import Geometry, Routes
from pagetier.analysis.traces.importers.source import Source
from pagetier.analysis.traces.records import RecordColumns
from pagetier.native.routes import RouteKeys

__all__ = ["CACHE_LAB"]

_PROBABILITIES = "selected_probabilities"
_FORMAT = "moe-cache-lab.routing-jsonl"


def _detects(source: Source) -> bool:
    return source.first_object.get("format") == _FORMAT


def _read(source: Source, options: ImportOptions) -> Routes:
    metadata = source.first_object
    geometry = _geometry(source, metadata)
    # Probabilities are optional: an empty list stands for none.
    weights = _PROBABILITIES if source.objects(2)[-1].get(_PROBABILITIES) else None
    keys = RouteKeys("layer", "selected_experts", None, "phase", "token_position", weights)
    routes = read_records(source, RecordColumns(source.path, keys, 2), options, skip_lines=1)
    return routes.with_geometry(geometry)


def _geometry(source: Source, metadata: dict[str, Any]) -> Geometry:
    stages = metadata.get("routing_stages")
    profile = metadata
    if stages is not None:
        if not isinstance(stages, list) or len(stages) != 1 or not isinstance(stages[0], dict):
            raise source.error("traces of an encoder are not read: record the decoder alone", 1)
        profile = stages[0]
        if profile.get("routing_stage") != "decoder":
            raise source.error("traces of an encoder are not read: record the decoder alone", 1)
    model = metadata.get("model_id")
    return Geometry(
        model=model if isinstance(model, str) else None,
        num_experts=_count(source, profile, "num_experts"),
        top_k=_count(source, profile, "experts_per_token")
        or _count(source, profile, "assigned_experts_per_token"),
    )


def _count(source: Source, profile: dict[str, Any], name: str) -> int | None:
    value = profile.get(name)
    if value is not None and (type(value) is not int or value < 1):
        raise source.error(f"{name} is {value!r:.80}: expected a whole number of 1 or more", 1)
    return value


CACHE_LAB = Format(
    name="moe-cache-lab",
    description="moe-cache-lab JSON Lines, version 1 or a decoder of version 2",
    detects=_detects,
    read=_read,
)
