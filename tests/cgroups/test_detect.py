# SPDX-License-Identifier: Apache-2.0
"""Which controller is where, on every kind of host that was described to us; no kernel involved."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pagetier.cgroups.detect import Support, detect

if TYPE_CHECKING:
    from tests.cgroups.conftest import FakeKernel

HYBRID = """\
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory {memory},relatime - cgroup cgroup rw,memory
38 31 0:35 / /sys/fs/cgroup/blkio {blkio},relatime - cgroup cgroup rw,blkio
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
HYBRID_SELF = "7:blkio:/\n4:memory:/process_api/ours\n0::/\n"
PURE_V2 = "30 23 0:26 / /sys/fs/cgroup {mode},nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
ALL = "cpuset cpu io memory pids"


def found(name: str) -> str | None:
    return f"/usr/bin/{name}"


def missing(name: str) -> str | None:
    return None


def run(
    kernel: FakeKernel, euid: int = 0, find_program: Callable[[str], str | None] = found
) -> Support:
    return detect(kernel.roots, euid=euid, find_program=find_program)


@pytest.fixture
def hybrid(kernel: FakeKernel) -> FakeKernel:
    kernel.processes(HYBRID.format(memory="rw", blkio="rw"), HYBRID_SELF)
    kernel.v1("memory")
    kernel.v1("memory/process_api/ours")
    kernel.fill(kernel.roots.cgroup / "blkio", {"cgroup.procs": ""})
    kernel.v2("unified", "hugetlb", kind=None)
    return kernel


def test_hybrid_has_memory_on_v1_whatever_the_v2_mount_says(hybrid: FakeKernel) -> None:
    support = run(hybrid)
    memory = hybrid.roots.cgroup / "memory"
    assert (support.memory, support.io, support.manager) == ("v1", "v1", "cgroupfs")
    assert support.base == memory / "process_api/ours"
    assert support.mount == memory
    assert support.io_base == hybrid.roots.cgroup / "blkio"
    assert support.problem is None


def test_hybrid_with_read_only_memory_names_the_remount(hybrid: FakeKernel) -> None:
    hybrid.processes(HYBRID.format(memory="ro", blkio="rw"), HYBRID_SELF)
    support = run(hybrid)
    assert (support.memory, support.base) == ("v1", None)
    assert support.problem is not None
    assert "mount -o remount,rw" in support.problem


def test_hybrid_with_read_only_blkio_only_lacks_io(hybrid: FakeKernel) -> None:
    hybrid.processes(HYBRID.format(memory="rw", blkio="ro"), HYBRID_SELF)
    support = run(hybrid)
    assert support.base is not None
    assert (support.io, support.io_base) == ("none", None)


def test_v1_cgroup_outside_of_what_is_mounted(hybrid: FakeKernel) -> None:
    hybrid.processes(HYBRID.format(memory="rw", blkio="rw"), "4:memory:/../other\n0::/\n")
    support = run(hybrid)
    assert support.base is None
    assert "not visible" in (support.problem or "")


def test_v1_in_a_container_is_relative_to_the_mount(kernel: FakeKernel) -> None:
    mount = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    kernel.processes(mount, "4:memory:/docker/abc/x\n")
    base = kernel.v1("memory/x")
    assert run(kernel).base == base


