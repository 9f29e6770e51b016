# SPDX-License-Identifier: Apache-2.0
"""The doctor and the host facts on a fake kernel with a real, small pool."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pagetier.bench.device import resolve
from pagetier.bench.doctor import doctor, requirements_for
from pagetier.bench.host import host_facts, psi_state
from pagetier.bench.requirements import PoolFindings
from pagetier.cgroups.roots import Roots
from pagetier.tiers.create import create_pool
from pagetier.tiers.pool import Pool, open_pool

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max open files            1024                 4096                 files
Max locked memory         65536                65537                bytes
"""
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    roots = Roots(tmp_path / "proc", tmp_path / "sys", tmp_path / "cgroup")
    number = tmp_path.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    for name, text in {
        "self/mountinfo": f"1 0 {device} / / rw - ext4 /dev/x rw\n",
        "self/cgroup": "0::/\n",
        "self/limits": LIMITS,
        "self/status": "CapEff:\t0000000000000000\n",
        "meminfo": "MemTotal: 11 kB\nMemAvailable: 12 kB\nSwapTotal: 13 kB\n",
        "swaps": "Filename Type Size Used Priority\n/dev/sda2 partition 13 1 -2\n",
        "pressure/memory": PRESSURE,
        "cpuinfo": "processor: 0\nmodel name: Some CPU\nflags: fpu hypervisor\n",
        "cmdline": "root=/dev/x mem=8G\n",
        "sys/kernel/osrelease": "6.99.1-test\n",
        "sys/kernel/version": "#1 SMP\n",
        "sys/vm/swappiness": "61\n",
        "sys/vm/max_map_count": "65530\n",
        "31/comm": "earlyoom\n",
    }.items():
        write(roots.proc / name, text)
    for name, text in {
        f"dev/block/{device}/dev": f"{device}\n",
        f"dev/block/{device}/queue/iostats": "1\n",
        f"dev/block/{device}/queue/max_sectors_kb": "4\n",
        f"class/bdi/{device}/read_ahead_kb": "8\n",
        "kernel/mm/lru_gen/enabled": "0x0007\n",
        "kernel/mm/lru_gen/min_ttl_ms": "0\n",
        "kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "kernel/mm/damon/admin/kdamonds/0/state": "on\n",
        "kernel/mm/damon/admin/kdamonds/0/contexts/0/schemes/0/action": "pageout\n",
        "devices/system/node/node0/meminfo": "Node 0 MemTotal: 1 kB\nNode 0 MemFree: 2 kB\n"
        "Node 0 FilePages: 3 kB\n",
        "devices/system/node/node0/cpulist": "0\n",
    }.items():
        write(roots.sys / name, text)
    return roots


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    create_pool(tmp_path / "pool", layers=2, experts=3, expert_bytes=12289, layout="flat")
    return open_pool(tmp_path / "pool")


def by_name(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in document["requirements"]}


def test_document_has_the_promised_shape(roots: Roots, pool: Pool) -> None:
    document = doctor(roots, pool)
    assert json.loads(json.dumps(document)) == document
    assert document["kernel"] == "6.99.1-test"
    assert document["page_bytes"] == os.sysconf("SC_PAGE_SIZE")
    assert document["cgroup"]["memory"] == "none"
    assert document["mglru"] == {"available": True, "enabled": True}
    assert document["psi"] == "available"
    assert document["memlock"] == {
        "soft_bytes": 65536,
        "hard_bytes": 65537,
        "cap_ipc_lock": False,
    }
    device = document["device"]
    assert device["leaves"] == device["chain"]
    assert device["read_ahead_kb"] == 8
    for item in document["requirements"]:
        assert {"name", "ok", "found", "remedy", "needed_for"} == set(item)


