# SPDX-License-Identifier: Apache-2.0
"""Boots for a capacity, on a fake /proc: accepted, or refused with the mem= to boot."""

from pathlib import Path

import pytest

from pagetier.capacity.boot import (
    Boot,
    BootProfile,
    parse_boot_profile,
    profile_options,
    profile_problem,
    read_boot_profile,
)
from pagetier.capacity.errors import CapacityError
from pagetier.capacity.meminfo import parse_meminfo
from pagetier.cgroups.roots import Roots

GIB = 1 << 30
MIB = 1 << 20


def roots(folder: Path, command_line: str, total: int, available: int) -> Roots:
    (folder / "cmdline").write_text(f"BOOT_IMAGE=/vmlinuz {command_line}\n")
    (folder / "meminfo").write_text(
        f"MemTotal: {total // 1024} kB\nMemFree: 1 kB\nMemAvailable: {available // 1024} kB\n"
    )
    return Roots(proc=folder)


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("quiet ro", None),
        ("memmap=4G amem=1G mem= mem=nopentium", None),
        ("mem=4G", BootProfile(4 * GIB, None)),
        ("mem=4194304K", BootProfile(4 * GIB, None)),
        ("mem=0x100000000", BootProfile(4 * GIB, None)),
        ("mem=5G mem=4G quiet", BootProfile(4 * GIB, None)),
        ("mem=4G pagetier.capacity=4000000000", BootProfile(4 * GIB, 4_000_000_000)),
        ("pagetier.capacity=7", None),
    ],
)
def test_profiles_are_read_from_the_command_line(text: str, profile: BootProfile | None) -> None:
    assert parse_boot_profile(text) == profile


def test_options_are_read_back() -> None:
    assert parse_boot_profile(" ".join(profile_options(3 * GIB, 2 * GIB))) == BootProfile(
        3 * GIB, 2 * GIB
    )


def test_a_boot_of_this_capacity_is_recorded(tmp_path: Path) -> None:
    host = roots(tmp_path, f"mem=4G pagetier.capacity={3 * GIB}", 3800 * MIB, 3 * GIB + 5 * MIB)
    with Boot(host).enforce(3 * GIB, None) as enforcement:
        enforced = enforcement.enforced
        assert (enforced.mechanism, enforced.capacity_bytes) == ("boot", 3 * GIB)
        assert (enforced.limit_bytes, enforced.locked_bytes) == (None, None)
        assert enforced.facts == {
            "mem_argument_bytes": 4 * GIB,
            "profile_capacity_bytes": 3 * GIB,
            "mem_total_bytes": 3800 * MIB,
            "mem_available_bytes": 3 * GIB + 5 * MIB,
        }
        assert enforcement.problems() == []
        roots(tmp_path, "mem=4G", 3900 * MIB, 3 * GIB)
        assert ["memory was plugged" in problem for problem in enforcement.problems()] == [True]


@pytest.mark.parametrize(
    ("command_line", "total", "available", "sentence"),
    [
        ("quiet", 4 * GIB, 3 * GIB, f"booted without mem=: .*pagetier.capacity={3 * GIB}"),
        ("mem=4G pagetier.capacity=7", 4 * GIB, 3 * GIB, "is the profile of 7 bytes"),
        ("mem=9G", 9 * GIB, 3 * GIB, "MemTotal is .* cannot leave"),
        ("mem=2G", 2 * GIB, GIB, "MemTotal is .* cannot leave"),
        # 1 GiB too much: mem= shrinks by just that.
        (f"mem=5G pagetier.capacity={3 * GIB}", 5 * GIB, 4 * GIB, f"mem={4 * MIB}K"),
    ],
)
def test_another_boot_is_refused_with_the_remedy(
    tmp_path: Path, command_line: str, total: int, available: int, sentence: str
) -> None:
    host = roots(tmp_path, command_line, total, available)
    with pytest.raises(CapacityError, match=sentence), Boot(host).enforce(3 * GIB, None):
        pass


def test_a_boot_needs_a_capacity(tmp_path: Path) -> None:
    host = roots(tmp_path, "mem=4G", 4 * GIB, 3 * GIB)
    assert read_boot_profile(host) == BootProfile(4 * GIB, None)
    with pytest.raises(CapacityError, match="needs the capacity"), Boot(host).enforce(None, None):
        pass


def test_a_kernel_without_available_cannot_tell(tmp_path: Path) -> None:
    host = roots(tmp_path, "mem=4G", 4 * GIB, 0)
    (tmp_path / "meminfo").write_text(f"MemTotal: {4 * GIB // 1024} kB\n")
    with pytest.raises(CapacityError, match="no MemAvailable"), Boot(host).enforce(3 * GIB, None):
        pass


def test_a_boot_by_hand_is_judged_by_its_memory() -> None:
    meminfo = parse_meminfo(f"MemTotal: {4 * GIB // 1024} kB\n", "x")
    assert profile_problem(BootProfile(4 * GIB, None), meminfo, 3 * GIB) is None
    assert profile_problem(BootProfile(4 * GIB, None), meminfo, GIB) is not None
