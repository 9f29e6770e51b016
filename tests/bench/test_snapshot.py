# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a fake kernel: every number from its place, None for what is not there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pagetier.bench.device import Device, Partition
from pagetier.bench.snapshot import Snapshots
from pagetier.cgroups.base import Events, Limits, MemoryState
from pagetier.cgroups.errors import CgroupError, ParseError
from pagetier.cgroups.psi import Pressure, PsiLine
from pagetier.cgroups.roots import Roots

DISKSTATS = """ 259       0 nvme0n1 101 102 103 104 105 106 107 108 109 110 111 112
 259       3 nvme0n1p3 11 12 13 14 15 16 17 18 19 20 21
   8       0 sda 1 2 999 4 5 6 7 8 9 10 11
"""
IO = "rchar: 31\nwchar: 32\nsyscr: 33\nsyscw: 34\nread_bytes: 35\nwrite_bytes: 36\n"
STATUS = "Name:\tx\nPid:\t1\nVmLck:\t 41 kB\nVmHWM:\t 42 kB\nVmRSS:\t 43 kB\nVmSwap:\t 44 kB\n"


def pressure(some: int, full: int | None) -> str:
    rest = "" if full is None else f"full avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n"
    return f"some avg10=1.00 avg60=2.00 avg300=3.00 total={some}\n{rest}"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def device(partition: Partition | None = None) -> Device:
    return Device(
        name="nvme0n1",
        major=259,
        minor=0,
        chain=("nvme0n1",),
        partition=partition,
        file_system="ext4",
        read_ahead_kb=None,
        max_sectors_kb=None,
        iostats=None,
        rotational=None,
        model=None,
        scheduler=None,
        logical_block_bytes=None,
        size_bytes=None,
    )


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    proc = tmp_path / "proc"
    write(proc / "diskstats", DISKSTATS)
    write(proc / "vmstat", "nr_file_pages 51\npgscan_file 52\nnuma_hit 53\n")
    write(proc / "meminfo", "MemTotal: 61 kB\nMlocked: 62 kB\nVmallocUsed: 63 kB\n")
    write(proc / "pressure/memory", pressure(71, 72))
    write(proc / "pressure/io", pressure(73, 74))
    write(proc / "pressure/cpu", pressure(75, None))
    for pid in (7, 8):
        write(proc / str(pid) / "io", IO)
        write(proc / str(pid) / "status", STATUS)
    return Roots(proc, tmp_path / "sys", tmp_path / "cgroup")


class FakeScope:
    """Answers with distinct numbers until it is gone."""

    name, version, path = "pagetier-x-1", "v2", Path("/nowhere")

    def __init__(self) -> None:
        self.there = True
        self.broken = False

    def memory(self) -> MemoryState:
        if not self.there or self.broken:
            raise CgroupError("memory.current cannot be read")
        return MemoryState(81, 82, 83, 84, 85, 86, None, 88, {"anon": 83})

    def exists(self) -> bool:
        return self.there

    def events(self) -> Events:
        return Events(oom=91, oom_kill=92, max=93)

    def pressure(self) -> Pressure | None:
        return Pressure(some=PsiLine(0, 0, 0, 94), full=PsiLine(0, 0, 0, 95))

    def io(self) -> dict[str, int] | None:
        return {"259:0": 96}

    def limits(self) -> Limits:
        raise NotImplementedError

    def directories(self) -> tuple[Path, ...]:
        raise NotImplementedError

    def create(self) -> None:
        raise NotImplementedError

    def command(self, argv: Sequence[str]) -> list[str]:
        raise NotImplementedError

    def attach(self, pid: int, timeout_s: float = 10.0) -> None:
        raise NotImplementedError

    def set_limit(self, memory_bytes: int) -> None:
        raise NotImplementedError

    def clear_limit(self) -> None:
        raise NotImplementedError

    def pids(self) -> list[int]:
        raise NotImplementedError

    def remove(self) -> None:
        raise NotImplementedError

    def ancestor_limit_bytes(self) -> int | None:
        raise NotImplementedError


def test_every_part(roots: Roots) -> None:
    scope = FakeScope()
    with Snapshots(roots, device=device(), scope=scope, worker_pid=7, balloon_pid=8) as snapshots:
        taken = snapshots.take()
    assert taken.pop("at_ns") > 0
    assert taken == {
        "device": {
            "major": 259,
            "minor": 0,
            "name": "nvme0n1",
            "reads": 101,
            "reads_merged": 102,
            "sectors_read": 103,
            "writes": 105,
            "writes_merged": 106,
            "sectors_written": 107,
            "partition": None,
        },
        "process": {
            "read_bytes": 35,
            "rchar": 31,
            "read_calls": 33,
            "vm_lck_bytes": 41 * 1024,
            "vm_rss_bytes": 43 * 1024,
            "vm_swap_bytes": 44 * 1024,
        },
        "scope": {
            "current_bytes": 81,
            "peak_bytes": 82,
            "anon_bytes": 83,
            "file_bytes": 84,
            "kernel_bytes": 85,
            "refault_file_pages": 86,
            "pgscan_pages": None,
            "pgsteal_pages": 88,
            "events": {"oom": 91, "oom_kill": 92, "max": 93},
            "io": {"259:0": 96},
            "pressure": {"some_total_us": 94, "full_total_us": 95},
        },
        "vmstat": {"nr_file_pages": 51, "pgscan_file": 52},
        "meminfo": {"MemTotal": 61 * 1024, "Mlocked": 62 * 1024},
        "nodes": None,
        "psi": {
            "memory": {"some_total_us": 71, "full_total_us": 72},
            "io": {"some_total_us": 73, "full_total_us": 74},
            "cpu": {"some_total_us": 75, "full_total_us": None},
        },
        "balloon": {"vm_lck_bytes": 41 * 1024},
        "lru_gen": None,
    }


