# SPDX-License-Identifier: Apache-2.0
"""vmstat by name: present names, older names, counters against gauges."""

from pathlib import Path

import pytest

from pagetier.bench.kernel.vmstat import is_gauge, parse_vmstat, read_vmstat, recorded
from pagetier.cgroups.errors import ParseError

PRESENT = """nr_file_pages 1
workingset_nodes 2
workingset_refault_anon 3
workingset_refault_file 4
pgpgin 5
pgsteal_kswapd 6
pgscan_kswapd 7
pgscan_direct 8
pgscan_direct_throttle 9
pgscan_file 10
allocstall_dma32 100
allocstall_normal 1000
oom_kill 11
htlb_buddy_alloc_success 12
"""

# A kernel before 4.8: reclaim by zone, no _anon/_file.
OLD = """pgscan_kswapd_dma 1
pgscan_kswapd_dma32 20
pgscan_kswapd_normal 300
pgscan_kswapd_movable 4000
pgscan_direct_normal 5
pgscan_direct_throttle 60
pgsteal_kswapd_normal 7
pgsteal_direct_high 8
workingset_refault 9
workingset_activate 10
allocstall 11
"""


def test_present_names_are_taken_as_they_are() -> None:
    values = parse_vmstat(PRESENT)
    assert values["workingset_refault_file"] == 4
    assert values["workingset_refault_anon"] == 3
    assert values["pgscan_kswapd"] == 7
    assert values["pgscan_direct"] == 8
    assert values["allocstall"] == 1100
    assert "pgsteal_direct" not in values
    assert "workingset_activate_file" not in values


def test_older_names_are_brought_to_the_present_ones() -> None:
    values = parse_vmstat(OLD)
    assert values["pgscan_kswapd"] == 4321
    assert values["pgscan_direct"] == 5
    assert values["pgsteal_kswapd"] == 7
    assert values["pgsteal_direct"] == 8
    assert values["workingset_refault_file"] == 9
    assert values["workingset_activate_file"] == 10
    assert values["allocstall"] == 11
    assert "workingset_refault_anon" not in values
    assert "pgscan_file" not in values


def test_a_total_that_is_there_is_not_summed_again() -> None:
    values = parse_vmstat("allocstall 5\nallocstall_normal 3\npgscan_kswapd_normal 4\n")
    assert values["allocstall"] == 5
    assert values["pgscan_kswapd"] == 4


def test_order_does_not_matter() -> None:
    assert parse_vmstat("\n".join(reversed(PRESENT.splitlines()))) == parse_vmstat(PRESENT)


@pytest.mark.parametrize("text", ["", "pgpgin", "pgpgin x\n", "pgpgin 1 2\n", "pgpgin -1\n"])
def test_malformed(text: str) -> None:
    with pytest.raises(ParseError, match=r"^/proc/vmstat"):
        parse_vmstat(text)


def test_reader(tmp_path: Path) -> None:
    assert read_vmstat(tmp_path) is None
    (tmp_path / "vmstat").write_text(PRESENT)
    assert read_vmstat(tmp_path) == parse_vmstat(PRESENT)


@pytest.mark.parametrize("name", ["nr_file_pages", "nr_mlock", "workingset_nodes", "nr_dirty"])
def test_gauges(name: str) -> None:
    assert is_gauge(name)


@pytest.mark.parametrize(
    "name", ["pgpgin", "pgscan_file", "workingset_refault_file", "nr_written", "nr_dirtied"]
)
def test_counters(name: str) -> None:
    assert not is_gauge(name)


def test_recorded_keeps_reclaim_and_leaves_the_rest() -> None:
    kept = recorded(parse_vmstat(PRESENT))
    assert kept["pgscan_file"] == 10
    assert kept["oom_kill"] == 11
    assert kept["nr_file_pages"] == 1
    assert "htlb_buddy_alloc_success" not in kept
