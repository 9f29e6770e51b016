# SPDX-License-Identifier: Apache-2.0
"""Boots of a campaign: planned from a fake host, verified after the reboot, told step by step."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pagetier.analysis.errors import InputError
from pagetier.analysis.results import Cell
from pagetier.bench.boot import resume as boot_run
from pagetier.bench.boot.plan import (
    HELD_BYTES,
    MAX_CORRECTIONS,
    BootPlan,
    HostMemory,
    Profile,
    has_plan,
    load_plan,
    mem_bytes,
    plan_boots,
    read_host_memory,
    save_plan,
)
from pagetier.bench.boot.resume import resume_boot
from pagetier.bench.boot.steps import BootHost, plan_text, status, steps_of_next_boot
from pagetier.bench.campaign_file import load_campaign
from pagetier.bench.cells import CellSpec, plan_cells
from pagetier.bench.inputs import RunRequest
from pagetier.bench.store import Store
from pagetier.cgroups.roots import Roots

GIB, MIB = 2**30, 2**20
# 8 GiB, of which a hole below 4 GiB keeps 1 GiB away: 3 GiB low, 5 GiB high.
RAM = ((MIB, 3 * GIB), (4 * GIB, 9 * GIB))
INSTALLED = 8 * GIB - MIB
IOMEM = """00000000-00000fff : Reserved
00100000-bfffffff : System RAM
  01000000-02209987 : Kernel code
