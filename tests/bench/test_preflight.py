# SPDX-License-Identifier: Apache-2.0
"""The preflight: what cannot run is named with its reason, what will be locked is said first."""

import errno
import os
from pathlib import Path

import pytest

from pagetier.analysis.errors import CapabilityError
from pagetier.bench.campaign_file import load_campaign
from pagetier.bench.cells import CellSpec, plan_cells
from pagetier.bench.preflight import Preflight, examine
from pagetier.capacity.meminfo import read_meminfo
from pagetier.cgroups.roots import Roots

GIB = 1 << 30


def balloons(tmp_path: Path, *capacities: int) -> Preflight:
    path = tmp_path / "c.yaml"
    path.write_text(
        "trace: {generate: {layers: 1, experts: 2, top_k: 1, iterations: 1}}\n"
        f"pool: {{path: {tmp_path}/p, create: {{layers: 1, experts: 2, expert_bytes: 5}}}}\n"
        f"mechanisms: [balloon]\ncapacities: {list(capacities)}\n"
    )
    campaign = load_campaign(path)
    return examine(plan_cells(campaign), campaign.pool, 2 * GIB, Roots())


def test_the_locked_amount_is_said_first(tmp_path: Path) -> None:
    available = read_meminfo(Roots()).available_bytes
    assert available is not None
    capacity = available - GIB // 2
    preflight = balloons(tmp_path, capacity)
    (lock,) = preflight.locks.values()
    assert abs(lock - GIB // 2) < GIB // 4
    assert any(line.startswith("note: a balloon will lock") for line in preflight.notes())


def test_a_balloon_below_its_floor_is_not_started(tmp_path: Path) -> None:
    available = read_meminfo(Roots()).available_bytes
    assert available is not None
    preflight = balloons(tmp_path, 1 * GIB, available - GIB // 2)
    assert [cell.capacity_bytes for cell in preflight.runnable] == [available - GIB // 2]
    (refused,) = preflight.not_run
    assert "would cross the floor of 2147483648 bytes" in refused["reason"]
    assert preflight.notes()[-1].startswith("not run: page-cache, balloon 1.07 GB")


def test_nothing_to_run_is_an_error_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match="no cell can run on this host: a balloon"):
        balloons(tmp_path, 1 * GIB)


def test_a_missing_requirement_names_what_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    (tmp_path / "cgroup").mkdir()
    blind = Roots(sys=tmp_path / "sys", cgroup=tmp_path / "cgroup")
    path = tmp_path / "c.yaml"
    path.write_text(
        "trace: {generate: {layers: 1, experts: 2, top_k: 1, iterations: 1}}\n"
        f"pool: {{path: {tmp_path}/p, create: {{layers: 1, experts: 2, expert_bytes: 5}}}}\n"
        "mechanisms: [none]\n"
    )
    campaign = load_campaign(path)
    cells: list[CellSpec] = plan_cells(campaign)
    with pytest.raises(CapabilityError, match="no cell can run on this host: device"):
        examine(cells, campaign.pool, campaign.balloon.floor, blind)


def booted(tmp_path: Path, words: str, *, lru_gen: str | None = None, more: str = "") -> Preflight:
    """A campaign of every mechanism on this host, as if it had been booted with `words`."""
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    proc.mkdir()
    for real in Path("/proc").iterdir():
        if real.name != "cmdline":
            (proc / real.name).symlink_to(real)
    (proc / "cmdline").write_text(f"root=/dev/vda {words}\n")
    sys.mkdir()
    for name in ("block", "dev", "devices", "class"):
        (sys / name).symlink_to(Path("/sys") / name)
    if lru_gen is not None:
        (sys / "kernel/mm/lru_gen").mkdir(parents=True)
        (sys / "kernel/mm/lru_gen/enabled").write_text(lru_gen)
    total = read_meminfo(Roots()).total_bytes
    path = tmp_path / "c.yaml"
    path.write_text(
        "trace: {generate: {layers: 1, experts: 2, top_k: 1, iterations: 1}}\n"
        f"pool: {{path: {tmp_path}/p, create: {{layers: 1, experts: 2, expert_bytes: 5}}}}\n"
        f"mechanisms: [none, boot]\ncapacities: [{total - GIB}, {total // 8}]\n{more}"
    )
    campaign = load_campaign(path)
    return examine(
        plan_cells(campaign), campaign.pool, campaign.balloon.floor, Roots(proc=proc, sys=sys)
    )


def names(cells: list[CellSpec]) -> list[tuple[str, int | None]]:
    return sorted((cell.mechanism, cell.capacity_bytes or 0) for cell in cells)


def test_boot_cells_wait_on_the_normal_boot(tmp_path: Path) -> None:
    preflight = booted(tmp_path, "quiet")
    assert names(preflight.runnable) == [("none", 0)]
    assert [cell.mechanism for cell in preflight.waiting] == ["boot", "boot"]
    assert all(item["reason"].startswith("waits for its boot") for item in preflight.not_run)
    assert "note: 2 cells are for another boot" in preflight.notes()
    assert not [line for line in preflight.notes() if line.startswith("not run")]


def test_a_boot_is_for_the_cells_of_its_capacity_alone(tmp_path: Path) -> None:
    capacity = read_meminfo(Roots()).total_bytes - GIB
    preflight = booted(tmp_path, f"mem=999G pagetier.capacity={capacity}")
    assert names(preflight.runnable) == [("boot", capacity)]
    assert sorted(cell.mechanism for cell in preflight.waiting) == ["boot", "none"]


def test_what_programs_use_beside_the_capacity_is_no_hindrance(tmp_path: Path) -> None:
    capacity = read_meminfo(Roots()).total_bytes // 8
    preflight = booted(tmp_path, f"mem=999G pagetier.capacity={capacity}")
    assert names(preflight.runnable) == [("boot", capacity)]


def test_a_boot_for_no_cell_runs_none(tmp_path: Path) -> None:
    preflight = booted(tmp_path, "mem=999G pagetier.capacity=4096")
    assert preflight.runnable == []
    assert len(preflight.waiting) == 3


SWITCHED = "mglru: [keep, on, off]\n"


@pytest.mark.parametrize("lru_gen", [None, "0x0000\n", "0x0007\n", "0x0005\n"])
def test_mglru_is_switched_only_where_it_is(tmp_path: Path, lru_gen: str | None) -> None:
    preflight = booted(tmp_path, "", lru_gen=lru_gen, more=SWITCHED)
    states = {cell.mglru for cell in preflight.runnable}
    assert states == ({"keep"} if lru_gen is None else {"keep", "on", "off"})
    refused = [item for item in preflight.not_run if item["reason"].startswith("mglru: not in")]
    assert bool(refused) is (lru_gen is None)


def test_locking_more_than_there_is_is_not_tried(tmp_path: Path) -> None:
    available = read_meminfo(Roots()).available_bytes
    assert available is not None
    path = tmp_path / "c.yaml"
    path.write_text(
        "trace: {generate: {layers: 1, experts: 2, top_k: 1, iterations: 1}}\n"
        f"pool: {{path: {tmp_path}/p, create: {{layers: 1, experts: 2, expert_bytes: 5}}}}\n"
        f"mechanisms: [none]\nspine: {2 * available}\n"
    )
    campaign = load_campaign(path)
    with pytest.raises(CapabilityError, match=r"spine and arena would lock .* that are available"):
        examine(plan_cells(campaign), campaign.pool, campaign.balloon.floor, Roots())


def test_a_tier_that_the_kernel_lacks_is_left_out_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(os, "preadv", refused)
    path = tmp_path / "c.yaml"
    path.write_text(
        "trace: {generate: {layers: 1, experts: 2, top_k: 1, iterations: 1}}\n"
        f"pool: {{path: {tmp_path}/p, create: {{layers: 1, experts: 2, expert_bytes: 5}}}}\n"
        "mechanisms: [none]\ntiers: [page-cache, dontcache, direct]\n"
        "prefetch: {plan: [none, oracle]}\n"
    )
    campaign = load_campaign(path)
    found = examine(plan_cells(campaign), campaign.pool, campaign.balloon.floor, Roots())
    assert sorted((cell.tier, cell.prefetch is None) for cell in found.runnable) == [
        ("direct", True),
        ("page-cache", False),
        ("page-cache", True),
    ]
    reasons = {item["cell"].split(",")[0]: item["reason"] for item in found.not_run}
    assert "no RWF_DONTCACHE here" in reasons["dontcache"] or "twice" in reasons["dontcache"]
    assert "each would be read twice" in reasons["direct"]
    assert len(found.not_run) == 3
