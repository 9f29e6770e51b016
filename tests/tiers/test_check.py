# SPDX-License-Identifier: Apache-2.0
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pagetier.analysis.errors import InputError
from pagetier.native import content
from pagetier.tiers.check import BadExpert, check_pool
from pagetier.tiers.evict import resident_bytes
from pagetier.tiers.pool import UniformPool

MakePool = Callable[..., UniformPool]


def flip(pool: UniformPool, expert: int, offset: int) -> None:
    """Changes one bit of an expert on file."""
    name, start = pool.locate(expert)
    with open(pool.root / name, "r+b") as file:
        file.seek(start + offset)
        byte = file.read(1)[0]
        file.seek(start + offset)
        file.write(bytes([byte ^ 0x40]))


@pytest.mark.parametrize("layout", ["files", "flat"])
@pytest.mark.parametrize("expert_bytes", [1, 777, 4096, 4097, 2_000_003])
def test_names_the_bad_byte(make: MakePool, layout: str, expert_bytes: int) -> None:
    pool = make(layout, expert_bytes=expert_bytes)
    assert check_pool(pool) is None
    for expert, offset in [(14, expert_bytes - 1), (7, expert_bytes // 2), (0, 0)]:
        flip(pool, expert, offset)
        name, start = pool.locate(expert)
        assert check_pool(pool) == BadExpert(
            layer=expert // 5,
            expert=expert % 5,
            file=pool.root / name,
            offset=start + offset,
            what=f"byte {offset} of the expert is not what seed 11 gives",
        )


def test_names_the_lowest_of_several_every_time(make: MakePool) -> None:
    pool = make("files", layers=4, experts=50, expert_bytes=333)
    for expert in range(97, 200, 3):
        flip(pool, expert, 5)
    found = {check_pool(pool) for _ in range(30)}
    assert {(bad.layer, bad.expert) for bad in found if bad} == {(1, 47)}
    assert len(found) == 1


def test_the_lowest_is_found_when_a_higher_one_is_found_first(
    make: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make("files", layers=1, experts=40)
    flip(pool, 0, 1)
    flip(pool, 1, 1)
    first_verified = content.verify

    def slow_for_the_first(fd: int, start: int, length: int, seed: int, expert: int) -> int | None:
        while expert == 0 and verified == []:
            os.sched_yield()
        wrong = first_verified(fd, start, length, seed, expert)
        verified.append(expert)
        return wrong

    verified: list[int] = []
    monkeypatch.setattr(content, "verify", slow_for_the_first)
    bad = check_pool(pool)
    assert bad is not None
    assert bad.expert == 0
    assert verified[0] == 1


def test_content_of_another_seed_is_bad(make: MakePool) -> None:
    pool, other = make(seed=1, name="one"), make(seed=2, name="two")
    shutil.copyfile(other.root / other.files()[3], pool.root / pool.files()[3])
    bad = check_pool(pool)
    assert bad is not None
    assert (bad.layer, bad.expert) == (0, 3)


def test_experts_that_changed_places_are_bad(make: MakePool) -> None:
    pool = make()
    second, fourth = pool.root / pool.files()[2], pool.root / pool.files()[4]
    second.rename(pool.root / "swap")
    fourth.rename(second)
    (pool.root / "swap").rename(fourth)
    bad = check_pool(pool)
    assert bad is not None
    assert bad.file == second


def test_a_truncated_file(make: MakePool) -> None:
    pool = make()
    path = pool.root / pool.files()[6]
    os.truncate(path, 4000)
    assert check_pool(pool) == BadExpert(1, 1, path, 4000, "the file ends at byte 4000 of 4097")


def test_a_truncated_flat_file_is_blamed_on_the_first_expert_that_lost_bytes(
    make: MakePool,
) -> None:
    pool = make("flat")
    path = pool.root / "experts.bin"
    os.truncate(path, 6 * 4097 + 10)
    assert check_pool(pool) == BadExpert(
        1, 1, path, 6 * 4097 + 10, "the file ends at byte 24592 of 61455"
    )
    os.truncate(path, 6 * 4097)
    bad = check_pool(pool)
    assert bad is not None
    assert (bad.layer, bad.expert, bad.offset) == (1, 1, 6 * 4097)


@pytest.mark.parametrize(("layout", "expert", "size"), [("files", 6, 4097), ("flat", 14, 61455)])
def test_a_file_that_is_too_long(make: MakePool, layout: str, expert: int, size: int) -> None:
    pool = make(layout)
    path = pool.root / pool.locate(expert)[0]
    os.truncate(path, size + 3)
    assert check_pool(pool) == BadExpert(
        expert // 5, expert % 5, path, size, f"the file has {size + 3} bytes and not {size}"
    )


def test_a_missing_file(make: MakePool) -> None:
    pool = make()
    path = pool.root / pool.files()[9]
    path.unlink()
    assert check_pool(pool) == BadExpert(1, 4, path, None, "is missing; make the pool again")


def test_a_link_to_the_right_content_is_bad_all_the_same(make: MakePool, disk: Path) -> None:
    pool = make()
    path = pool.root / pool.files()[8]
    path.rename(disk / "outside")
    path.symlink_to(disk / "outside")
    bad = check_pool(pool)
    assert bad is not None
    assert (bad.layer, bad.expert) == (1, 3)
    assert "symbolic link" in bad.what


def test_a_device_error_is_the_expert_s_fault(
    make: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make()

    def failing(fd: int, start: int, length: int, seed: int, expert: int) -> None:
        if expert >= 4:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(content, "verify", failing)
    bad = check_pool(pool)
    assert bad == BadExpert(
        0, 4, pool.root / pool.files()[4], None, "cannot be read: Input/output error"
    )


def test_a_pool_that_may_not_be_read_is_no_bad_pool(
    make: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make()

    def refusing(*arguments: int) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(content, "verify", refusing)
    with pytest.raises(InputError, match="may not be read by this user; run as the owner"):
        check_pool(pool)


@pytest.mark.parametrize("layout", ["files", "flat"])
def test_leaves_the_cache_as_it_was(make: MakePool, layout: str) -> None:
    pool = make(layout, expert_bytes=500_001)
    before = len(os.listdir("/proc/self/fd"))
    assert check_pool(pool) is None
    resident = resident_bytes(pool)
    assert resident is not None
    assert resident < pool.total_bytes // 10
    assert len(os.listdir("/proc/self/fd")) == before


def test_reports_progress_up_to_the_whole(make: MakePool) -> None:
    pool = make()
    reports: list[tuple[int, int]] = []
    check_pool(pool, lambda *both: reports.append(both))
    assert reports[-1] == (pool.total_bytes, pool.total_bytes)
