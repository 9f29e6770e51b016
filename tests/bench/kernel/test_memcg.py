# SPDX-License-Identifier: Apache-2.0
"""A cgroup of others on both versions: found by name and by process, its counters, its limit."""

from pathlib import Path

import pytest

from pagetier.analysis.errors import InputError
from pagetier.bench.kernel.memcg import find_cgroup, find_hierarchy, parse_memory_stat
from pagetier.cgroups.roots import Roots

V2 = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = "31 1 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
UNLIMITED = "9223372036854771712\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def v2(tmp_path: Path) -> Roots:
    roots = Roots(tmp_path / "proc", tmp_path / "sys", tmp_path / "cgroup")
    write(roots.proc / "self/mountinfo", V2)
    write(roots.proc / "7/cgroup", "0::/a.slice/b.service\n")
    write(roots.proc / "8/cgroup", "0::/\n")
    write(roots.cgroup / "cgroup.controllers", "cpu memory\n")
    for folder, limit, high in (
        (".", None, None),
        ("a.slice", "500", "max"),
        ("a.slice/b.service", "max", "700"),
    ):
        write(roots.cgroup / folder / "memory.stat", "anon 1\nfile 2\n")
        if limit is not None and high is not None:
            write(roots.cgroup / folder / "memory.max", f"{limit}\n")
            write(roots.cgroup / folder / "memory.high", f"{high}\n")
    return roots


@pytest.fixture
def v1(tmp_path: Path) -> Roots:
    roots = Roots(tmp_path / "proc", tmp_path / "sys", tmp_path / "cgroup")
    write(roots.proc / "self/mountinfo", V2 + V1)
    write(roots.proc / "7/cgroup", "4:cpu:/x\n3:memory:/a\n0::/elsewhere\n")
    write(roots.cgroup / "memory/memory.stat", "cache 1\n")
    write(roots.cgroup / "memory/a/memory.stat", "cache 1\ntotal_cache 2\n")
    write(roots.cgroup / "memory/a/memory.limit_in_bytes", UNLIMITED)
    return roots


@pytest.mark.parametrize(
    "name", ["/a.slice/b.service", "a.slice/b.service", "{cgroup}/a.slice/b.service"]
)
def test_by_name(v2: Roots, name: str) -> None:
    found = find_cgroup(v2, name=name.format(cgroup=v2.cgroup))
    assert found.name == "/a.slice/b.service"
    assert found.folder == v2.cgroup / "a.slice/b.service"
    assert (found.version, found.unit, found.is_root) == ("v2", "b.service", False)


def test_by_process(v2: Roots) -> None:
    assert find_cgroup(v2, pid=7).name == "/a.slice/b.service"
    root = find_cgroup(v2, pid=8)
    assert root.is_root and root.unit is None and root.limit_bytes() is None


def test_the_smallest_limit_of_the_lineage_counts(v2: Roots) -> None:
    assert find_cgroup(v2, pid=7).limit_bytes() == 500
    write(v2.cgroup / "a.slice/b.service/memory.high", "300\n")
    assert find_cgroup(v2, pid=7).limit_bytes() == 300


def test_v1_by_its_own_hierarchy(v1: Roots) -> None:
    found = find_cgroup(v1, pid=7)
    assert (found.version, found.name, found.folder) == ("v1", "/a", v1.cgroup / "memory/a")
    assert found.limit_bytes() is None
    write(found.folder / "memory.limit_in_bytes", "4096\n")
    assert found.limit_bytes() == 4096


@pytest.mark.parametrize("name", ["/no/such", "../../etc", "/a.slice/../../x"])
def test_no_such_cgroup(v2: Roots, name: str) -> None:
    with pytest.raises(InputError, match="has no memory cgroup /"):
        find_cgroup(v2, name=name)


def test_no_such_process(v2: Roots) -> None:
    with pytest.raises(InputError, match="--pid 9: no such process"):
        find_cgroup(v2, pid=9)


def test_no_hierarchy_at_all(v2: Roots) -> None:
    write(v2.cgroup / "cgroup.controllers", "cpu\n")
    assert find_hierarchy(v2) is None
    with pytest.raises(InputError, match="no memory cgroups are mounted here"):
        find_cgroup(v2, pid=7)


def test_counters_go_by_their_v2_names() -> None:
    text = "cache 1\nrss 2\ntotal_cache 3\ntotal_rss 4\ntotal_workingset_refault 5\n"
    assert parse_memory_stat(text, "v1") == {
        "cache": 3,
        "rss": 4,
        "workingset_refault": 5,
        "file": 3,
        "anon": 4,
        "workingset_refault_file": 5,
    }
    assert parse_memory_stat("workingset_refault 6\n", "v2")["workingset_refault_file"] == 6
    split = parse_memory_stat("workingset_refault_file 7\npgscan 8\n", "v2")
    assert split == {"workingset_refault_file": 7, "pgscan": 8}
