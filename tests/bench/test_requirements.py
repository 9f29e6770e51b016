# SPDX-License-Identifier: Apache-2.0
"""Every requirement judged on findings: met, not met, unknown; and what each one stops."""

from dataclasses import replace
from typing import Any

import pytest

from pagetier.bench.device import Device, Leaf
from pagetier.bench.doctor import requirements_for, warnings_of
from pagetier.bench.kernel.damon import Kdamond, ProactiveReclaim
from pagetier.bench.kernel.limits import Limit, Limits
from pagetier.bench.kernel.numa import Node
from pagetier.bench.kernel.oomkillers import OomKiller
from pagetier.bench.kernel.swaps import Swap
from pagetier.bench.kernel.writers import Writer
from pagetier.bench.requirements import NEEDS, Findings, PoolFindings, Requirement
from pagetier.capacity.mglru import Mglru

DEVICE = Device(
    name="nvme0n1",
    major=259,
    minor=0,
    chain=("nvme0n1p3", "nvme0n1"),
    partition=None,
    file_system="ext4",
    read_ahead_kb=128,
    max_sectors_kb=1280,
    iostats=True,
    rotational=False,
    model=None,
    scheduler=None,
    logical_block_bytes=512,
    size_bytes=None,
)
GOOD = Findings(
    effective_user=0,
    memory_cgroup="v2",
    memory_cgroup_problem=None,
    swap_limit_file=True,
    swaps=(),
    zswap=True,
    psi="available",
    mglru=Mglru(available=True, mask=7, min_ttl_ms=0, writable=True),
    thp="madvise",
    nodes=(Node(0, "0-1", 10**11, 0, 10**10),),
    residency=True,
    limits=Limits(memlock_bytes=Limit(8 << 20, 8 << 20), open_files=Limit(1024, 100_000)),
    may_lock=True,
    max_map_count=100_000,
    faked_proc=(),
    sysfs_writable=True,
    device=DEVICE,
    device_problem=None,
    oom_killers=(),
    proactive_reclaim=ProactiveReclaim(kdamonds=(), damon_reclaim=None),
    reclaimers=(),
    proactive_pages=0,
    kernel_log=True,
    free_bytes=10**12,
    pool=PoolFindings(
        files=82_432,
        expert_bytes=17_550_000,
        layout="files",
        planned_bytes=10**9,
        present=True,
        writers=(),
    ),
)
SWAP = (Swap("/dev/sda2", "partition", 1 << 30, 0),)
ZRAM = (Swap("/dev/zram0", "partition", 1 << 30, 0),)
TWO_NODES = (Node(0, "0", 10**11, 0, 10**9), Node(1, "1", 10**11, 0, 2 * 10**9))
GPU_NODES = (TWO_NODES[0], replace(TWO_NODES[1], cpus=""))
LEAVES = tuple(
    Leaf(name, 8, minor, None, iostats, False, None, None, 512, None)
    for name, minor, iostats in (("sda", 0, True), ("sdb", 16, False))
)
MIRROR = replace(
    DEVICE,
    name="md0",
    chain=("md0", "sda", "sdb"),
    iostats=False,
    leaves=LEAVES,
    layers=("md0 is md raid1",),
)
FLAT = replace(GOOD.pool, layout="flat", files=1)


def judge(findings: Findings) -> dict[str, Requirement]:
    return {
        requirement.name: requirement for requirement in (need.check(findings) for need in NEEDS)
    }


def document(findings: Findings) -> dict[str, Any]:
    items = [
        {"name": r.name, "ok": r.ok, "needed_for": list(r.needed_for)}
        for r in judge(findings).values()
    ]
    return {"requirements": items}


def test_a_good_host_meets_everything() -> None:
    judged = judge(GOOD)
    assert {name for name, requirement in judged.items() if requirement.ok is not True} == set()
    assert len(judged) == len(NEEDS)


