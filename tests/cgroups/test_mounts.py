# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.mounts import (
    UNIFIED,
    CgroupMount,
    directory_of,
    parse_memberships,
    parse_mounts,
)
from pagetier.cgroups.roots import Roots

MOUNTINFO = """\
22 28 0:21 / /proc rw,nosuid shared:14 - proc proc rw
30 22 0:26 / /sys/fs/cgroup/unified rw,nosuid,relatime shared:9 master:2 - cgroup2 none rw
35 31 0:32 /docker/abc /sys/fs/cgroup/cpu,memory ro,relatime - cgroup cgroup rw,cpu,memory
36 31 0:33 / /mnt/my\\040groups rw - cgroup cgroup ro,blkio
"""


def test_mounts_by_version_root_and_controllers() -> None:
    unified, memory, blkio = parse_mounts(MOUNTINFO)
    assert (unified.version, unified.point) == ("v2", "/sys/fs/cgroup/unified")
    assert (memory.version, memory.root) == ("v1", "/docker/abc")
    assert {"cpu", "memory"} <= memory.controllers
    assert "blkio" in blkio.controllers
    assert blkio.point == "/mnt/my groups"


def test_read_only_by_mount_or_by_superblock() -> None:
    assert [mount.read_only for mount in parse_mounts(MOUNTINFO)] == [False, True, True]


def test_memberships_by_controller() -> None:
    text = "9:name=systemd:/\n4:cpu,memory:/a/b\n3:blkio:/x:y\n0::/user.slice\n"
    assert parse_memberships(text) == {
        "name=systemd": "/",
        "cpu": "/a/b",
        "memory": "/a/b",
        "blkio": "/x:y",
        UNIFIED: "/user.slice",
    }


@pytest.mark.parametrize("line", ["nonsense", "4:memory", "4:memory:a/b"])
def test_a_malformed_membership_is_named(line: str) -> None:
    with pytest.raises(ParseError, match=r"cgroup:2: expected"):
        parse_memberships(f"0::/\n{line}\n")


def mount(root: str, point: str) -> CgroupMount:
    return CgroupMount("v1", root, point, False, frozenset({"memory"}))


@pytest.mark.parametrize(
    ("root", "point", "path", "expected"),
    [
        ("/", "/sys/fs/cgroup/memory", "/a/b", "/fake/memory/a/b"),
        ("/", "/sys/fs/cgroup", "/", "/fake"),
        ("/docker/abc", "/sys/fs/cgroup/memory", "/docker/abc/x", "/fake/memory/x"),
        ("/docker/abc", "/sys/fs/cgroup/memory", "/docker/abc", "/fake/memory"),
        ("/docker/abc", "/sys/fs/cgroup/memory", "/docker/abcd", None),
        ("/", "/sys/fs/cgroup/memory", "/../other", None),
        ("/", "/mnt/groups", "/a", "/mnt/groups/a"),
    ],
)
def test_directory_of_a_path(root: str, point: str, path: str, expected: str | None) -> None:
    roots = Roots(cgroup=Path("/fake"))
    found = directory_of(mount(root, point), path, roots)
    assert found == (None if expected is None else Path(expected))
