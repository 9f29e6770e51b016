# SPDX-License-Identifier: Apache-2.0
"""The watcher on a fake kernel with a real, small pool, and the documents that it makes of it."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pagetier.analysis.errors import CapabilityError, InputError
from pagetier.bench.check.host import Subject, Watcher
from pagetier.bench.check.run import Look, looks
from pagetier.bench.check.selftest import LimitCounters
from pagetier.cgroups.roots import Roots
from pagetier.tiers.create import create_pool

EXPERT_BYTES = 8193
MEMINFO = """MemTotal: 1000 kB
MemAvailable: 400 kB
Active(file): 3 kB
Inactive(file): 4 kB
Unevictable: 20 kB
Mlocked: 10 kB
SwapTotal: 0 kB
SwapFree: 0 kB
"""
PRESSURE = (
    "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=2\n"
)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def vmstat(scan: int, steal: int, refault: int) -> str:
    return (
        f"pgscan_kswapd {scan}\npgsteal_kswapd {steal}\npgscan_direct 1\npgsteal_direct 1\n"
        f"workingset_refault_file {refault}\npswpin 0\n"
    )


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    roots = Roots(tmp_path / "proc", tmp_path / "sys", tmp_path / "cgroup")
    number = tmp_path.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    for name, text in {
        "self/mountinfo": f"1 0 {device} / / rw - ext4 /dev/x rw\n"
        "2 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "self/cgroup": "0::/\n",
        "self/status": "CapEff:\t0000000000000000\n",
        "1/comm": "systemd\n",
        "7/cgroup": "0::/engine.service\n",
        "7/io": "rchar: 1\nsyscr: 1\nread_bytes: 5\n",
        "7/status": "Name:\te\nPid:\t7\nVmLck:\t9 kB\n",
        "7/comm": "engine\n",
        "meminfo": MEMINFO,
        "vmstat": vmstat(10, 10, 10),
        "diskstats": f"{device.replace(':', ' ')} x 1 2 100 4 5 6 7 8 9 10 11\n",
        "pressure/memory": PRESSURE.format(1),
        "pressure/io": PRESSURE.format(1),
    }.items():
        write(roots.proc / name, text)
    write(roots.sys / f"dev/block/{device}/dev", f"{device}\n")
    write(roots.sys / f"dev/block/{device}/queue/iostats", "1\n")
    write(roots.sys / "kernel/mm/lru_gen/enabled", "0x0007\n")
    engine = roots.cgroup / "engine.service"
    write(roots.cgroup / "cgroup.controllers", "memory io\n")
    write(engine / "memory.stat", "file 50000\npgscan 1\npgsteal 1\nworkingset_refault_file 3\n")
    write(engine / "memory.max", "max\n")
    write(engine / "memory.pressure", PRESSURE.format(1))
    write(engine / "io.stat", f"{device} rbytes=70 wbytes=1\n8:99 rbytes=1000 wbytes=1\n")
    return roots


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    create_pool(tmp_path / "pool", layers=2, experts=3, expert_bytes=EXPERT_BYTES)
    return tmp_path / "pool"


def header() -> str:
    fields = {"model": "m", "num_layers": 2, "num_experts": 3, "top_k": 2}
    return json.dumps({"format": "moe-route-trace", "version": 1, **fields}) + "\n"


def record(layer: int, *experts: int) -> str:
    return json.dumps({"req": "r", "step": 0, "layer": layer, "experts": experts}) + "\n"


def test_the_host_alone(roots: Roots) -> None:
    with Watcher(Subject(), roots) as watcher:
        seen = watcher.observe()
    assert watcher.unseen == []
    assert seen.memory is not None and seen.memory["Unevictable"] == 20 * 1024
    assert seen.vmstat is not None and seen.vmstat["pgscan_kswapd"] == 10
    assert seen.pressures["memory"] == {"some_total_us": 1, "full_total_us": 2}
    assert seen.mglru_enabled is True
    assert (seen.device_bytes, seen.reader_bytes, seen.cgroup, seen.computed) == (None,) * 4


def test_a_pool_and_its_reader(roots: Roots, pool: Path) -> None:
    with Watcher(Subject(pool=pool, pid=7), roots) as watcher:
        seen = watcher.observe()
        # By the cgroup's own count, of the pool's disk alone.
        assert seen.reader_bytes == 70
        assert seen.device_bytes == 100 * 512
        assert seen.cgroup is not None
        assert (seen.cgroup.name, seen.cgroup.limit_bytes) == ("/engine.service", None)
        assert seen.cgroup.stat["pgscan"] == 1
        situation = watcher.situation(seen)
    assert situation.systemd and situation.reader_unit == "engine.service"
    assert [locker.pid for locker in situation.lockers] == [7]
    assert situation.mglru_mask == 7
    assert situation.unevictable_bytes == 20 * 1024


def test_without_the_io_controller_the_processs_own_bytes_count(roots: Roots, pool: Path) -> None:
    (roots.cgroup / "engine.service/io.stat").unlink()
    with Watcher(Subject(pool=pool, pid=7), roots) as watcher:
        assert watcher.observe().reader_bytes == 5


def test_what_may_not_be_seen_is_said(roots: Roots, pool: Path) -> None:
    (roots.cgroup / "engine.service/io.stat").unlink()
    (roots.proc / "7/io").unlink()
    (roots.proc / "pressure/memory").unlink()
    write(roots.proc / "self/mountinfo", "1 0 0:39 / / rw - nfs4 server:/x rw\n")
    node = next((roots.sys / "dev/block").iterdir())
    node.rename(roots.sys / "gone")
    with Watcher(Subject(pool=pool, pid=7), roots) as watcher:
        seen = watcher.observe()
    assert (seen.device_bytes, seen.reader_bytes, seen.cgroup) == (None, None, None)
    text = "\n".join(watcher.unseen)
    assert "pressure: this kernel keeps none" in text
    assert "the reader's cgroup: no memory cgroups are mounted here" in text
    assert "device reads: " in text and "nfs4 at / (from server:/x) lies on a server" in text
    assert "what pid 7 reads: /proc/7/io is its owner's and root's alone" in text


def device_problem(roots: Roots, pool: Path, reader_bytes: int | None = 5) -> str:
    with Watcher(Subject(pool=pool, pid=7), roots) as watcher:
        seen = watcher.observe()
    # Neither a 0 nor the bytes of something else.
    assert seen.device_bytes is None
    assert seen.reader_bytes == reader_bytes
    (text,) = watcher.unseen
    return text


def test_a_disk_that_does_not_count(roots: Roots, pool: Path) -> None:
    (queue,) = (roots.sys / "dev/block").glob("*/queue/iostats")
    queue.write_text("0\n")
    assert "is off (queue/iostats)" in device_problem(roots, pool)


def test_a_compressed_pool(roots: Roots, pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pagetier.bench.devices.resolve.stored_traits", lambda path: ("compressed",)
    )
    assert "stored compressed" in device_problem(roots, pool, reader_bytes=None)


def test_counters_that_a_program_makes_up(
    roots: Roots, pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faked = str(roots.proc / "diskstats")
    monkeypatch.setattr("pagetier.bench.check.host.faked_files", lambda proc: (faked,))
    assert "answered by a program (lxcfs)" in device_problem(roots, pool)


def test_the_end_of_the_reader_is_said_once(roots: Roots) -> None:
    with Watcher(Subject(pid=7), roots) as watcher:
        shutil.rmtree(roots.proc / "7")
        watcher.observe()
        watcher.observe()
    assert watcher.unseen == ["pid 7: it has ended"]


def test_a_reader_in_the_root_cgroup_has_none_of_its_own(roots: Roots) -> None:
    write(roots.proc / "7/cgroup", "0::/\n")
    write(roots.cgroup / "memory.stat", "file 1\n")
    with Watcher(Subject(pid=7), roots) as watcher:
        assert watcher.cgroup is None
        assert watcher.observe().reader_bytes == 5


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (Subject(feed="x"), "--feed needs the sizes of the experts"),
        (Subject(pid=99), "--pid 99: no such process"),
        (Subject(cgroup="/none"), "has no memory cgroup /none"),
        (Subject(pool=Path("/no/pool")), "is no pool"),
    ],
)
def test_what_cannot_be_looked_at(roots: Roots, subject: Subject, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Watcher(subject, roots)


def test_a_disk_that_was_named_wrongly_is_an_error(roots: Roots, pool: Path) -> None:
    with pytest.raises(CapabilityError, match="--device nvme9n9"):
        Watcher(Subject(pool=pool, device=("nvme9n9",)), roots)


def test_computed_misses_at_what_is_resident(roots: Roots, pool: Path, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    feed.write_text(header() + record(0, 0, 1))
    with Watcher(Subject(pool=pool, feed=str(feed)), roots) as watcher:
        seen = watcher.observe()
        assert seen.computed is not None
        assert seen.computed.capacity_bytes == 7 * 1024
        assert seen.computed.miss_bytes == 2 * EXPERT_BYTES
        # The cache fills; later it shrinks again, which says nothing about what fitted.
        write(roots.proc / "meminfo", MEMINFO.replace("file): 3 kB", "file): 96 kB"))
        with feed.open("a") as file:
            file.write(record(0, 0, 1) + record(0, 0, 1) + record(1, 0)[:20])
        seen = watcher.observe()
        assert seen.computed is not None
        assert seen.computed.capacity_bytes == 100 * 1024
        assert seen.computed.miss_bytes == 4 * EXPERT_BYTES
        write(roots.proc / "meminfo", MEMINFO)
        seen = watcher.observe()
        assert seen.computed is not None
        assert seen.computed.capacity_bytes == 100 * 1024
        assert seen.computed.reads == 6


@pytest.mark.parametrize(
    ("subject", "capacity"),
    [
        (Subject(pid=7), 50_000),
        (Subject(capacity_bytes=12_345), 12_345),
    ],
)
def test_capacity_of_the_computed_lru(
    roots: Roots, pool: Path, tmp_path: Path, subject: Subject, capacity: int
) -> None:
    feed = tmp_path / "feed"
    feed.write_text(header())
    with Watcher(
        Subject(pool=pool, pid=subject.pid, feed=str(feed), capacity_bytes=subject.capacity_bytes),
        roots,
    ) as watcher:
        computed = watcher.observe().computed
    assert computed is not None and computed.capacity_bytes == capacity


def first(look: Look, roots: Roots, change: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """One document; the kernel's files change between its two observations."""

    def sleep(_: float) -> None:
        change()
        time.sleep(0.01)

    return next(looks(look, roots, sleep))