@pytest.mark.parametrize(
    ("changes", "name", "ok", "found"),
    [
        ({"effective_user": 1000}, "root", False, "user id 1000"),
        (
            {"memory_cgroup": "none", "memory_cgroup_problem": "add +memory to X"},
            "memory cgroup",
            False,
            "cgroup none",
        ),
        ({"memory_cgroup": "v1"}, "memory cgroup", True, "cgroup v1"),
        ({"memory_cgroup_problem": "read-only"}, "memory cgroup", False, "cgroup v2"),
        ({"swaps": SWAP}, "swap limit", True, "swap on /dev/sda2"),
        ({"swaps": SWAP, "swap_limit_file": False}, "swap limit", False, "swap on /dev/sda2"),
        ({"swaps": SWAP, "swap_limit_file": None}, "swap limit", None, "swap on /dev/sda2"),
        ({"swap_limit_file": False}, "swap limit", True, "swap is off"),
        ({"swaps": SWAP}, "swap off", False, "swap on /dev/sda2"),
        ({"psi": "disabled"}, "psi", False, "disabled"),
        ({"psi": "absent"}, "psi", False, "absent"),
        ({"memory_cgroup": "v1"}, "psi of a scope", False, "none (cgroup v1, host available)"),
        ({"psi": "absent"}, "psi of a scope", False, "none (cgroup v2, host absent)"),
        ({"mglru": Mglru(False, None, None, None)}, "mglru", False, "not in this kernel"),
        ({"mglru": Mglru(True, 0, 0, True)}, "mglru", True, "0x0000"),
        ({"mglru": Mglru(True, 7, 0, False)}, "mglru", False, "0x0007, which may not be written"),
        ({"mglru": Mglru(True, 5, 1000, True)}, "mglru min_ttl_ms", False, "1000 ms"),
        ({"mglru": Mglru(False, None, None, None)}, "mglru min_ttl_ms", True, "no such setting"),
        ({"residency": False}, "residency", False, "does not tell"),
        ({"residency": None}, "residency", None, "not asked"),
        ({"may_lock": False}, "locked memory", False, "8388608 bytes"),
        ({"may_lock": None, "limits": None}, "locked memory", None, "unknown"),
        ({"kernel_log": False}, "kernel log", False, "not readable"),
        ({"max_map_count": 83_455}, "mappings", False, "83455"),
        ({"max_map_count": 83_456}, "mappings", True, "83456"),
        ({"max_map_count": None}, "mappings", None, "unknown"),
        ({"device": None}, "device", None, "no pool"),
        ({"device": None, "device_problem": ("on btrfs", "move")}, "device", False, "on btrfs"),
        ({"device": None}, "block accounting", None, "unknown"),
        ({"device": replace(DEVICE, iostats=False)}, "block accounting", False, "off"),
        (
            {"oom_killers": (OomKiller(9, "earlyoom"),)},
            "user-space OOM killers",
            False,
            "earlyoom (pid 9)",
        ),
        ({"pool": replace(FLAT, problems=("is sparse",))}, "pool", False, "is sparse"),
        ({"pool": PoolFindings()}, "pool", None, "no pool"),
        ({"pool": PoolFindings()}, "free space", None, "unknown needed"),
        ({"pool": PoolFindings(planned_bytes=10**12)}, "free space", True, "1000000000000 needed"),
        ({"pool": PoolFindings(planned_bytes=10**12 + 1)}, "free space", False, "needed"),
        ({"free_bytes": 0}, "free space", True, "pool is there"),
        ({"faked_proc": ("/proc/meminfo",)}, "real /proc", False, "FUSE), not the kernel: /proc/m"),
        ({"sysfs_writable": False}, "writable /sys", False, "read-only"),
        ({"sysfs_writable": None}, "writable /sys", None, "not seen"),
        ({"swaps": SWAP}, "compressed swap", False, "zswap is on"),
        ({"swaps": SWAP, "zswap": None}, "compressed swap", True, "none in use"),
        ({"swaps": ZRAM, "zswap": False}, "compressed swap", False, "/dev/zram0, which is memory"),
        ({"thp": "always"}, "transparent huge pages", True, "always"),
        ({"thp": None}, "transparent huge pages", None, "not in this kernel"),
        ({"reclaimers": ("senpai (pid 5)",)}, "users of memory.reclaim", False, "senpai (pid 5)"),
        ({"proactive_pages": 7}, "users of memory.reclaim", False, "7 pages stolen that way"),
        ({"proactive_pages": None}, "users of memory.reclaim", True, "none found"),
        ({"nodes": ()}, "memory nodes", True, "one node"),
        ({"nodes": TWO_NODES}, "memory nodes", True, "node 0 1.00 GB, node 1 2.00 GB"),
        ({"nodes": GPU_NODES}, "memory nodes", False, "node 1 2.00 GB (no CPUs)"),
        ({"device": replace(DEVICE, lower_path="/up/x")}, "page cache in sight", False, "overlay"),
        ({"device": None}, "page cache in sight", None, "no pool"),
        ({"device": None}, "stored bytes", None, "no pool"),
        (
            {"device": replace(DEVICE, traits=("compressed",))},
            "stored bytes",
            False,
            "compressed",
        ),
        ({"device": replace(DEVICE, traits=("encrypted",))}, "stored bytes", True, "encrypted"),
        ({"device": MIRROR}, "device", True, "sda + sdb, by way of md0, sda, sdb; md0 is md raid1"),
        ({"device": MIRROR}, "block accounting", False, "iostats of sda + sdb: off"),
        ({"device": replace(DEVICE, given=True)}, "device", True, "nvme0n1, as named"),
        (
            {"pool": replace(FLAT, writers=(Writer(12, "wget"),))},
            "writers to the pool",
            False,
            "open for writing by wget (pid 12)",
        ),
        ({"pool": replace(FLAT, writers=None)}, "writers to the pool", None, "not looked into"),
    ],
)
def test_judgement(changes: dict[str, Any], name: str, ok: bool | None, found: str) -> None:
    requirement = judge(replace(GOOD, **changes))[name]
    assert requirement.ok is ok
    assert found in requirement.found
    assert requirement.ok is True or requirement.remedy