def test_findings_come_from_the_host(roots: Roots, pool: Pool) -> None:
    items = by_name(doctor(roots, pool))
    assert items["memory cgroup"]["ok"] is False
    assert items["swap off"]["found"] == "swap on /dev/sda2"
    assert items["locked memory"]["ok"] is False
    assert items["open files"]["found"] == "hard limit 4096, pool of 1 files"
    assert items["user-space OOM killers"]["found"] == "running: earlyoom (pid 31)"
    assert "kdamond 0" in items["proactive reclaim"]["found"]
    assert items["block accounting"]["ok"] is True
    assert items["residency"]["ok"] is True
    assert items["pool"]["ok"] is True
    assert items["readahead against expert size"]["ok"] is False
    assert items["free space"]["ok"] is True


def test_sparse_pool_stops_every_cell(roots: Roots, pool: Pool) -> None:
    path = pool.root / pool.files()[0]
    size_bytes = path.stat().st_size
    os.truncate(path, 0)
    os.truncate(path, size_bytes)
    document = doctor(roots, pool)
    assert "not fully allocated" in by_name(document)["pool"]["found"]
    assert "pool" in [item["name"] for item in requirements_for(document, "none", "page-cache")]


def test_missing_pool_file_is_a_finding(roots: Roots, pool: Pool) -> None:
    (pool.root / pool.files()[0]).unlink()
    items = by_name(doctor(roots, pool))
    assert items["pool"]["ok"] is False
    assert "missing" in items["pool"]["found"]
    assert items["device"]["ok"] is False
    assert items["residency"]["ok"] is None


def test_unresolved_device_is_a_finding_with_its_way_out(roots: Roots, pool: Pool) -> None:
    write(roots.proc / "self/mountinfo", "1 0 0:39 / / rw - overlay overlay rw\n")
    number = pool.root.stat().st_dev
    node = roots.sys / f"dev/block/{os.major(number)}:{os.minor(number)}"
    node.rename(node.with_name("gone"))
    document = doctor(roots, pool)
    item = by_name(document)["device"]
    assert document["device"] is None
    assert item["ok"] is False
    assert "overlay" in item["found"]
    assert item["remedy"].startswith("put the pool on")
    assert by_name(document)["block accounting"]["ok"] is None


def test_place_and_geometry_of_a_pool_to_be_made(roots: Roots, tmp_path: Path) -> None:
    planned = PoolFindings(files=9000, expert_bytes=1, layout="files", planned_bytes=1)
    items = by_name(doctor(roots, where=tmp_path, planned=planned))
    assert items["device"]["ok"] is True
    assert items["pool"]["ok"] is None
    assert items["open files"]["ok"] is False
    assert items["free space"]["ok"] is True


def test_nothing_named(roots: Roots) -> None:
    document = doctor(roots)
    assert document["device"] is None
    assert by_name(document)["device"]["ok"] is None


@pytest.mark.parametrize("limit", [True, False])
def test_v1_swap_limit_needs_swap_accounting(roots: Roots, limit: bool) -> None:
    write(
        roots.proc / "self/mountinfo",
        "2 1 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
    )
    write(roots.proc / "self/cgroup", "4:memory:/\n")
    write(roots.cgroup / "memory/memory.limit_in_bytes", "1\n")
    if limit:
        write(roots.cgroup / "memory/memory.memsw.limit_in_bytes", "1\n")
    document = doctor(roots)
    assert document["cgroup"]["memory"] == "v1"
    if os.geteuid() == 0:
        assert by_name(document)["swap limit"]["ok"] is limit


@pytest.mark.parametrize("name", ["absent", "available"])
def test_psi_states(roots: Roots, name: str) -> None:
    if name == "absent":
        (roots.proc / "pressure/memory").unlink()
    assert psi_state(roots.proc) == name


