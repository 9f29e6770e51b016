# SPDX-License-Identifier: Apache-2.0
"""Two observations as figures: each from its place, None for what is absent, nothing clamped."""

from dataclasses import replace
from typing import Any

import pytest

from pagetier.analysis.check_figures import CgroupSight, Computed, Observation, figures_between

BEFORE = Observation(
    at_ns=10**9,
    page_bytes=4096,
    memory={"MemTotal": 1000, "Unevictable": 100, "MemAvailable": 50},
    vmstat={
        "pgscan_kswapd": 1,
        "pgsteal_kswapd": 2,
        "pgscan_direct": 3,
        "pgsteal_direct": 4,
        "workingset_refault_file": 5,
        "pswpin": 6,
    },
    pressures={
        "memory": {"some_total_us": 7, "full_total_us": 8},
        "io": {"some_total_us": 9, "full_total_us": None},
    },
    mglru_enabled=True,
    device_bytes=100,
    reader_bytes=200,
    cgroup=CgroupSight(
        "/a",
        {
            "pgscan": 10,
            "pgsteal": 11,
            "pgscan_direct": 12,
            "pgsteal_direct": 13,
            "workingset_refault_file": 14,
        },
        None,
        None,
    ),
    computed=Computed(1000, 500, 5, 64),
)
AFTER = Observation(
    at_ns=3 * 10**9,
    page_bytes=4096,
    memory={
        "MemTotal": 1000,
        "Unevictable": 800,
        "MemAvailable": 40,
        "SwapTotal": 30,
        "SwapFree": 10,
    },
    vmstat={
        "pgscan_kswapd": 5001,
        "pgsteal_kswapd": 2502,
        "pgscan_direct": 9003,
        "pgsteal_direct": 3004,
        "workingset_refault_file": 105,
        "pswpin": 7,
    },
    pressures={
        "memory": {"some_total_us": 1_000_007, "full_total_us": 500_008},
        "io": {"some_total_us": 200_009, "full_total_us": None},
    },
    mglru_enabled=True,
    device_bytes=150,
    reader_bytes=230,
    cgroup=CgroupSight(
        "/a",
        {
            "pgscan": 6010,
            "pgsteal": 2011,
            "pgscan_direct": 6012,
            "pgsteal_direct": 2013,
            "workingset_refault_file": 44,
        },
        123,
        None,
    ),
    computed=Computed(1700, 600, 9, 128),
)


def test_every_figure() -> None:
    found = figures_between(BEFORE, AFTER, includes_limits=False)
    assert found.seconds == 2.0
    assert found.backwards == ()
    assert found.unevictable_share == 0.8
    assert found.available_bytes == 40
    assert (found.swap_used_bytes, found.swap_in_bytes) == (20, 4096)
    assert found.kswapd is not None and found.kswapd.ratio == 2.0
    assert found.direct is not None and found.direct.ratio == 3.0
    assert found.host is not None
    assert (found.host.scanned_pages, found.host.stolen_pages) == (14_000, 5500)
    assert found.limited is not None and found.limited.ratio == 3.0
    assert found.limited.where == "/a"
    assert found.by_source["khugepaged"] is None
    by_limit = found.limited_by_source["direct"]
    assert by_limit is not None
    assert (by_limit.scanned_pages, by_limit.stolen_pages) == (6000, 2000)
    assert found.limited_by_source["kswapd"] is None
    assert found.refault_bytes == 30 * 4096
    assert (found.device_bytes, found.reader_bytes, found.read_bytes) == (50, 30, 30)
    assert (found.miss_bytes, found.first_touch_bytes, found.capacity_bytes) == (700, 100, 128)
    assert found.stalled == {
        "memory.some": 0.5,
        "memory.full": 0.25,
        "io.some": 0.1,
        "io.full": None,
    }
    assert (found.cgroup_name, found.cgroup_limit_bytes) == ("/a", 123)
    assert found.per_second(30) == 15.0


def test_on_a_kernel_that_counts_limit_reclaim_too_the_readers_is_taken_away() -> None:
    found = figures_between(BEFORE, AFTER, includes_limits=True)
    assert found.direct is not None
    assert (found.direct.scanned_pages, found.direct.stolen_pages) == (3000, 1000)
    assert found.direct.where == "host but for /a"
    assert found.direct.includes_limits is False
    # kswapd never reclaims for a limit.
    assert found.kswapd is not None and found.kswapd.scanned_pages == 5000
    assert found.kswapd.includes_limits is False


@pytest.mark.parametrize("includes", [None, True])
def test_without_the_readers_counters_the_label_stays(includes: bool | None) -> None:
    alone = figures_between(replace(BEFORE, cgroup=None), replace(AFTER, cgroup=None), includes)
    assert alone.direct is not None
    assert alone.direct.includes_limits is includes
    assert alone.direct.scanned_pages == 9000
    assert alone.limited is None
    assert alone.refault_bytes == 100 * 4096


def test_what_cannot_be_seen_is_none() -> None:
    blind = Observation(2 * 10**9, 4096, None, None, {"memory": None}, None)
    found = figures_between(replace(blind, at_ns=1), blind)
    for name in (
        "unevictable_share",
        "swap_used_bytes",
        "kswapd",
        "direct",
        "host",
        "limited",
        "refault_bytes",
        "device_bytes",
        "reader_bytes",
        "read_bytes",
        "miss_bytes",
        "amplification",
        "capacity_bytes",
    ):
        assert getattr(found, name) is None, name
    assert set(found.stalled.values()) == {None}
    assert found.per_second(None) is None


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"device_bytes": 99}, "device_bytes"),
        ({"reader_bytes": 199}, "reader_bytes"),
        ({"at_ns": 10**9}, "the clock"),
    ],
)
def test_what_fell_is_named(change: dict[str, Any], name: str) -> None:
    assert figures_between(BEFORE, replace(AFTER, **change)).backwards == (name,)


@pytest.mark.parametrize("name", ["pgscan_kswapd", "workingset_refault_file", "pswpin"])
def test_a_counter_of_vmstat_that_fell_is_named(name: str) -> None:
    assert AFTER.vmstat is not None and BEFORE.vmstat is not None
    after = replace(AFTER, vmstat={**AFTER.vmstat, name: BEFORE.vmstat[name] - 1})
    assert figures_between(BEFORE, after).backwards == (name,)
