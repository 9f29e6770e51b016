# SPDX-License-Identifier: Apache-2.0
"""Every requirement judged on findings: met, not met, unknown; and what each one stops."""

from dataclasses import replace
from typing import Any

import pytest

from pagetier.bench.device import Device
from pagetier.bench.doctor import requirements_for, warnings_of
from pagetier.bench.kernel.damon import Kdamond, ProactiveReclaim
from pagetier.bench.kernel.limits import Limit, Limits
from pagetier.bench.kernel.oomkillers import OomKiller
from pagetier.bench.kernel.swaps import Swap
from pagetier.bench.requirements import CHECKS, Findings, PoolFindings, Requirement
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
    psi="available",
    mglru=Mglru(available=True, mask=7, min_ttl_ms=0, writable=True),
    residency=True,
    limits=Limits(memlock_bytes=Limit(8 << 20, 8 << 20), open_files=Limit(1024, 100_000)),
    may_lock=True,
    max_map_count=100_000,
    device=DEVICE,
    device_problem=None,
    oom_killers=(),
    proactive_reclaim=ProactiveReclaim(kdamonds=(), damon_reclaim=None),
    kernel_log=True,
    free_bytes=10**12,
    pool=PoolFindings(
        files=82_432, expert_bytes=17_550_000, layout="files", planned_bytes=10**9, present=True
    ),
)
SWAP = (Swap("/dev/sda2", "partition", 1 << 30, 0),)
FLAT = replace(GOOD.pool, layout="flat", files=1)


def judge(findings: Findings) -> dict[str, Requirement]:
    return {requirement.name: requirement for requirement in (check(findings) for check in CHECKS)}


def document(findings: Findings) -> dict[str, Any]:
    items = [
        {"name": r.name, "ok": r.ok, "needed_for": list(r.needed_for)}
        for r in judge(findings).values()
    ]
    return {"requirements": items}


def test_a_good_host_meets_everything() -> None:
    judged = judge(GOOD)
    assert {name for name, requirement in judged.items() if requirement.ok is not True} == set()
    assert len(judged) == len(CHECKS)


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
