# SPDX-License-Identifier: Apache-2.0
"""A campaign as a guest runs it: traces by absolute path, pools made on the guest's own disk.

A pool that exists on the host is made again from its geometry and seed, for its content is a
function of them.
"""

from pathlib import Path

import yaml

from pagetier.analysis.errors import InputError
from pagetier.bench.campaign import Campaign, CreatedPool, PoolSource, Variation
from pagetier.bench.cells import CellSpec, plan_cells
from pagetier.tiers.models.pool import MappedPool
from pagetier.tiers.pool import open_pool
from pagetier.tiers.table import ORACLE

__all__ = ["boots", "campaign_for_guest", "pool_bytes", "to_yaml"]

# Folders of the host that a guest has its own of.
_HIDDEN = ("/proc", "/sys", "/dev", "/run", "/var/tmp")


def campaign_for_guest(campaign: Campaign) -> Campaign:
    """The same campaign with the guest's paths; raises InputError for what a guest cannot see."""
    trace = campaign.trace
    if trace.path is not None:
        trace = trace.model_copy(update={"path": str(_visible(Path(trace.path)))})
    pools = [_on_guest(source) for source in campaign.pool]
    names = [pool.path for pool in pools]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(
            f"two pools of the campaign are called {Path(twice[0]).name}: a guest keeps pools by "
            "name, so rename one"
        )
    variations = [
        variation.model_copy(update=_guest_files(variation)) for variation in campaign.variations
    ]
    changed = {"trace": trace, "pool": pools, "variations": variations, **_guest_files(campaign)}
    # The guest's one disk is found; the host's names mean nothing there.
    return campaign.model_copy(update={**changed, "device": []})


def _guest_files(keys: Campaign | Variation) -> dict[str, object]:
    """Tables and predictions by their absolute paths."""
    changed: dict[str, object] = {}
    arena, prefetch = keys.arena, keys.prefetch
    if arena is not None and arena.table != ORACLE:
        changed["arena"] = arena.model_copy(update={"table": str(_visible(Path(arena.table)))})
    if prefetch is not None and prefetch.trace is not None:
        path = str(_visible(Path(prefetch.trace)))
        changed["prefetch"] = prefetch.model_copy(update={"trace": path})
    return changed


def boots(campaign: Campaign) -> dict[int | None, list[CellSpec]]:
    """The cells by the boot they need: None is the one without mem=, which comes first."""
    found: dict[int | None, list[CellSpec]] = {None: []}
    for cell in plan_cells(campaign):
        capacity = cell.capacity_bytes if cell.mechanism == "boot" else None
        found.setdefault(capacity, []).append(cell)
    return found


def pool_bytes(campaign: Campaign) -> int:
    """Of all pools together."""
    return sum(_bytes_of(source.create) for source in campaign.pool if source.create is not None)


def to_yaml(campaign: Campaign) -> bytes:
    """The file that the guest is given."""
    return yaml.safe_dump(campaign.model_dump(), sort_keys=False).encode()


def _bytes_of(made: CreatedPool) -> int:
    return made.layers * made.experts * made.expert_bytes


def _visible(path: Path) -> Path:
    resolved = path.resolve()
    if _hiding(resolved) is not None:
        raise InputError(f"{path}: a guest has a {_hiding(resolved)} of its own; copy the file")
    return resolved


def _hiding(path: Path) -> str | None:
    """The folder that hides a path from a guest."""
    return next((folder for folder in _HIDDEN if path.is_relative_to(folder)), None)


def _on_guest(source: PoolSource) -> PoolSource:
    path = Path(source.path)
    made = source.create
    if made is None or path.exists():
        pool = open_pool(path)
        if isinstance(pool, MappedPool):
            raise InputError(
                f"{path}: is the experts of a model on this host, which a guest has not; name a "
                "pool with `create`, or measure it here with `pagetier run`"
            )
        made = CreatedPool(
            layers=pool.num_layers,
            experts=pool.num_experts,
            expert_bytes=pool.expert_bytes,
            layout="flat" if pool.layout == "flat" else "files",
            seed=pool.seed,
        )
    return PoolSource(path=f"pools/{path.name}", create=made)
