# SPDX-License-Identifier: Apache-2.0
"""An engine's campaign: what its file may say, its cells and their order, what is left out."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from pagetier.analysis.errors import InputError
from pagetier.bench.engine.campaign import (
    EngineCampaign,
    is_engine_campaign,
    load_engine_campaign,
)
from pagetier.bench.engine.cell import yardstick
from pagetier.bench.engine.cells import EngineCell, ModelBytes, arm_problem, plan_engine_cells
from pagetier.bench.engine.prompts import Prompt
from pagetier.bench.engine.run import run_engine_campaign
from pagetier.bench.inputs import RunRequest
from pagetier.tiers.kinds import TIERS

MODEL = ModelBytes(experts=1_600_000_000, spine=20_000_000)
PROMPTS = [Prompt(0, "prose", "a"), Prompt(1, "code", (1, 2))]
ENGINE: dict[str, Any] = {"model": "m.gguf", "prompts": "p.jsonl", "tokens": 16}


def load(folder: Path, **keys: Any) -> EngineCampaign:
    path = folder / "c.yaml"
    path.write_text(yaml.safe_dump({"engine": ENGINE, "capacities": ["400 MB"], **keys}))
    return load_engine_campaign(path)


def error_of(folder: Path, **keys: Any) -> str:
    with pytest.raises(InputError) as caught:
        load(folder, **keys)
    return str(caught.value).removeprefix(f"{folder}/")


def cells(folder: Path, **keys: Any) -> list[EngineCell]:
    return plan_engine_cells(load(folder, **keys), PROMPTS, MODEL, 128)


def test_defaults(tmp_path: Path) -> None:
    campaign = load(tmp_path)
    assert campaign.arms == ["mmap", "no-admission", "replay"]
    assert (campaign.mechanisms, campaign.pairs, campaign.headroom) == (["wall"], 3, "auto")
    engine = campaign.engine
    assert (engine.name, engine.temperature, engine.threads, engine.backend) == (
        "llama.cpp",
        None,
        1,
        "CPU",
    )


def test_a_campaign_reads_itself_back(tmp_path: Path) -> None:
    """What a results directory keeps is what --resume runs."""
    campaign = load(tmp_path, device="vda", headroom="64 MiB")
    path = tmp_path / "again.yaml"
    path.write_text(yaml.safe_dump(campaign.model_dump(), sort_keys=False))
    again = load_engine_campaign(path)
    assert (again, again.sha256) == (campaign, campaign.sha256)
    assert load_engine_campaign(path, device=("vdb",)).device == ["vdb"]


def test_mistakes_name_line_and_field(tmp_path: Path) -> None:
    assert error_of(tmp_path, arm=["mmap"]) == "c.yaml:1: unknown key 'arm'; did you mean 'arms'?"
    assert "c.yaml:2: arms.0: " in error_of(tmp_path, arms=["map"])
    assert "'capacities' is needed by every mechanism" in error_of(tmp_path, capacities=[])
    assert "an arm stands twice in 'arms'" in error_of(tmp_path, arms=["mmap", "mmap"])
    assert "name an engine's" in error_of(tmp_path, arms=["replay", "mmap"])
    assert "engine.temperature: " in error_of(tmp_path, engine={**ENGINE, "temperature": 0.0})
    assert "did you mean 'tokens'" in error_of(tmp_path, engine={**ENGINE, "token": 3})
    assert "key 'engine.model' is missing" in error_of(
        tmp_path, engine={"prompts": "p", "tokens": 1}
    )


def test_which_files_name_an_engine(tmp_path: Path) -> None:
    load(tmp_path)
    assert is_engine_campaign(tmp_path / "c.yaml")
    for text in ("trace: t\npool: p\n", "- engine\n", "engine: [\n", ""):
        (tmp_path / "other.yaml").write_text(text)
        assert not is_engine_campaign(tmp_path / "other.yaml")
    assert not is_engine_campaign(tmp_path / "none.yaml")


def test_options_of_replays_are_refused(tmp_path: Path) -> None:
    load(tmp_path)
    request = RunRequest(tmp_path / "c.yaml", None, "trace.jsonl", None, False)
    with pytest.raises(InputError, match="--trace is for replays"):
        run_engine_campaign(request, tmp_path / "c.yaml", Console(stderr=True))


# ---- cells --------------------------------------------------------------------------------------


def test_every_round_has_every_prompt_limit_and_arm_once(tmp_path: Path) -> None:
    found = cells(tmp_path, mechanisms=["wall", "none"], capacities=["400 MB", "2 GB"])
    assert len({cell.id for cell in found}) == len(found) == 3 * 2 * (2 + 1) * 3
    rounds = [cell.base.repetition for cell in found]
    assert rounds == sorted(rounds)
    whole = Counter((cell.arm, cell.prompt, cell.base.capacity_bytes) for cell in found)
    assert set(whole.values()) == {3}


def test_the_first_arm_is_first_then_last_then_anywhere(tmp_path: Path) -> None:
    arms = ["mmap", "no-admission", "replay"]
    found = cells(tmp_path, pairs=12)
    groups = [found[at : at + 3] for at in range(0, len(found), 3)]
    for group in groups:
        assert len({(cell.prompt, cell.base.repetition) for cell in group}) == 1
    orders: dict[int, list[list[str]]] = {number: [] for number in range(1, 13)}
    for group in groups:
        orders[group[0].base.repetition].append([cell.arm for cell in group])
    assert orders[1] == [arms, arms]
    assert orders[2] == [arms[::-1], arms[::-1]]
    later = [tuple(order) for number in range(3, 13) for order in orders[number]]
    assert len(set(later)) > 3 and {order[0] for order in later} == set(arms)


def test_the_order_is_seeded(tmp_path: Path) -> None:
    first = [cell.id for cell in cells(tmp_path, pairs=9)]
    assert first == [cell.id for cell in cells(tmp_path, pairs=9)]
    assert first != [cell.id for cell in cells(tmp_path, pairs=9, seed=1)]


def test_a_replay_reads_as_the_engine_does(tmp_path: Path) -> None:
    """One thread, the spine locked, and the window that a sequential file has."""
    by_arm = {cell.arm: cell for cell in cells(tmp_path, engine={**ENGINE, "threads": 2})}
    engine, replay = by_arm["mmap"].base, by_arm["replay"].base
    assert (engine.threads, engine.spine_bytes, engine.read_ahead_kb) == (2, 0, None)
    assert (replay.threads, replay.spine_bytes, replay.read_ahead_kb) == (1, MODEL.spine, 256)
    assert replay.read == engine.read == "mmap"
    given = {cell.arm: cell for cell in cells(tmp_path, read_ahead_kb=4096)}
    assert given["mmap"].base.read_ahead_kb == 4096
    assert given["replay"].base.read_ahead_kb == 8192


def test_no_window_is_twice_none(tmp_path: Path) -> None:
    found = plan_engine_cells(load(tmp_path), PROMPTS, MODEL, None)
    assert {cell.base.read_ahead_kb for cell in found} == {None}


def test_a_cell_says_what_it_is(tmp_path: Path) -> None:
    cell = cells(tmp_path)[0]
    cell = replace(cell, arm="no-admission", prompt=1, domain="code")
    assert cell.describe() == "no-admission, wall 400 MB, prompt 1 (code), round 1"
    stored = cell.stored()
    assert (stored["tier"], stored["arm"], stored["pool"]) == (
        "llama.cpp no-admission",
        "no-admission",
        "m.gguf",
    )
    assert stored["engine"]["tokens"] == 16 and stored["engine"]["backend"] == "CPU"


def test_the_yardstick_without_admission_misses_every_read(tmp_path: Path) -> None:
    by_arm = {cell.arm: cell for cell in cells(tmp_path)}
    plain, dropped = (yardstick(by_arm[arm], MODEL) for arm in ("mmap", "no-admission"))
    assert TIERS[plain.tier].admits and not TIERS[dropped.tier].admits
    assert plain.spine_bytes == dropped.spine_bytes == MODEL.spine


# ---- what does not fit --------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["mlock", "no-mmap"])
def test_an_arm_that_holds_its_weights_needs_room_for_them(tmp_path: Path, arm: str) -> None:
    (cell, *_) = cells(tmp_path, arms=["mmap", arm], capacities=[MODEL.weights])
    cell = replace(cell, arm=arm)
    problem = arm_problem(cell, MODEL, 10**12)
    assert problem is not None and problem.startswith(f"{arm} needs 1.66 GB for weights")
    assert "it could only end in an OOM kill" in problem
    ample = replace(cell, base=replace(cell.base, capacity_bytes=1_700_000_000))
    assert arm_problem(ample, MODEL, 10**12) is None
    assert "1.65 GB are available" in str(arm_problem(ample, MODEL, 1_650_000_000))
    unlimited = replace(cell, base=replace(cell.base, mechanism="none", capacity_bytes=None))
    assert arm_problem(unlimited, MODEL, 10**12) is None
    assert arm_problem(unlimited, MODEL, None) is None


@pytest.mark.parametrize("arm", ["mmap", "no-admission", "replay"])
def test_other_arms_run_under_any_limit(tmp_path: Path, arm: str) -> None:
    (cell, *_) = cells(tmp_path, arms=["mmap"], capacities=["1 MB"])
    assert arm_problem(replace(cell, arm=arm), MODEL, 0) is None
