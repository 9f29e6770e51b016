# SPDX-License-Identifier: Apache-2.0
import json
import os
from pathlib import Path

import pytest

from pagetier.tiers.filesystem import opened_directory
from pagetier.tiers.staging import MARKER_NAME, publish, remove_abandoned, staged

TOKEN = "0123456789abcdef"
NAME = f".pool.pagetier-staging-{TOKEN}"
MARKER = {"format": "pagetier-staging", "target": "pool", "token": TOKEN, "pid": 1}


def abandoned(folder: Path, marker: object = MARKER, name: str = NAME) -> Path:
    staging = folder / name
    staging.mkdir()
    (staging / MARKER_NAME).write_text(json.dumps(marker))
    (staging / "experts.bin").write_text("half")
    return staging


def clean(folder: Path) -> list[str]:
    with opened_directory(folder) as parent_fd:
        return remove_abandoned(parent_fd, "pool")


def test_removes_what_a_dead_maker_left(disk: Path) -> None:
    abandoned(disk)
    assert clean(disk) == [NAME]
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize(
    "marker",
    [
        MARKER | {"token": "fedcba9876543210"},
        MARKER | {"target": "other"},
        MARKER | {"format": "other"},
        {},
        [],
        None,
    ],
)
def test_keeps_what_has_another_marker(disk: Path, marker: object) -> None:
    staging = abandoned(disk, marker)
    assert clean(disk) == []
    assert (staging / "experts.bin").read_text() == "half"


@pytest.mark.parametrize("text", [b"", b"{", b"\xff"])
def test_keeps_what_has_a_torn_marker(disk: Path, text: bytes) -> None:
    staging = abandoned(disk)
    (staging / MARKER_NAME).write_bytes(text)
    assert clean(disk) == []
    assert staging.is_dir()


def test_keeps_what_has_no_marker_or_another_name(disk: Path) -> None:
    bare = disk / NAME
    bare.mkdir()
    similar = abandoned(disk, name=f".pool2.pagetier-staging-{TOKEN}")
    assert clean(disk) == []
    assert bare.is_dir()
    assert similar.is_dir()


def test_keeps_a_folder_of_another_user(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staging = abandoned(disk)
    owner = staging.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert clean(disk) == []
    assert staging.is_dir()


def test_never_follows_a_link_out_of_a_staging(disk: Path) -> None:
    victim = disk / "victim"
    victim.mkdir()
    (victim / "precious").write_text("kept")
    staging = abandoned(disk)
    (staging / "layer-000").symlink_to(victim)
    (staging / "layer-001").symlink_to(victim / "precious")
    assert clean(disk) == [NAME]
    assert (victim / "precious").read_text() == "kept"
    assert list(disk.iterdir()) == [victim]


def test_a_link_with_the_name_of_a_staging_is_left_alone(disk: Path) -> None:
    victim = abandoned(disk, name="victim")
    (disk / NAME).symlink_to(victim)
    assert clean(disk) == []
    assert (victim / "experts.bin").read_text() == "half"


def test_a_marker_that_is_a_link_or_a_pipe_counts_for_nothing(disk: Path) -> None:
    staging = abandoned(disk)
    (staging / MARKER_NAME).rename(disk / "marker")
    (staging / MARKER_NAME).symlink_to(disk / "marker")
    assert clean(disk) == []
    (staging / MARKER_NAME).unlink()
    os.mkfifo(staging / MARKER_NAME)
    assert clean(disk) == []
    assert staging.is_dir()


def test_a_staging_in_use_is_not_abandoned(disk: Path) -> None:
    with opened_directory(disk) as parent_fd, staged(parent_fd, "pool") as staging:
        assert remove_abandoned(parent_fd, "pool") == []
        assert (disk / staging.name / MARKER_NAME).exists()
    assert list(disk.iterdir()) == []


def test_another_folder_under_the_name_of_our_staging_is_left_alone(disk: Path) -> None:
    with opened_directory(disk) as parent_fd, staged(parent_fd, "pool") as staging:
        own = disk / staging.name
        own.rename(disk / "moved")
        own.mkdir()
        (own / "precious").write_text("kept")
    assert (own / "precious").read_text() == "kept"


def test_published_under_its_name_and_without_marker(disk: Path) -> None:
    with opened_directory(disk) as parent_fd, staged(parent_fd, "pool") as staging:
        (disk / staging.name / "experts.bin").write_text("whole")
        publish(staging)
    assert [path.name for path in disk.rglob("*")] == ["pool", "experts.bin"]
