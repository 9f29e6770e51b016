# SPDX-License-Identifier: Apache-2.0
"""Pools on the real kernel: another user's view, a disk that fills up, two devices in one pool."""

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pagetier.analysis.errors import InputError
from pagetier.tiers.check import check_pool
from pagetier.tiers.create import create_pool
from pagetier.tiers.evict import evict_pool, require_unmapped
from pagetier.tiers.info import pool_info
from pagetier.tiers.pool import Pool, storage_problems

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("live")]
PROC = Path("/proc")


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder on a disk that every user can enter (tmp_path is closed to others)."""
    folder = Path(tempfile.mkdtemp(prefix="pagetier-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_nobody(work: Callable[[], Any]) -> Any:
    """The JSON-able result of `work`, done by a child of this process as user nobody."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # The outcome leaves by the pipe alone: no clean-up of the parent's may run twice.
        try:
            user = pwd.getpwnam("nobody")
            os.setgroups([])
            os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
            os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
            os.write(writer, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    assert text, "the child failed"
    return json.loads(text)


@contextmanager
def mounted(*command: str, on: Path) -> Iterator[Path]:
    subprocess.run(["mount", *command, str(on)], check=True)
    try:
        yield on
    finally:
        subprocess.run(["umount", str(on)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path, tool: Callable[[str], str]) -> Iterator[Path]:
    """An ext4 of 24 MiB."""
    image, folder = tmp_path / "image", tmp_path / "disk"
    folder.mkdir()
    with open(image, "wb") as file:
        file.truncate(24 << 20)
    subprocess.run([tool("mkfs.ext4"), "-q", "-F", str(image)], check=True)
    with mounted("-o", "loop", str(image), on=folder):
        yield folder


def test_another_user_can_check_a_pool_but_proves_nothing(public: Path) -> None:
    pool = create_pool(public / "pool", 2, 3, 5000)
    for name in pool.files():
        (pool.root / name).read_bytes()
    eviction = as_nobody(lambda: asdict(evict_pool(pool, PROC)))
    assert eviction["resident_before_pages"] is None
    assert eviction["resident_after_pages"] is None
    assert not eviction["proven"]
    assert "run as the owner of the pool or as root" in eviction["reason"]
    assert as_nobody(lambda: pool_info(pool)["resident_bytes"]) is None
    assert as_nobody(lambda: check_pool(pool) is None)
    assert evict_pool(pool, PROC).proven


def test_the_owner_needs_no_privilege(public: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    (public / "own").mkdir()
    os.chown(public / "own", nobody.pw_uid, nobody.pw_gid)

    def work() -> dict[str, Any]:
        pool = create_pool(public / "own" / "pool", 2, 3, 5000)
        for name in pool.files():
            (pool.root / name).read_bytes()
        require_unmapped(pool, PROC)
        return asdict(evict_pool(pool, PROC))

    eviction = as_nobody(work)
    assert eviction["resident_before_pages"] > 0
    assert eviction["resident_after_pages"] == 0
    assert eviction["proven"]


def test_an_unreadable_pool_is_an_input_error(public: Path) -> None:
    pool = create_pool(public / "pool", 2, 3, 5000)
    os.chmod(pool.root / pool.files()[4], 0o600)

    def complaint() -> str:
        try:
            check_pool(pool)
        except InputError as error:
            return str(error)
        return "none"

    assert as_nobody(complaint).startswith(
        f"{pool.root / pool.files()[4]}: may not be read by this user"
    )


@pytest.mark.parametrize("layout", ["files", "flat"])
def test_a_full_disk_is_seen_before_the_first_byte(small_disk: Path, layout: str) -> None:
    before = sorted(small_disk.iterdir())
    with pytest.raises(InputError, match=r"needs 52\.4 MB and its file system has"):
        create_pool(small_disk / "pool", 1, 50, 1 << 20, layout)
    assert sorted(small_disk.iterdir()) == before
    assert check_pool(create_pool(small_disk / "pool", 1, 10, 1 << 20, layout)) is None


class EndlessDisk:
    f_frsize = 4096
    f_bavail = f_favail = f_files = 10**12


@pytest.mark.parametrize("layout", ["files", "flat"])
def test_a_disk_that_fills_up_meanwhile_leaves_nothing(
    small_disk: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(small_disk.iterdir())
    monkeypatch.setattr(os, "statvfs", lambda fd: EndlessDisk)
    with pytest.raises(InputError, match="No space left on device"):
        create_pool(small_disk / "pool", 1, 50, 1 << 20, layout)
    assert sorted(small_disk.iterdir()) == before


def test_two_devices_in_one_pool_are_a_problem(small_disk: Path, tmp_path: Path) -> None:
    pool = create_pool(tmp_path / "pool", 2, 3, 5000)
    layer = pool.root / "layer-001"
    shutil.copytree(layer, small_disk / "layer")
    with mounted("--bind", str(small_disk / "layer"), on=layer):
        assert_two_devices(pool, os.stat(small_disk).st_dev)
        assert check_pool(pool) is None
    assert storage_problems(pool) == []


def assert_two_devices(pool: Pool, other: int) -> None:
    (problem,) = storage_problems(pool)
    assert "its files lie on several devices" in problem
    assert f"{os.major(other)}:{os.minor(other)}" in problem