@pytest.mark.parametrize(
    ("hard", "ok"), [(82_432 + 255, False), (82_432 + 256, True), (None, True)]
)
def test_open_files_against_the_hard_limit(hard: int | None, ok: bool) -> None:
    limits = Limits(memlock_bytes=Limit(None, None), open_files=Limit(1024, hard))
    judged = judge(replace(GOOD, limits=limits, may_lock=False))
    assert judged["open files"].ok is ok
    assert judged["locked memory"].ok is True


@pytest.mark.parametrize(
    ("layout", "expert_bytes", "device", "ok"),
    [
        ("flat", 1280 * 1024, DEVICE, True),
        ("flat", 1280 * 1024 + 1, DEVICE, False),
        ("flat", 8192 * 1024, replace(DEVICE, read_ahead_kb=8192), True),
        ("flat", 8192 * 1024 + 1, replace(DEVICE, read_ahead_kb=8192), False),
        ("files", 8192 * 1024 + 1, DEVICE, True),
        ("flat", 1, replace(DEVICE, read_ahead_kb=None), None),
        ("flat", 1, None, None),
        (None, 1, DEVICE, None),
    ],
)
def test_over_read(
    layout: str | None, expert_bytes: int, device: Device | None, ok: bool | None
) -> None:
    pool = replace(FLAT, layout=layout, expert_bytes=expert_bytes)
    requirement = judge(replace(GOOD, pool=pool, device=device))["readahead against expert size"]
    assert requirement.ok is ok
    if ok is False:
        assert f"read_ahead_kb to {expert_bytes // 1024 + 1}" in requirement.remedy
        assert "advice: random" in requirement.remedy
        assert "one file per expert" in requirement.remedy


def test_only_the_leaf_that_does_not_count_is_named_in_the_remedy() -> None:
    remedy = judge(replace(GOOD, device=MIRROR))["block accounting"].remedy
    assert "/sys/block/sdb/queue/iostats" in remedy
    assert "/sys/block/sda/" not in remedy