c0000000-ffffffff : PCI Bus 0000:00
100000000-23fffffff : System RAM
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Host:
    """A machine that can be booted with another command line."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.roots = Roots(folder / "proc", folder / "sys", folder / "cgroup")
        write(self.roots.proc / "sys/kernel/osrelease", "6.12.9-amd64\n")
        write(self.roots.proc / "iomem", IOMEM)
        for path in ("usr/sbin/update-grub", "etc/default/grub"):
            write(self.root / path, "")
        self.boot("")

    def boot(self, words: str, total: int = INSTALLED, available: int = INSTALLED - GIB) -> None:
        write(self.roots.proc / "cmdline", f"root=/dev/vda ro {words}\n")
        lines = f"MemTotal: {total // 1024} kB\nMemAvailable: {available // 1024} kB\n"
        write(self.roots.proc / "meminfo", lines)

    def boot_profile(self, profile: Profile) -> None:
        wanted = profile.capacity_bytes + HELD_BYTES
        self.boot(profile.arguments, total=wanted + 128 * MIB, available=wanted)

    @property
    def seen(self) -> BootHost:
        return BootHost(self.roots, self.root)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host")


def cells_of(folder: Path, capacities: Iterable[int], more: str = "") -> list[CellSpec]:
    path = folder / "c.yaml"
    path.write_text(
        f"trace: t\npool: p\nmechanisms: [boot, wall]\ncapacities: {list(capacities)}\n{more}"
    )
    return plan_cells(load_campaign(path))


@pytest.fixture
def plan(host: Host, tmp_path: Path) -> BootPlan:
    cells = cells_of(tmp_path, [GIB, 2 * GIB], "repetitions: 2\nmglru: [on, off]\n")
    return plan_boots(cells, read_host_memory(host.roots, "x86_64"), tmp_path / "my place")


Measure = Callable[[Profile], None]


@pytest.fixture
def results(tmp_path: Path, plan: BootPlan) -> Path:
    directory = tmp_path / "results"
    Store.create(directory, {}).close()
    save_plan(directory, plan)
    return directory


def measure(directory: Path, profile: Profile) -> None:
    empty = Cell("", 0, {}, "kept", (), (), "", "", {}, {}, {})
    with Store(directory) as store:
        for number, cell in enumerate(profile.cells):
            store.add_cell(replace(empty, id=cell, position=number))


# ---- mem= ---------------------------------------------------------------------------------------


def test_what_the_normal_boot_tells(host: Host) -> None:
    found = read_host_memory(host.roots, "x86_64")
    assert found == HostMemory(INSTALLED, GIB, RAM, by_address=True)
    assert read_host_memory(host.roots, "aarch64").by_address is False


@pytest.mark.parametrize(
    ("capacity", "by_address", "expected"),
    [
        (GIB, True, MIB + 2 * GIB + HELD_BYTES),
        (GIB, False, 2 * GIB + HELD_BYTES),
        # 4 GiB of RAM: 3 GiB less the first MiB lie low, what is left above the hole.
        (3 * GIB - HELD_BYTES, True, 5 * GIB + MIB),
        (3 * GIB - HELD_BYTES, False, 4 * GIB),
    ],
)
def test_on_x86_mem_is_an_address_and_holes_count(
    capacity: int, by_address: bool, expected: int
) -> None:
    host = HostMemory(INSTALLED, GIB, RAM, by_address)
    assert mem_bytes(capacity, host) == expected


def test_what_the_kernel_keeps_is_added_in_proportion() -> None:
    host = HostMemory(total_bytes=8 * GIB, used_bytes=0, ram=((0, 10 * GIB),), by_address=True)
    assert mem_bytes(4 * GIB - HELD_BYTES, host) == 5 * GIB


def test_without_addresses_mem_is_an_amount() -> None:
    host = HostMemory(total_bytes=8 * GIB, used_bytes=GIB, ram=None, by_address=True)
    assert mem_bytes(GIB, host) == 2 * GIB + HELD_BYTES


@given(
    st.integers(1, 6 * GIB),
    st.lists(st.tuples(st.integers(1, 100), st.integers(0, 50)), min_size=1, max_size=5),
)
def test_below_the_address_lies_enough_and_no_mib_too_much(
    capacity: int, layout: list[tuple[int, int]]
) -> None:
    ram, at = [], 0
    for size, hole in layout:
        ram.append((at + hole * GIB, at + (hole + size) * GIB))
        at = ram[-1][1]
    installed = sum(end - start for start, end in ram)
    host = HostMemory(installed, 0, tuple(ram), by_address=True)
    wanted = capacity + HELD_BYTES
    if wanted >= installed:
        with pytest.raises(InputError, match="name smaller capacities"):
            mem_bytes(capacity, host)
        return
    end = mem_bytes(capacity, host)
    below = sum(max(0, min(end, stop) - start) for start, stop in ram)
    assert wanted <= below < wanted + MIB


def test_a_boot_with_mem_cannot_plan(host: Host) -> None:
    host.boot("mem=4G")
    with pytest.raises(InputError, match="this boot has mem= already"):
        read_host_memory(host.roots)


# ---- the plan -----------------------------------------------------------------------------------


def test_one_boot_per_capacity_largest_first_with_all_its_cells(
    plan: BootPlan, tmp_path: Path
) -> None:
    assert [profile.capacity_bytes for profile in plan.profiles] == [2 * GIB, GIB]
    cells = cells_of(tmp_path, [GIB, 2 * GIB], "repetitions: 2\nmglru: [on, off]\n")
    by_id = {cell.id: cell for cell in cells}
    for profile in plan.profiles:
        chosen = [by_id[cell] for cell in profile.cells]
        assert len(chosen) == 4
        assert {(cell.mechanism, cell.capacity_bytes) for cell in chosen} == {
            ("boot", profile.capacity_bytes)
        }


def test_kept_for_after_the_reboot(plan: BootPlan, results: Path) -> None:
    assert has_plan(results)
    assert load_plan(results) == plan


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"folder": "/", "boots": [{}]}'])
def test_a_broken_plan_is_named(tmp_path: Path, text: str) -> None:
    write(tmp_path / "boot-plan.json", text)
    with pytest.raises(InputError, match=r"boot-plan\.json: not a boot plan"):
        load_plan(tmp_path)


def test_no_plan(tmp_path: Path, host: Host) -> None:
    assert not has_plan(tmp_path)
    assert steps_of_next_boot(tmp_path, host.seen) is None
    with pytest.raises(InputError, match="results directory of a campaign with boot cells"):
        load_plan(tmp_path)


# ---- after the reboot ---------------------------------------------------------------------------


def test_booted_profile_is_known_by_both_words(host: Host, plan: BootPlan) -> None:
    large, small = plan.profiles
    assert plan.booted(host.roots) is None
    host.boot_profile(small)
    assert plan.booted(host.roots) == small
    host.boot_profile(large)
    assert plan.booted(host.roots) == large


@pytest.mark.parametrize("words", ["mem=3G", "mem=1G pagetier.capacity=1", "mem=0x1000000"])
def test_a_boot_of_no_plan_is_refused(host: Host, plan: BootPlan, words: str) -> None:
    host.boot(words)
    with pytest.raises(InputError, match="is no boot of this plan"):
        plan.booted(host.roots)


def test_mem_that_was_not_honoured(host: Host, plan: BootPlan) -> None:
    small = plan.profiles[1]
    host.boot(small.arguments, total=small.mem_bytes)
    assert plan.booted(host.roots) == small
    host.boot(small.arguments, total=small.mem_bytes + 1024)
    with pytest.raises(InputError, match="does not honour mem="):
        plan.booted(host.roots)


def run_recorder(monkeypatch: pytest.MonkeyPatch) -> list[RunRequest]:
    requests: list[RunRequest] = []

    def run(request: RunRequest, console: Console) -> tuple[Path, bool]:
        requests.append(request)
        return Path(), False

    monkeypatch.setattr(boot_run, "run_campaign", run)
    return requests


def test_resume_runs_the_cells_of_the_boot(
    host: Host, plan: BootPlan, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = run_recorder(monkeypatch)
    host.boot_profile(plan.profiles[0])
    assert resume_boot(results, host.seen, Console()) is False
    (request,) = requests
    assert (request.output, request.resume, request.campaign) == (results, True, None)


def test_resume_on_the_normal_boot_names_the_steps(
    host: Host, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = run_recorder(monkeypatch)
    with pytest.raises(InputError, match=r"this is the normal boot.*boot-steps\.txt"):
        resume_boot(results, host.seen, Console())
    assert not requests


def test_last_resume_is_on_the_normal_boot(
    host: Host, plan: BootPlan, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = run_recorder(monkeypatch)
    for profile in plan.profiles:
        measure(results, profile)
    resume_boot(results, host.seen, Console())
    assert len(requests) == 1
    assert status(results, host.seen)["done"] is True


def test_boot_that_leaves_too_little_is_corrected_before_a_cell_is_lost(
    host: Host, plan: BootPlan, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = run_recorder(monkeypatch)
    large = plan.profiles[0]
    wanted = large.capacity_bytes + HELD_BYTES
    host.boot(large.arguments, total=wanted - 200 * MIB, available=wanted - 300 * MIB)
    with pytest.raises(InputError, match="mem= is corrected in the plan"):
        resume_boot(results, host.seen, Console())
    assert not requests
    corrected = load_plan(results).profiles
    expected = replace(large, mem_bytes=large.mem_bytes + 300 * MIB, corrections=1)
    assert corrected == (expected, plan.profiles[1])
    assert corrected[0].arguments in (results / "boot-steps.txt").read_text()


def test_a_boot_that_is_never_right_is_given_up(
    host: Host, plan: BootPlan, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = run_recorder(monkeypatch)
    wanted = plan.profiles[0].capacity_bytes + HELD_BYTES
    for _ in range(MAX_CORRECTIONS):
        arguments = load_plan(results).profiles[0].arguments
        host.boot(arguments, total=wanted - 200 * MIB, available=wanted - 300 * MIB)
        with pytest.raises(InputError, match="mem= is corrected in the plan"):
            resume_boot(results, host.seen, Console())
    before = load_plan(results)
    host.boot(before.profiles[0].arguments, total=wanted - 200 * MIB, available=wanted - 300 * MIB)
    with pytest.raises(InputError, match=r"after 3 corrections: .* a wall or a balloon"):
        resume_boot(results, host.seen, Console())
    assert load_plan(results) == before
    assert not requests


# ---- steps --------------------------------------------------------------------------------------


def test_from_the_first_boot_to_the_normal_one(host: Host, plan: BootPlan, results: Path) -> None:
    large, small = plan.profiles
    first = plan_text(results, host.seen)
    assert first.startswith(f"Next: boot 1 of 2, {large.name} for a capacity of 2.15 GB (4 cells)")
    assert f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {large.arguments}"' in first
    assert f"cd '{plan.folder}'" in first
    assert f"sudo pagetier boot resume {results}" in first
    assert "sudo rm -f /etc/default/grub.d/99-pagetier.cfg" in first
    assert (results / "boot-steps.txt").read_text() == first

    host.boot_profile(large)
    assert plan_text(results, host.seen).startswith("This is the boot 1 of 2")
    measure(results, large)
    second = plan_text(results, host.seen)
    assert second.startswith(f"Next: boot 2 of 2, {small.name} for a capacity of 1.07 GB")
    assert small.arguments in second and large.arguments not in second

    host.boot_profile(small)
    measure(results, small)
    last = plan_text(results, host.seen)
    assert last.startswith("Every boot is measured: the last one is the normal one.")
    assert "sudo rm -f /etc/default/grub.d/99-pagetier.cfg" in last

    host.boot("")
    assert "nothing is left to do" in plan_text(results, host.seen)


def test_what_else_takes_memory_is_named(host: Host, results: Path) -> None:
    host.boot("crashkernel=512M hugepages=64")
    assert "Mind crashkernel=512M, hugepages=64 on the command line" in plan_text(
        results, host.seen
    )


def test_steps_after_a_run_only_on_the_normal_boot(
    host: Host, plan: BootPlan, results: Path
) -> None:
    assert (steps_of_next_boot(results, host.seen) or "").startswith("Next: boot 1 of 2")
    host.boot_profile(plan.profiles[0])
    assert steps_of_next_boot(results, host.seen) is None


def test_status(host: Host, plan: BootPlan, results: Path) -> None:
    large, small = plan.profiles
    measure(results, large)
    host.boot_profile(large)
    assert status(results, host.seen) == {
        "directory": str(results),
        "boot_loader": "GRUB with update-grub",
        "booted": large.name,
        "next": small.name,
        "done": False,
        "boots": [
            {
                "arguments": large.arguments,
                "capacity_bytes": 2 * GIB,
                "mem_bytes": large.mem_bytes,
                "cells": 4,
                "measured": 4,
            },
            {
                "arguments": small.arguments,
                "capacity_bytes": GIB,
                "mem_bytes": small.mem_bytes,
                "cells": 4,
                "measured": 0,
            },
        ],
    }
    host.boot("mem=5G")
    assert status(results, host.seen)["booted"] == "not of this plan"


def test_no_boot_file_is_touched(host: Host, results: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in host.root.rglob("*")}
    plan_text(results, host.seen)
    status(results, host.seen)
    assert {path: path.stat().st_mtime_ns for path in host.root.rglob("*")} == before
