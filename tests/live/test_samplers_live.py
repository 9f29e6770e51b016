# SPDX-License-Identifier: Apache-2.0
"""Samplers on the running kernel: a cold read moves the right counters by what was read.

The temporary folder must lie on a block device; --basetemp puts it on one.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pagetier.analysis.errors import CapabilityError
from pagetier.bench.device import Device, resolve
from pagetier.bench.doctor import doctor
from pagetier.bench.host import host_facts
from pagetier.bench.kernel.diskstats import SECTOR_BYTES
from pagetier.bench.kernel.kmsg import open_kernel_log
from pagetier.bench.probe import probe
from pagetier.bench.snapshot import Snapshots
from pagetier.bench.timeline import Timeline
from pagetier.cgroups.roots import Roots
from pagetier.native.residency import resident_pages
from pagetier.tiers.create import create_pool
from pagetier.tiers.pool import Pool, open_pool

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("live")]

FILE_BYTES = 16 << 20
ROOTS = Roots()


@pytest.fixture
def cold_file(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "cold"
    path.write_bytes(np.random.default_rng(0).bytes(FILE_BYTES))
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    deadline_s = time.monotonic() + 10
    while resident_pages(fd, 0, FILE_BYTES) and time.monotonic() < deadline_s:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    assert resident_pages(fd, 0, FILE_BYTES) == 0
    yield fd
    os.close(fd)
    path.unlink()


def read_all(fd: int) -> None:
    assert sum(len(os.pread(fd, 1 << 20, at)) for at in range(0, FILE_BYTES, 1 << 20)) == FILE_BYTES


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    create_pool(tmp_path / "pool", layers=2, experts=4, expert_bytes=(1 << 20) + 17)
    return open_pool(tmp_path / "pool")


def test_device_of_a_file(tmp_path: Path) -> None:
    device = resolve(tmp_path, ROOTS)
    number = tmp_path.stat().st_dev
    nodes = {f"{device.major}:{device.minor}"}
    if device.partition is not None:
        nodes.add(f"{device.partition.major}:{device.partition.minor}")
    assert f"{os.major(number)}:{os.minor(number)}" in nodes
    assert (Path("/sys/block") / device.name.replace("/", "!")).exists()
    assert device.read_ahead_kb is not None
    assert device.iostats is True


def test_cold_read_moves_device_and_process_and_a_warm_one_does_not(
    tmp_path: Path, cold_file: int
) -> None:
    device = resolve(tmp_path, ROOTS)
    with Snapshots(ROOTS, device=device, worker_pid=os.getpid()) as snapshots:
        before = snapshots.take()
        read_all(cold_file)
        cold = snapshots.take()
        read_all(cold_file)
        warm = snapshots.take()
    sectors = cold["device"]["sectors_read"] - before["device"]["sectors_read"]
    assert sectors * SECTOR_BYTES >= FILE_BYTES
    assert cold["process"]["read_bytes"] - before["process"]["read_bytes"] >= FILE_BYTES
    assert warm["process"]["read_bytes"] == cold["process"]["read_bytes"]
    assert warm["process"]["rchar"] - cold["process"]["rchar"] >= FILE_BYTES
    pages_in_kib = cold["vmstat"]["pgpgin"] - before["vmstat"]["pgpgin"]
    assert pages_in_kib * 1024 >= FILE_BYTES


def test_memory_file_system_is_refused() -> None:
    with pytest.raises(CapabilityError, match="tmpfs at /dev/shm lies in memory"):
        resolve(Path("/dev/shm"), ROOTS)


def test_a_snapshot_costs_less_than_two_milliseconds(tmp_path: Path) -> None:
    device: Device = resolve(tmp_path, ROOTS)
    count = 50
    with Snapshots(ROOTS, device=device, worker_pid=os.getpid()) as snapshots:
        snapshots.take()
        # Own CPU time: the wall clock of a busy host says nothing about us.
        started_ns = time.thread_time_ns()
        for _ in range(count):
            snapshots.take()
        spent_ns = time.thread_time_ns() - started_ns
    assert spent_ns / count < 2_000_000


def test_timeline_at_ten_hertz(tmp_path: Path) -> None:
    device = resolve(tmp_path, ROOTS)
    with Snapshots(ROOTS, device=device) as snapshots, Timeline(snapshots.take) as timeline:
        time.sleep(0.55)
        samples = timeline.stop()
    assert len(samples) + timeline.missed_ticks in (6, 7)
    times_ns = [sample["at_ns"] for sample in samples]
    assert times_ns == sorted(times_ns)
    counts = [sample["device"]["sectors_read"] for sample in samples]
    assert counts == sorted(counts)


def test_kernel_log_from_the_mark_on() -> None:
    log = open_kernel_log()
    assert log is not None
    text = f"pagetier test mark {os.getpid()} {time.monotonic_ns()}"
    with log:
        log.read()
        Path("/dev/kmsg").write_text(f"{text}\n")
        assert [record.message for record in log.read()].count(text) == 1
        assert text not in [record.message for record in log.read()]


def test_doctor_and_host_facts_of_this_host(pool: Pool) -> None:
    document = doctor(ROOTS, pool)
    items = {item["name"]: item for item in document["requirements"]}
    for name in ("memory cgroup", "device", "block accounting", "pool", "locked memory"):
        assert items[name]["ok"] is True, items[name]
    assert items["residency"]["ok"] is True
    facts = host_facts(ROOTS, resolve(pool.root, ROOTS))
    assert facts["kernel"] == os.uname().release
    assert facts["cpus"] == os.sysconf("SC_NPROCESSORS_ONLN")
    assert facts["mem_total_bytes"] > 0


def test_probe_reads_cold_then_warm(pool: Pool) -> None:
    found = probe(pool, ROOTS, threads=2)
    assert found["bytes"] == pool.total_bytes
    assert found["resident_before_bytes"] == 0
    assert found["cold_problem"] is None
    assert found["warm_problem"] is None
    assert found["cold_bytes_per_s"] > 0
    assert found["warm_bytes_per_s"] > found["cold_bytes_per_s"]
    assert found["device_bytes"] >= pool.total_bytes
    assert found["resident_between_bytes"] >= pool.total_bytes


def test_probe_reads_a_bounded_sample(pool: Pool) -> None:
    found = probe(pool, ROOTS, sample_bytes=3 * pool.expert_bytes + 1)
    assert found["experts"] == 3
    assert found["bytes"] == 3 * pool.expert_bytes
    assert found["device_bytes"] >= 3 * pool.expert_bytes