def test_partition_stands_beside_the_disk_and_is_not_added(roots: Roots) -> None:
    with Snapshots(roots, device=device(Partition("nvme0n1p3", 259, 3))) as snapshots:
        taken: dict[str, Any] = snapshots.take()["device"]
    assert taken["sectors_read"] == 103
    assert taken["partition"]["sectors_read"] == 13


def test_a_disk_that_is_not_listed_is_none_not_zero(roots: Roots) -> None:
    write(roots.proc / "diskstats", DISKSTATS.replace("259       0", "259       9"))
    with Snapshots(roots, device=device()) as snapshots:
        assert snapshots.take()["device"] is None


def test_values_are_those_of_the_moment(roots: Roots) -> None:
    with Snapshots(roots, device=device()) as snapshots:
        first = snapshots.take()
        write(roots.proc / "diskstats", DISKSTATS.replace(" 103 ", " 1003 "))
        second = snapshots.take()
    assert second["device"]["sectors_read"] - first["device"]["sectors_read"] == 900
    assert second["at_ns"] > first["at_ns"]


def test_parts_that_were_not_asked_for_or_do_not_exist(tmp_path: Path) -> None:
    roots = Roots(tmp_path / "proc", tmp_path / "sys", tmp_path / "cgroup")
    with Snapshots(roots, device=device(), worker_pid=7) as snapshots:
        taken = snapshots.take()
    del taken["at_ns"]
    assert taken.pop("psi") == {"memory": None, "io": None, "cpu": None}
    assert set(taken.values()) == {None}


def test_page_cache_of_each_node_where_there_are_several(roots: Roots) -> None:
    for index in (0, 1):
        text = f"Node {index} MemFree: 1{index} kB\nNode {index} FilePages: 2{index} kB\n"
        write(roots.sys / f"devices/system/node/node{index}/meminfo", text)
    with Snapshots(roots) as snapshots:
        nodes = snapshots.take()["nodes"]
    assert nodes == {
        "0": {"file_bytes": 20 * 1024, "free_bytes": 10 * 1024},
        "1": {"file_bytes": 21 * 1024, "free_bytes": 11 * 1024},
    }


def generations(file_pages: int) -> str:
    lines = [
        f" node     0\n {seq:10} {seq + 1:10} {seq + 2:10}  {file_pages:10} \n" for seq in (1, 5)
    ]
    return f"memcg     1 /\n{lines[0]}memcg     8 /a/nowhere\n{lines[1]}memcg     9 /b\n{lines[1]}"


def entry(path: str, seq: int, file_pages: int) -> dict[str, Any]:
    generation = {
        "seq": seq,
        "age_ms": seq + 1,
        "anon_pages": seq + 2,
        "file_pages": file_pages,
    }
    return {"memcg": path, "nodes": [{"node": 0, "generations": [generation]}]}


def test_generations_of_the_root_and_the_scope(roots: Roots) -> None:
    write(roots.sys / "kernel/debug/lru_gen", generations(77))
    with Snapshots(roots, scope=FakeScope()) as snapshots:
        taken = snapshots.take()["lru_gen"]
    assert taken == [entry("/", 1, 77), entry("/a/nowhere", 5, 77)]


def test_samples_have_the_generations_once_a_second(
    roots: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(roots.sys / "kernel/debug/lru_gen", generations(77))
    now = [10**9]
    monkeypatch.setattr("pagetier.bench.snapshot.time.monotonic_ns", lambda: now[0])
    with Snapshots(roots) as snapshots:
        snapshots.take()
        having = []
        for tick in range(1, 25):
            now[0] = 10**9 + tick * 10**8
            having += [tick] if "lru_gen" in snapshots.sample() else []
    assert having == [10, 20]


def test_process_that_may_not_be_accounted_keeps_its_sizes(roots: Roots) -> None:
    (roots.proc / "7/io").unlink()
    with Snapshots(roots, worker_pid=7) as snapshots:
        process = snapshots.take()["process"]
    assert process["read_bytes"] is None
    assert process["vm_rss_bytes"] == 43 * 1024


def test_ended_process_is_none(roots: Roots) -> None:
    write(roots.proc / "7/status", "")
    with Snapshots(roots, worker_pid=7, balloon_pid=7) as snapshots:
        taken = snapshots.take()
    assert (taken["process"], taken["balloon"]) == (None, None)


def test_scope_that_ended_is_none_and_a_broken_one_an_error(roots: Roots) -> None:
    scope = FakeScope()
    with Snapshots(roots, scope=scope) as snapshots:
        scope.broken = True
        with pytest.raises(CgroupError, match="cannot be read"):
            snapshots.take()
        scope.there = False
        assert snapshots.take()["scope"] is None


def test_malformed_file_is_an_error_with_its_path(roots: Roots) -> None:
    write(roots.proc / "vmstat", "pgscan_file many\n")
    with (
        Snapshots(roots) as snapshots,
        pytest.raises(ParseError, match=f"^{roots.proc / 'vmstat'}:1: "),
    ):
        snapshots.take()