def test_an_empty_node_without_cpus_is_no_memory() -> None:
    empty = replace(GPU_NODES[1], total_bytes=0)
    assert judge(replace(GOOD, nodes=(TWO_NODES[0], empty)))["memory nodes"].ok is True


def test_what_is_needed_of_a_host_is_declared_once() -> None:
    names = [need.name for need in NEEDS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "changes",
    [
        {"faked_proc": ("/proc/diskstats",)},
        {"device": replace(DEVICE, iostats=False)},
        {"device": replace(DEVICE, traits=("compressed",))},
    ],
)
def test_what_the_check_cannot_do_without(changes: dict[str, Any]) -> None:
    assert requirements_for(document(GOOD), "check", "") == []
    assert len(requirements_for(document(replace(GOOD, **changes)), "check", "")) == 1


def test_recorded_and_never_stopped() -> None:
    changed = replace(GOOD, reclaimers=("x",), nodes=GPU_NODES, swaps=ZRAM, thp="always")
    found = document(replace(changed, swap_limit_file=True))
    assert requirements_for(found, "wall", "page-cache") == []
    assert [item["name"] for item in warnings_of(found)] == [
        "compressed swap",
        "users of memory.reclaim",
        "memory nodes",
    ]


def test_proactive_reclaim_warns_and_stops_nothing() -> None:
    reclaim = ProactiveReclaim((Kdamond(0, "on", ("pageout",)),), damon_reclaim=True)
    found = document(replace(GOOD, proactive_reclaim=reclaim))
    assert [item["name"] for item in warnings_of(found)] == ["proactive reclaim"]
    for mechanism in ("none", "wall", "balloon"):
        assert requirements_for(found, mechanism, "page-cache") == []


@pytest.mark.parametrize(
    ("changes", "stopped"),
    [
        ({"memory_cgroup": "none"}, {"wall"}),
        ({"swaps": SWAP}, {"balloon"}),
        ({"swaps": SWAP, "swap_limit_file": False}, {"wall", "balloon"}),
        ({"may_lock": False}, {"balloon"}),
        ({"oom_killers": (OomKiller(9, "nohang"),)}, {"wall", "balloon"}),
        ({"device": replace(DEVICE, iostats=False)}, {"none", "wall", "balloon"}),
        ({"device_problem": ("x", "y")}, {"none", "wall", "balloon"}),
        ({"pool": replace(FLAT, problems=("x",))}, {"none", "wall", "balloon"}),
        ({"pool": replace(FLAT, writers=(Writer(1, "x"),))}, {"none", "wall", "balloon"}),
        ({"device": replace(DEVICE, lower_path="/x")}, {"none", "wall", "balloon"}),
        ({"faked_proc": ("x",)}, {"none", "wall", "balloon"}),
        ({"effective_user": 1, "kernel_log": False, "psi": "absent"}, set()),
        ({"residency": None, "max_map_count": None, "limits": None}, set()),
    ],
)
def test_who_is_stopped(changes: dict[str, Any], stopped: set[str]) -> None:
    found = document(replace(GOOD, **changes))
    failing = {
        mechanism
        for mechanism in ("none", "wall", "balloon")
        if requirements_for(found, mechanism, "page-cache")
    }
    assert failing == stopped


def test_the_unknown_stops_nothing() -> None:
    found = document(replace(GOOD, swaps=SWAP, swap_limit_file=None, max_map_count=None))
    assert requirements_for(found, "wall", "page-cache", "mmap") == []


def test_features_are_asked_for_by_name() -> None:
    found = document(replace(GOOD, max_map_count=1, mglru=Mglru(False, None, None, None)))
    assert requirements_for(found, "wall", "page-cache") == []
    names = [item["name"] for item in requirements_for(found, "wall", "page-cache", "mmap")]
    assert names == ["mappings"]
    names = [item["name"] for item in requirements_for(found, "none", "page-cache", "mglru")]
    assert names == ["mglru"]