def test_v1_unprivileged_is_not_writable(
    hybrid: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    support = run(hybrid, euid=65534)
    assert support.base is None
    assert "not writable for uid 65534" in (support.problem or "")


def test_no_cgroups_at_all(kernel: FakeKernel) -> None:
    kernel.processes("22 28 0:21 / /proc rw - proc proc rw\n", "0::/\n")
    support = run(kernel)
    assert (support.memory, support.base, support.io) == ("none", None, "none")
    assert "no cgroup file system is mounted" in (support.problem or "")


def test_v2_without_the_memory_controller(kernel: FakeKernel) -> None:
    kernel.processes(PURE_V2.format(mode="rw"), "0::/\n")
    kernel.v2("", "cpu hugetlb", kind=None)
    support = run(kernel)
    assert (support.memory, support.base) == ("none", None)
    assert "memory is not in cgroup.controllers of" in (support.problem or "")


@pytest.fixture
def systemd(kernel: FakeKernel) -> FakeKernel:
    kernel.processes(PURE_V2.format(mode="rw"), "0::/user.slice/session-1.scope\n", "systemd")
    kernel.v2("", ALL, ALL, kind=None)
    kernel.v2("system.slice", ALL, ALL)
    return kernel


def test_systemd_as_root(systemd: FakeKernel) -> None:
    support = run(systemd)
    assert (support.memory, support.manager, support.io) == ("v2", "systemd", "v2")
    assert support.base == systemd.roots.cgroup / "system.slice"
    assert (support.problem, support.options, support.enable) == (None, (), ())


def test_systemd_without_systemd_run(systemd: FakeKernel) -> None:
    support = run(systemd, find_program=missing)
    assert support.base is None
    assert "systemd-run is not installed" in (support.problem or "")


def test_systemd_read_only(systemd: FakeKernel) -> None:
    systemd.processes(PURE_V2.format(mode="ro"), "0::/x\n", "systemd")
    support = run(systemd)
    assert support.base is None
    assert "mounted read-only" in (support.problem or "")


def test_systemd_user_with_delegation(systemd: FakeKernel) -> None:
    service = systemd.v2("user.slice/user-1000.slice/user@1000.service", "memory pids")
    support = run(systemd, euid=1000)
    assert (support.base, support.options, support.io) == (service, ("--user",), "none")


def test_systemd_user_without_delegation_names_delegate(systemd: FakeKernel) -> None:
    systemd.v2("user.slice/user-1000.slice/user@1000.service", "pids")
    support = run(systemd, euid=1000)
    assert support.base is None
    assert "Delegate=yes" in (support.problem or "")


def test_systemd_user_without_a_manager(systemd: FakeKernel) -> None:
    support = run(systemd, euid=1000)
    assert support.base is None
    assert "no systemd user manager" in (support.problem or "")


def bare(kernel: FakeKernel, own: str) -> Path:
    kernel.processes(PURE_V2.format(mode="rw"), f"0::{own}\n")
    return Path(kernel.roots.cgroup)


def test_bare_v2_in_the_root_enables_there_although_it_holds_processes(kernel: FakeKernel) -> None:
    root = bare(kernel, "/")
    kernel.v2("", ALL, "", procs=[1, 77], kind=None)
    support = run(kernel)
    assert (support.memory, support.manager, support.base) == ("v2", "cgroupfs", root)
    assert support.enable == ("memory", "io")
    assert support.io == "v2"


def test_bare_v2_root_is_not_for_others_to_change(kernel: FakeKernel) -> None:
    bare(kernel, "/")
    kernel.v2("", ALL, "", kind=None)
    support = run(kernel, euid=1000)
    assert support.base is None
    assert "only root may do `echo +memory" in (support.problem or "")


def test_bare_v2_takes_the_nearest_parent_that_controls_memory(kernel: FakeKernel) -> None:
    root = bare(kernel, "/a/b")
    kernel.v2("", ALL, "memory", kind=None)
    kernel.v2("a", "memory", "memory")
    kernel.v2("a/b", "memory", "", procs=[77])
    support = run(kernel)
    assert support.base == root / "a"
    assert (support.enable, support.io) == ((), "none")


def test_bare_v2_without_memory_below_climbs_to_the_root(kernel: FakeKernel) -> None:
    root = bare(kernel, "/a")
    kernel.v2("", ALL, "cpu", kind=None)
    kernel.v2("a", "cpu", "", procs=[77])
    support = run(kernel)
    assert (support.base, support.enable) == (root, ("memory", "io"))


def test_container_whose_root_holds_processes(kernel: FakeKernel) -> None:
    bare(kernel, "/")
    kernel.v2("", ALL, "", procs=[1, 77], kind="domain")
    support = run(kernel)
    assert support.base is None
    assert "holds processes" in (support.problem or "")
    assert "move them into a child cgroup, then `echo +memory" in (support.problem or "")


def test_container_without_the_controller_below(kernel: FakeKernel) -> None:
    root = bare(kernel, "/c")
    kernel.v2("", "memory", "", procs=[1], kind="domain")
    kernel.v2("c", "", "", procs=[77])
    support = run(kernel)
    assert support.base is None
    assert f"`echo +memory > {root}/cgroup.subtree_control`" in (support.problem or "")


def test_delegated_parent_is_ours_to_enable(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = bare(kernel, "/d/leaf")
    kernel.v2("", "memory io", "memory io", procs=[1], kind="domain")
    kernel.v2("d", "memory io", "")
    kernel.v2("d/leaf", "memory io", "", procs=[77])
    attributes = {root / "d": ["trusted.delegate"]}
    monkeypatch.setattr(os, "listxattr", lambda path: attributes.get(path, []))
    support = run(kernel)
    assert (support.base, support.enable) == (root / "d", ("memory", "io"))


def test_undelegated_parent_is_not(kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    bare(kernel, "/d")
    kernel.v2("", "memory", "", procs=[1], kind="domain")
    kernel.v2("d", "memory", "")
    monkeypatch.setattr(os, "listxattr", lambda path: [])
    support = run(kernel)
    assert support.base is None
    assert "not delegated to us: have its owner do `echo +memory" in (support.problem or "")


def test_an_unprivileged_owner_was_given_the_cgroup(kernel: FakeKernel) -> None:
    root = bare(kernel, "/d/leaf")
    uid = 1234
    kernel.v2("", "memory", "memory", kind=None)
    for path in ("d", "d/leaf"):
        directory = kernel.v2(path, "memory", "", procs=[77] if path == "d/leaf" else [])
        if os.geteuid() == 0:
            os.chown(directory, uid, uid)
    support = run(kernel, euid=uid if os.geteuid() == 0 else os.geteuid())
    assert (support.base, support.enable) == (root / "d", ("memory",))


def test_own_cgroup_that_is_not_there(kernel: FakeKernel) -> None:
    bare(kernel, "/gone")
    kernel.v2("", "memory", "", kind=None)
    support = run(kernel)
    assert support.base is None
    assert "not visible" in (support.problem or "")


def test_a_foreign_mount_with_a_name_that_is_no_utf_8_does_not_matter(hybrid: FakeKernel) -> None:
    path = hybrid.roots.proc / "self/mountinfo"
    path.write_bytes(b"50 31 0:50 / /mnt/caf\xe9 rw - ext4 /dev/x rw\n" + path.read_bytes())
    assert run(hybrid).memory == "v1"