def make_look(subject: Subject, tmp_path: Path, textfile: Path | None = None) -> Look:
    return Look(subject, 2.0, textfile, tmp_path / "state")


def test_document_of_an_idle_host(roots: Roots, tmp_path: Path) -> None:
    document = first(make_look(Subject(), tmp_path), roots)
    assert json.loads(json.dumps(document)) == document
    assert document["state"] == "healthy"
    assert len(document["mitigations"]) == 3
    assert document["unseen"] == []
    assert document["device"] is None
    assert document["limit_reclaim_counters"] is None
    assert document["figures"]["reclaim"]["kswapd"]["ratio"] is None
    assert document["figures"]["unevictable_share"] == 0.02
    assert document["figures"]["seconds"] >= 0.01


def test_document_of_a_locked_host_with_a_streaming_reader(roots: Roots, tmp_path: Path) -> None:
    write(roots.proc / "meminfo", MEMINFO.replace("Unevictable: 20 kB", "Unevictable: 850 kB"))

    def stream() -> None:
        write(roots.proc / "vmstat", vmstat(50_010, 10_010, 20_010))

    document = first(make_look(Subject(), tmp_path), roots, stream)
    assert document["state"] == "suspect"
    assert document["figures"]["reclaim"]["kswapd"]["ratio"] == 5.0
    text = "\n".join(document["evidence"])
    assert "scan/steal 5.00" in text
    assert "85% of memory is unevictable" in text
    assert [item["applies"] for item in document["mitigations"]] == [True, True, True]


def test_the_self_test_of_this_boot_is_used(roots: Roots, tmp_path: Path) -> None:
    boot = roots.proc / "sys/kernel/random/boot_id"
    write(boot, "this-boot\n")
    fields = LimitCounters("6.99", "this-boot", "v2", 6000, {"direct": True})
    path = tmp_path / "state/limit-reclaim-counters"
    write(path, json.dumps({name: getattr(fields, name) for name in fields.__slots__}))
    document = first(make_look(Subject(), tmp_path), roots)
    assert document["limit_reclaim_counters"]["counters"] == {"direct": True}
    assert "direct, mglru, with limit reclaim" in document["figures"]["reclaim"]["direct"]["label"]
    boot.write_text("another-boot\n")
    assert first(make_look(Subject(), tmp_path), roots)["limit_reclaim_counters"] is None


def test_requirements_are_the_doctors(roots: Roots, tmp_path: Path) -> None:
    write(roots.proc / "swaps", "Filename Type Size Used Priority\n/dev/zram0 partition 9 1 -2\n")
    document = first(make_look(Subject(), tmp_path), roots)
    names = [item["name"] for item in document["requirements"]]
    assert "compressed swap" in names
