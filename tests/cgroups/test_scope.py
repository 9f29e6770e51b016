# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pagetier.cgroups.detect import Support
from pagetier.cgroups.errors import CgroupError
from pagetier.cgroups.scope import open_scope, remove_stale, stale_scopes
from pagetier.cgroups.systemd import SystemdScope
from pagetier.cgroups.v1 import V1Scope
from pagetier.cgroups.v2 import V2Scope

if TYPE_CHECKING:
    from tests.cgroups.conftest import FakeKernel

NAME = "pagetier-abc-1"


@pytest.fixture
def support(kernel: FakeKernel) -> Support:
    root = kernel.roots.cgroup
    kernel.v1("memory")
    kernel.fill(root / "blkio", {"cgroup.procs": ""})
    return Support(
        memory="v1",
        base=root / "memory",
        manager="cgroupfs",
        io="v1",
        problem=None,
        roots=kernel.roots,
        mount=root / "memory",
        io_base=root / "blkio",
    )


def test_open_scope_by_version_and_manager(support: Support) -> None:
    assert isinstance(open_scope(support, NAME), V1Scope)
    assert type(open_scope(replace(support, memory="v2"), NAME)) is V2Scope
    systemd = replace(support, memory="v2", manager="systemd", options=("--user",))
    scope = open_scope(systemd, NAME)
    assert isinstance(scope, SystemdScope)
    assert "--user" in scope.command(["x"])


def test_open_scope_passes_the_missing_step_on(support: Support) -> None:
    with pytest.raises(CgroupError, match="the missing step"):
        open_scope(replace(support, base=None, problem="the missing step"), NAME)


def test_stale_scopes_are_those_of_the_token_alone(support: Support) -> None:
    assert support.base is not None
    assert support.io_base is not None
    for name in ("pagetier-abc-1", "pagetier-abc-2.scope", "pagetier-abcd-1", "pagetier-abc-x"):
        (support.base / name).mkdir()
    (support.io_base / "pagetier-abc-1").mkdir()
    assert stale_scopes(support, "abc") == [
        support.io_base / "pagetier-abc-1",
        support.base / "pagetier-abc-1",
        support.base / "pagetier-abc-2.scope",
    ]


def test_remove_stale(support: Support) -> None:
    assert support.base is not None
    path = support.base / NAME
    path.mkdir()
    remove_stale(path, "abc")
    assert not path.exists()
    remove_stale(path, "abc")


@pytest.mark.parametrize(
    ("name", "token"),
    [
        ("pagetier-abcd-1", "abc"),
        ("pagetier-abc-1-x", "abc"),
        ("abc", "abc"),
        ("system.slice", "abc"),
        ("pagetier-abc-1", ""),
        ("pagetier-abc-1", "ab-c"),
        ("pagetier--1", ""),
    ],
)
def test_remove_stale_refuses_what_is_not_ours(support: Support, name: str, token: str) -> None:
    assert support.base is not None
    path = support.base / name
    path.mkdir()
    with pytest.raises(CgroupError):
        remove_stale(path, token)
    assert path.is_dir()


def test_remove_stale_refuses_a_link(support: Support, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    link = tmp_path / NAME
    link.symlink_to(target)
    with pytest.raises(CgroupError, match="symbolic link"):
        remove_stale(link, "abc")
    assert target.is_dir()