def test_psi_that_is_compiled_in_and_off(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagetier.bench.host.read_pressure", lambda path: None)
    assert psi_state(roots.proc) == "disabled"


def test_host_facts(roots: Roots, tmp_path: Path) -> None:
    facts = host_facts(roots, resolve(tmp_path, roots))
    assert json.loads(json.dumps(facts)) == facts
    assert facts["kernel"] == "6.99.1-test"
    assert facts["kernel_cmdline"] == "root=/dev/x mem=8G"
    assert (facts["cpu_model"], facts["cpus"], facts["hypervisor"]) == ("Some CPU", 1, True)
    assert facts["mem_total_bytes"] == 11 * 1024
    assert facts["swap_total_bytes"] == 13 * 1024
    assert facts["swaps"][0]["used_bytes"] == 1024
    assert facts["thp"] == "madvise"
    assert facts["mglru"] == {
        "available": True,
        "mask": 7,
        "min_ttl_ms": 0,
        "writable": True,
        "enabled": True,
    }
    assert facts["cgroup_memory"] == "none"
    assert facts["psi"] is True
    assert facts["device"]["read_ahead_kb"] == 8
    assert facts["numa_nodes"][0]["file_bytes"] == 3 * 1024
    assert facts["proactive_reclaim"] == ["DAMON kdamond 0 with scheme action pageout"]
    assert facts["vm"]["swappiness"] == "61"
    assert facts["vm"]["dirty_ratio"] is None
    assert facts["versions"]["numpy"]


def test_host_facts_without_a_device(roots: Roots) -> None:
    assert host_facts(roots, None)["device"] is None


def test_more_findings_of_the_host(roots: Roots, pool: Pool) -> None:
    write(roots.sys / "module/zswap/parameters/enabled", "Y\n")
    write(roots.proc / "vmstat", "pgsteal_proactive 77\n")
    write(roots.proc / "32/comm", "senpai\n")
    (roots.proc / "32/fd").mkdir()
    mounts = (roots.proc / "self/mountinfo").read_text()
    write(roots.proc / "self/mountinfo", f"{mounts}3 1 0:5 / /sys ro - sysfs sysfs rw\n")
    items = by_name(doctor(roots, pool))
    assert "zswap is on" in items["compressed swap"]["found"]
    assert items["users of memory.reclaim"]["found"] == (
        "senpai (pid 32); 77 pages stolen that way since boot"
    )
    assert items["writable /sys"]["ok"] is False
    assert items["transparent huge pages"]["found"] == "madvise"
    assert items["memory nodes"]["found"] == "one node"
    assert items["real /proc"]["ok"] is True
    assert items["stored bytes"]["found"] == "stored as they are"
    assert items["page cache in sight"]["ok"] is True
    assert items["writers to the pool"]["ok"] is True


def test_a_pool_that_somebody_writes_to_stops_every_cell(roots: Roots, pool: Pool) -> None:
    (roots.proc / "33/fd").mkdir(parents=True)
    write(roots.proc / "33/comm", "wget\n")
    (roots.proc / "33/fd/4").symlink_to(pool.root / pool.files()[0])
    write(roots.proc / "33/fdinfo/4", "flags:\t0100001\n")
    document = doctor(roots, pool)
    assert by_name(document)["writers to the pool"]["found"] == "open for writing by wget (pid 33)"
    stopped = [item["name"] for item in requirements_for(document, "none", "page-cache")]
    assert "writers to the pool" in stopped


def test_a_disk_named_by_the_user(roots: Roots, pool: Pool) -> None:
    write(roots.proc / "self/mountinfo", "1 0 0:39 / / rw - zfs tank/pool rw\n")
    number = pool.root.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    (roots.sys / "dev/block/8:0").symlink_to(roots.sys / f"dev/block/{device}")
    document = doctor(roots, pool, named=["8:0"])
    assert by_name(document)["device"]["ok"] is True
    assert by_name(document)["device"]["found"].endswith(", as named")
    assert document["device"]["given"] is True
    bad = by_name(doctor(roots, pool, named=["8:9"]))["device"]
    assert bad["ok"] is False and "no such block device" in bad["found"]
