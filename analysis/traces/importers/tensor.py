# SPDX-License-Identifier: Apache-2.0
"""The generic arrays: npy and npz with expert ids by position, layer and choice.

An npz holds one such array under any name, or one ``E_layer<l>`` array [position, choice] per
layer.  ``--axes`` says in which order the axes are.  Everything is one request.
"""

import re

import numpy as np

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.importers.arrays import Array, as_ids, read_npy, read_npz
from pagetier.analysis.traces.importers.options import Format, ImportOptions
from pagetier.analysis.traces.importers.routes import Geometry, Routes, regular_routes
from pagetier.analysis.traces.importers.source import Source

__all__ = ["NPY", "NPZ", "is_npz", "routes_of_array"]

_OF_LAYER = re.compile(r"E_layer(\d+)\.npy")
_NAMES = ("routed_experts", "topk_indices", "topk_ids", "selected_experts", "expert_ids", "experts")


def is_npz(source: Source) -> bool:
    """Whether the file is a zip archive of arrays."""
    return any(name.endswith(".npy") for name in source.members)


def routes_of_array(
    source: Source, name: str, array: Array, options: ImportOptions, prompt: int = 0
) -> Routes:
    """One request from an array of ids, without its first `prompt` positions."""

    def fail(message: str) -> InputError:
        return source.error(f"array {name!r} {message}")

    ids = as_ids(array, options.axes, fail)
    if options.num_experts is not None and ids.shape[2] == options.num_experts > 1:
        raise fail(
            f"has one number for each of {options.num_experts} experts: counts are a table, in"
            " which no order is left, and cannot be replayed"
        )
    return regular_routes(
        ids[prompt:],
        lambda position, layer: f"{source.path}: {name}[{position + prompt}][{layer}]",
        source.path.name.partition(".")[0] or "1",
        Geometry(),
        (f"{prompt} positions of the prompt were left out",) if prompt else (),
    )


def _read_npy(source: Source, options: ImportOptions) -> Routes:
    return routes_of_array(source, "array", read_npy(source), options)


def _read_npz(source: Source, options: ImportOptions) -> Routes:
    layers = {
        int(found[1]): name for name in source.members if (found := _OF_LAYER.fullmatch(name))
    }
    if layers:
        return _by_layer(source, layers, options)
    names = [name.removesuffix(".npy") for name in source.members if name.endswith(".npy")]
    wanted = options.columns.get("experts")
    known = [name for name in (wanted, *_NAMES) if name in names]
    if not known and len(names) != 1:
        raise source.error(
            f"holds the arrays {', '.join(sorted(names)[:20])}: name the one with the ids by"
            " --columns experts=NAME"
        )
    name = str((known or names)[0])
    prompt = _prompt_positions(source, names)
    return routes_of_array(source, name, read_npz(source, name), options, prompt)


def _prompt_positions(source: Source, names: list[str]) -> int:
    """Positions that belong to the prompt, where its tokens lie beside the routes."""
    if "prompt_token_ids" not in names:
        return 0
    return int(read_npz(source, "prompt_token_ids").size)


def _by_layer(source: Source, layers: dict[int, str], options: ImportOptions) -> Routes:
    arrays = [read_npz(source, layers[layer].removesuffix(".npy")) for layer in sorted(layers)]
    if len({array.shape for array in arrays}) > 1 or arrays[0].ndim != 2:
        raise source.error("the arrays E_layer<l> differ in shape: save all positions of each")
    if len({array.dtype.kind for array in arrays}) > 1:
        raise source.error("the arrays E_layer<l> differ in type: save whole numbers")
    routes = routes_of_array(source, "E_layer", np.stack(arrays, axis=1), options)
    numbers = np.array(sorted(layers), np.int64)
    if numbers[-1] >= 2**31:
        raise source.error(f"layer {numbers[-1]} is out of range")
    return routes.with_layers(numbers.astype(np.int32)[routes.layer])


NPY = Format(
    name="npy",
    description="npy array of ids [position, layer, choice]",
    detects=lambda source: source.is_npy,
    read=_read_npy,
)
NPZ = Format(
    name="npz",
    description="npz archive with an array of ids [position, layer, choice]",
    detects=is_npz,
    read=_read_npz,
)
