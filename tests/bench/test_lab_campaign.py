# SPDX-License-Identifier: Apache-2.0
"""A campaign on its way into a guest: paths it can see, pools it can make, boots in their order."""

import json
from pathlib import Path

import pytest
import yaml

from pagetier.analysis.errors import InputError
from pagetier.bench.campaign import Campaign
from pagetier.bench.campaign_file import load_campaign
from pagetier.bench.lab.campaign import boots, campaign_for_guest, pool_bytes, to_yaml
from pagetier.tiers.create import create_pool

MADE = {"layers": 2, "experts": 3, "expert_bytes": 5000}
GENERATED = {"generate": {"layers": 2, "experts": 3, "top_k": 1, "iterations": 4}}


def campaign(folder: Path, **keys: object) -> Campaign:
    path = folder / "c.yaml"
    pool = {"path": str(folder / "some" / "pool"), "create": MADE}
    document = {"trace": GENERATED, "pool": pool, "capacities": [20000], **keys}
    path.write_text(json.dumps(document))
    return load_campaign(path)


def test_a_pool_is_made_on_the_disk_of_the_guest(tmp_path: Path) -> None:
    found = campaign_for_guest(campaign(tmp_path))
    (pool,) = found.pool
    assert pool.path == "pools/pool"
    assert pool.create is not None
    assert (pool.create.layers, pool.create.experts, pool.create.expert_bytes) == (2, 3, 5000)
    assert pool_bytes(found) == 30000


def test_a_pool_of_the_host_is_made_again_from_its_geometry(tmp_path: Path) -> None:
    create_pool(tmp_path / "mine", layers=2, experts=3, expert_bytes=777, layout="flat", seed=9)
    (pool,) = campaign_for_guest(campaign(tmp_path, pool=str(tmp_path / "mine"))).pool
    assert pool.create is not None
    assert pool.create.model_dump() == {
        "layers": 2,
        "experts": 3,
        "expert_bytes": 777,
        "layout": "flat",
        "seed": 9,
    }


def test_two_pools_of_one_name_are_refused(tmp_path: Path) -> None:
    pools = [{"path": str(tmp_path / side / "p"), "create": MADE} for side in ("a", "b")]
    with pytest.raises(InputError, match="two pools of the campaign are called p"):
        campaign_for_guest(campaign(tmp_path, pool=pools))


def test_tables_and_predictions_are_named_by_their_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = {
        "arena": {"table": "t.csv"},
        "variations": [{"prefetch": {"plan": "recorded", "trace": "p.jsonl"}}, {"threads": 2}],
    }
    found = campaign_for_guest(campaign(tmp_path, **keys))
    assert found.arena.table == str(tmp_path / "t.csv")
    hinted, plain = found.variations
    assert hinted.prefetch is not None and hinted.prefetch.trace == str(tmp_path / "p.jsonl")
    assert (plain.prefetch, plain.arena, plain.threads) == (None, None, 2)
    assert campaign_for_guest(campaign(tmp_path)).arena.table == "oracle"
    with pytest.raises(InputError, match="a guest has a /proc of its own"):
        campaign_for_guest(campaign(tmp_path, arena={"table": "/proc/x"}))


def test_a_trace_is_named_by_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trace = {"path": "t.jsonl", "steps": 3}
    found = campaign_for_guest(campaign(tmp_path, trace=trace))
    assert (found.trace.path, found.trace.steps) == (str(tmp_path / "t.jsonl"), 3)


@pytest.mark.parametrize("path", ["/run/user/t.jsonl", "/var/tmp/t.jsonl", "/proc/self/x"])
def test_a_trace_that_a_guest_cannot_see_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(InputError, match=r"a guest has a .* of its own; copy the file"):
        campaign_for_guest(campaign(tmp_path, trace=path))


def test_cells_are_grouped_by_their_boot(tmp_path: Path) -> None:
    found = boots(
        campaign(
            tmp_path,
            mechanisms=["boot", "wall"],
            capacities=[20000, 30000],
            mglru=["on", "off"],
            repetitions=2,
        )
    )
    assert next(iter(found)) is None, "the boot without mem= comes first"
    assert set(found) == {None, 20000, 30000}
    assert {cell.mechanism for cell in found[None]} == {"wall"}
    for capacity in (20000, 30000):
        assert {(c.mechanism, c.capacity_bytes) for c in found[capacity]} == {("boot", capacity)}
        assert len(found[capacity]) == 4


def test_what_a_guest_reads_is_the_same_campaign(tmp_path: Path) -> None:
    found = campaign_for_guest(campaign(tmp_path, mglru=["on", "off"]))
    assert Campaign.model_validate(yaml.safe_load(to_yaml(found))) == found
