# SPDX-License-Identifier: Apache-2.0
"""`pagetier pool map`: the experts inside the weight files of a model, as a pool."""

from pathlib import Path
from typing import Annotated

import typer

from pagetier.analysis.units import format_bytes
from pagetier.bench.output import Json, print_json
from pagetier.tiers.info import pool_info
from pagetier.tiers.models.map import map_model

__all__ = ["mount"]


def mount(pool_app: typer.Typer) -> None:
    """Add the command to `pagetier pool`."""
    pool_app.command(
        "map", epilog="Example: pagetier pool map models/Qwen3-30B-A3B-Q4_K_M.gguf qwen-pool"
    )(_pool_map)


def _pool_map(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="A GGUF file, any of its shards, a safetensors file, or a folder of either.",
        ),
    ],
    pool: Annotated[
        Path, typer.Argument(metavar="POOL", help="Folder of the map; the weights stay in place.")
    ],
    as_json: Json = False,
) -> None:
    """Map a model's experts as a pool, from its headers alone; no weight is copied or written."""
    made = map_model(model, pool)
    document = pool_info(made)
    if as_json:
        print_json(document)
        return
    print(
        f"{pool}: {made.total_experts} experts, {format_bytes(made.total_bytes)} in "
        f"{document['extents']} extents of {len(made.files())} files; spine "
        f"{format_bytes(document['spine_bytes'])}"
    )
    print(
        f"layers 0-{made.num_layers - 1} of a trace are layers {document['model_layers']} of the "
        "model"
    )
