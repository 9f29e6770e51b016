# SPDX-License-Identifier: Apache-2.0
"""Disks that a user names: from the command line into the campaign, and from there to a guest."""

import json
from pathlib import Path
from typing import Any

import pytest

from pagetier.bench.inputs import RunRequest, load_inputs
from pagetier.bench.lab.campaign import campaign_for_guest
from tests.bench.test_cli import run

TRACE = {"layers": 2, "experts": 4, "top_k": 2, "iterations": 2}
POOL = {"layers": 2, "experts": 4, "expert_bytes": 1000}


def campaign(folder: Path, **extra: Any) -> Path:
    path = folder / "c.yaml"
    pool = {"path": str(folder / "pool"), "create": POOL}
    document = {"trace": {"generate": TRACE}, "pool": pool, "mechanisms": ["none"], **extra}
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("key", "option", "kept"),
    [
        ({}, (), []),
        ({"device": "sda"}, (), ["sda"]),
        ({"device": ["sda", "sdb"]}, (), ["sda", "sdb"]),
        ({"device": "sda"}, ("nvme0n1", "259:1"), ["nvme0n1", "259:1"]),
    ],
)
def test_what_is_named_is_kept_with_the_campaign(
    tmp_path: Path, key: dict[str, Any], option: tuple[str, ...], kept: list[str]
) -> None:
    request = RunRequest(campaign(tmp_path, **key), None, None, None, False, device=option)
    inputs = load_inputs(request)
    assert inputs.campaign.device == kept
    # What is written beside the results is what --resume reads.
    assert inputs.campaign.model_dump()["device"] == kept
    assert campaign_for_guest(inputs.campaign).device == []


@pytest.mark.parametrize(("key", "option"), [({"audit": True}, False), ({}, True)])
def test_an_audit_by_key_or_option(tmp_path: Path, key: dict[str, Any], option: bool) -> None:
    request = RunRequest(campaign(tmp_path, **key), None, None, None, False, audit=option)
    assert load_inputs(request).campaign.audit is True


def test_no_audit_by_default(tmp_path: Path) -> None:
    request = RunRequest(campaign(tmp_path), None, None, None, False)
    assert load_inputs(request).campaign.audit is False


def test_a_disk_that_is_not_there_is_told_in_one_sentence(tmp_path: Path) -> None:
    path = campaign(tmp_path)
    done = run("run", str(path), "--device", "no-such-disk", cwd=tmp_path)
    assert done.returncode == 2
    assert "--device no-such-disk: this host has no such block device" in done.stderr
    assert not (tmp_path / "pool").exists()


def test_doctor_wants_a_pool_for_the_disk(tmp_path: Path) -> None:
    done = run("doctor", "--device", "sda", cwd=tmp_path)
    assert done.returncode == 2
    assert "--device names the disk of a pool" in done.stderr
