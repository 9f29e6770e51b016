# SPDX-License-Identifier: Apache-2.0
"""The preflight: what cannot run is named with its reason, what will be locked is said first."""

from pathlib import Path

import pytest

from pagetier.analysis.errors import CapabilityError
from pagetier.bench.campaign import BalloonOptions, CellSpec, load_campaign, plan_cells
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
    return examine(plan_cells(campaign), campaign.pool, BalloonOptions(), Roots())


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
        examine(cells, campaign.pool, campaign.balloon, blind)
