# SPDX-License-Identifier: Apache-2.0
"""The names that logs give to the columns of routes."""

from collections.abc import Collection, Mapping

from pagetier.analysis.traces.importers.source import Source
from pagetier.native.routes import RouteKeys

__all__ = ["POSITION_NAMES", "find_keys", "is_list_of_ids"]

POSITION_NAMES = ("token_position", "token_pos", "token_idx", "position", "pos")
_NAMES: dict[str, tuple[str, ...]] = {
    "request": ("req", "req_id", "request_id", "request", "prompt_index", "problem_id", "seq_id"),
    "phase": ("phase",),
    "step": ("step", "iteration", "iter", *POSITION_NAMES),
    "layer": ("layer", "layer_id", "layer_idx", "layer_index"),
    "experts": ("experts", "expert_ids", "selected_experts", "selected_ids", "topk_ids", "ids"),
    "weights": ("weights", "topk_weights", "gate_weights", "selected_probabilities", "gates"),
}


def is_list_of_ids(value: object) -> bool:
    """Whether a record's experts may be ids: objects in their place are counts."""
    return isinstance(value, list) and not any(isinstance(item, dict) for item in value)


def find_keys(
    source: Source, present: Collection[str], columns: Mapping[str, str]
) -> RouteKeys | None:
    """The column of each role among those `present`; None when layer or experts are missing.

    `columns` says what the user knows better; a name that is not present is an InputError.
    """
    found: dict[str, str | None] = {}
    for role, names in _NAMES.items():
        given = columns.get(role)
        if given is not None and given not in present:
            raise source.error(f"has no column {given!r}: it has {', '.join(sorted(present)[:20])}")
        found[role] = given or next((name for name in names if name in present), None)
    layer, experts = found.pop("layer"), found.pop("experts")
    if layer is None or experts is None:
        return None
    return RouteKeys(layer=layer, experts=experts, **found)
