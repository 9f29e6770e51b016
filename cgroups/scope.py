# SPDX-License-Identifier: Apache-2.0
"""Open a scope the way this host can make one, and clear away what a killed run left."""

from pathlib import Path

from pagetier.cgroups.base import Events, Limits, MemoryState, Scope, is_marked
from pagetier.cgroups.detect import Support
from pagetier.cgroups.errors import CgroupError
from pagetier.cgroups.members import kill_members, remove_directory
from pagetier.cgroups.systemd import SystemdScope
from pagetier.cgroups.v1 import V1Scope
from pagetier.cgroups.v2 import V2Scope

__all__ = [
    "Events",
    "Limits",
    "MemoryState",
    "Scope",
    "open_scope",
    "remove_stale",
    "stale_scopes",
]


def open_scope(support: Support, name: str) -> Scope:
    """A scope object that is not created yet; raises CgroupError where none can be made."""
    if support.base is None or support.mount is None:
        raise CgroupError(support.problem or "no memory cgroup can be made here")
    if support.manager == "systemd":
        return SystemdScope(name, support.base, support.mount, support.roots, support.options)
    if support.memory == "v1":
        return V1Scope(name, support.base, support.mount, support.roots, support.io_base)
    return V2Scope(name, support.base, support.mount, support.roots, support.enable)


def stale_scopes(support: Support, token: str) -> list[Path]:
    """Directories under the places where we make scopes that carry this run's marker."""
    places = [place for place in (support.base, support.io_base) if place is not None]
    found = (path for place in places for path in place.glob("pagetier-*"))
    return sorted(path for path in found if path.is_dir() and is_marked(path, token))


def remove_stale(path: Path, token: str) -> None:
    """Kill what is still inside a scope of the run with this token, and remove its directory.

    Gone already is fine.  Raises CgroupError for a path without our marker, touching nothing.
    """
    if not is_marked(path, token):
        raise CgroupError(f"{path} is not a scope of run {token}: not touched")
    if path.is_symlink():
        raise CgroupError(f"{path} is a symbolic link, which no scope is: not touched")
    kill_members(path)
    remove_directory(path)
