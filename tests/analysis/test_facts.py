# SPDX-License-Identifier: Apache-2.0
import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from pagetier.analysis.derive import (
    CellFacts,
    Ledger,
    Spread,
    counters_backwards,
    derive_cell,
    effective_capacity,
)
from pagetier.analysis.results import Cell, Pass, Sample

Amend = Callable[..., Cell]
MB = 10**6


def test_bytes_of_the_measured_pass(cell: Cell) -> None:
    facts = derive_cell(cell)
    assert facts.iterations == 2
    assert facts.demand_bytes == 1000 * MB
    assert facts.device_bytes == 256 * MB
    assert (facts.process_bytes, facts.scope_bytes) == (250 * MB, 250 * MB)
    assert (facts.first_bytes, facts.repeat_bytes) == (20 * MB, 180 * MB)
    assert facts.in_extent_bytes == 200 * MB
    assert facts.nominal_miss_bytes == 240 * MB
    assert facts.effective_miss_bytes == 250 * MB
    assert facts.over_read_bytes == 50 * MB
    assert facts.foreign_bytes == 6 * MB
    assert facts.per_iteration(facts.device_bytes) == 128 * MB


def test_ratios_of_the_measured_pass(cell: Cell) -> None:
    facts = derive_cell(cell)
    assert facts.amplification == pytest.approx(256 / 240)
    assert facts.in_extent_amplification == pytest.approx(200 / 240)
    assert facts.over_read_share == pytest.approx(50 / 250)
    assert facts.foreign_share == pytest.approx(6 / 256)
    assert facts.served_fraction == pytest.approx(0.8)
    assert facts.served_fraction_device == pytest.approx(0.744)


def test_times_of_the_measured_pass(cell: Cell) -> None:
    facts = derive_cell(cell)
    assert facts.iteration_s == Spread(median=2.5, min=2.0, max=3.0, count=2)
    assert facts.s_per_accepted_token == pytest.approx(5 / 4)


def test_the_ledger_adds_up_to_the_device(cell: Cell, amend: Amend) -> None:
    facts = derive_cell(cell)
    assert facts.ledger == Ledger(20 * MB, 180 * MB, 50 * MB, 0, 6 * MB, 0)
    scope_counted_more = amend(("measured", "after", "scope", "io", "254:0"), 37 + 1053 * MB)
    ledger = derive_cell(scope_counted_more).ledger
    assert (ledger.foreign, ledger.residual) == (3 * MB, 3 * MB)
    without_scope = amend(("measured", "after", "scope", "io"), None)
    ledger = derive_cell(without_scope).ledger
    assert (ledger.foreign, ledger.residual) == (6 * MB, None)


def test_negative_over_read_and_foreign_are_kept(amend: Amend) -> None:
    facts = derive_cell(amend(("measured", "after", "process", "read_bytes"), 13 + 990 * MB))
    assert (facts.over_read_bytes, facts.foreign_bytes) == (-10 * MB, 66 * MB)
    facts = derive_cell(amend(("measured", "after", "process", "read_bytes"), 13 + 1060 * MB))
    assert (facts.over_read_bytes, facts.foreign_bytes) == (60 * MB, -4 * MB)


MISSING: list[tuple[tuple[str, ...], Any, set[str]]] = [
    (
        ("measured", "after", "device"),
        None,
        {"device_bytes", "scope_bytes", "amplification", "foreign_bytes", "foreign_share"}
        | {"served_fraction_device"},
    ),
    (
        ("measured", "before", "process"),
        None,
        {"process_bytes", "over_read_bytes", "over_read_share", "foreign_bytes", "foreign_share"},
    ),
    (("measured", "before", "scope", "io"), None, {"scope_bytes"}),
    (("facts", "effective_misses"), None, {"effective_miss_bytes"}),
    (("facts", "accepted_tokens"), None, {"accepted_tokens", "s_per_accepted_token"}),
    (
        ("facts", "expert_bytes"),
        None,
        {"nominal_miss_bytes", "effective_miss_bytes", "amplification", "in_extent_amplification"},
    ),
]


def unknown(facts: CellFacts) -> set[str]:
    """Figures that are None, but for those of a balloon and of an advisor."""
    missing = {name for name in CellFacts.__slots__ if getattr(facts, name) is None}
    return missing - {"locked_share", "hints"}


def test_locked_share_is_of_the_memory_of_the_measured_host(amend: Amend) -> None:
    locked = amend(("enforced", "locked_bytes"), 300)
    assert derive_cell(locked).locked_share is None
    measured = amend(("measured", "before", "meminfo"), {"MemTotal": 400}, locked)
    assert derive_cell(measured).locked_share == 0.75


@pytest.mark.parametrize(("path", "value", "names"), MISSING)
def test_what_is_missing_is_none_and_nothing_else(
    amend: Amend, path: tuple[str, ...], value: Any, names: set[str]
) -> None:
    assert unknown(derive_cell(amend(path, value))) == names


def test_unknown_residency_of_one_iteration_is_unknown(cell: Cell, amend: Amend) -> None:
    rows = list(cell.passes["measured"].iterations)
    rows[1] = dataclasses.replace(rows[1], repeat_bytes=None)
    facts = derive_cell(amend(("measured", "iterations"), tuple(rows)))
    assert unknown(facts) == {
        "repeat_bytes",
        "in_extent_bytes",
        "in_extent_amplification",
        "over_read_bytes",
        "over_read_share",
        "served_fraction",
        "served_page_cache",
    }


def test_no_misses_give_no_amplification(cell: Cell, amend: Amend) -> None:
    rows = [
        dataclasses.replace(row, nominal_misses=0) for row in cell.passes["measured"].iterations
    ]
    facts = derive_cell(amend(("measured", "iterations"), tuple(rows)))
    assert facts.nominal_miss_bytes == 0
    assert (facts.amplification, facts.in_extent_amplification) == (None, None)


def test_misses_of_the_whole_pass_stand_in_for_those_of_its_iterations(
    cell: Cell, amend: Amend
) -> None:
    rows = [
        dataclasses.replace(row, nominal_misses=None) for row in cell.passes["measured"].iterations
    ]
    changed = amend(("facts", "nominal_misses"), 7)
    changed = amend(("measured", "iterations"), tuple(rows), changed)
    assert derive_cell(changed).nominal_miss_bytes == 70 * MB


def test_a_cell_that_never_ran(cell: Cell) -> None:
    facts = derive_cell(dataclasses.replace(cell, passes={}))
    assert facts.iterations == 0
    assert facts.iteration_s is None
    assert facts.device_bytes is None
    assert facts.per_iteration(facts.demand_bytes) is None
    assert facts.amplification is None


def test_a_device_without_a_line_in_io_stat_has_read_nothing(amend: Amend) -> None:
    facts = derive_cell(amend(("measured", "before", "scope", "io"), {}))
    assert facts.scope_bytes == 37 + 1050 * MB


def test_other_devices_of_the_scope_do_not_count(amend: Amend) -> None:
    io = {"254:0": 37 + 1050 * MB, "8:0": 999}
    assert derive_cell(amend(("measured", "after", "scope", "io"), io)).scope_bytes == 250 * MB


def test_the_scope_is_counted_on_each_of_several_disks(amend: Amend) -> None:
    io = {"8:0": 37 + 1000 * MB, "8:16": 30 * MB, "9:0": 1030 * MB}
    leaves = [{"major": 8, "minor": 0}, {"major": 8, "minor": 16}]
    cell = amend(
        ("measured", "before", "scope", "io"),
        {"8:0": 37 + 800 * MB},
        amend(
            ("measured", "after", "scope", "io"),
            io,
            amend(("measured", "after", "device", "leaves"), leaves),
        ),
    )
    assert derive_cell(cell).scope_bytes == 230 * MB


# ---- reclaim ------------------------------------------------------------------------------------


def test_a_wall_is_judged_by_the_counters_of_its_scope(cell: Cell) -> None:
    reclaim = derive_cell(cell).reclaim
    assert reclaim is not None
    assert (reclaim.scan_pages, reclaim.steal_pages) == (6000, 4000)
    assert reclaim.scan_to_steal == 1.5
    assert "memory.stat" in reclaim.source


def test_a_wall_without_counters_of_its_own_uses_those_that_include_limits(amend: Amend) -> None:
    changed = amend(("measured", "after", "scope", "pgscan_pages"), None)
    changed = amend(("measured", "after", "vmstat", "pgscan_file"), 67 + 30, changed)
    changed = amend(("measured", "after", "vmstat", "pgsteal_file"), 71 + 20, changed)
    reclaim = derive_cell(changed).reclaim
    assert reclaim is not None
    assert (reclaim.scan_pages, reclaim.steal_pages) == (30, 20)
    assert "pgscan_file" in reclaim.source


def test_a_balloon_is_judged_by_kswapd_and_direct(amend: Amend) -> None:
    changed = amend(("spec", "mechanism"), "balloon")
    changed = amend(("measured", "after", "vmstat", "pgsteal_direct"), 61 + 30, changed)
    reclaim = derive_cell(changed).reclaim
    assert reclaim is not None
    assert (reclaim.scan_pages, reclaim.steal_pages) == (90, 30)
    assert reclaim.scan_to_steal is None, "30 pages are too few for a ratio"
    assert "kswapd + direct" in reclaim.source


def test_nothing_reclaimed_is_no_ratio(amend: Amend) -> None:
    reclaim = derive_cell(amend(("spec", "mechanism"), "none")).reclaim
    assert reclaim is not None
    assert (reclaim.scan_pages, reclaim.steal_pages, reclaim.scan_to_steal) == (90, 0, None)


def test_no_counters_are_no_reclaim(amend: Amend) -> None:
    changed = amend(("spec", "mechanism"), "none")
    assert derive_cell(amend(("measured", "after", "vmstat"), None, changed)).reclaim is None


# ---- effective capacity -------------------------------------------------------------------------


def test_time_mean_of_the_scopes_file_bytes(cell: Cell) -> None:
    # 500 -> 400 MB over 2 s, 400 -> 500 MB over 4 s: every second at 450 on average.
    found = effective_capacity(cell.passes["measured"])
    assert found.bytes == 450 * MB
    assert found.source == "file bytes charged to the scope"


def levels(points: list[tuple[float, dict[str, Any]]]) -> Pass:
    shots = [{"at_ns": int(at * 1e9), **data} for at, data in points]
    samples = tuple(Sample(shot["at_ns"], shot) for shot in shots[1:-1])
    return Pass("measured", shots[0], shots[-1], {}, (), samples)


def test_uneven_samples_are_weighted_by_time() -> None:
    shots = [(0.0, 100), (9.0, 100), (10.0, 300)]
    replay = levels([(at, {"scope": {"file_bytes": size}}) for at, size in shots])
    assert effective_capacity(replay).bytes == (9 * 100 + 200) / 10


def test_snapshots_of_one_moment_are_averaged() -> None:
    replay = levels([(1, {"scope": {"file_bytes": size}}) for size in (10, 30)])
    assert effective_capacity(replay).bytes == 20


def test_the_host_stands_in_for_a_missing_scope() -> None:
    meminfo = {"Active(file)": 30, "Inactive(file)": 12}
    replay = levels([(0, {"scope": None, "meminfo": meminfo}), (1, {"meminfo": meminfo})])
    found = effective_capacity(replay)
    assert (found.bytes, found.source) == (42, "meminfo Active(file) + Inactive(file) of the host")


def test_no_level_is_unknown() -> None:
    found = effective_capacity(levels([(0, {}), (1, {"meminfo": {"Active(file)": 3}})]))
    assert (found.bytes, found.source) == (None, None)


# ---- counters -----------------------------------------------------------------------------------

BEFORE: dict[str, Any] = {
    "device": {"sectors_read": 5, "reads": 5, "name": "vda"},
    "process": {"read_bytes": 5, "vm_rss_bytes": 5},
    "scope": {"pgscan_pages": 5, "current_bytes": 5, "events": {"oom": 5}, "io": {"254:0": 5}},
    "vmstat": {"pgscan_kswapd": 5, "nr_dirty": 5, "workingset_nodes": 5},
    "psi": {"memory": {"some_total_us": 5}, "io": None},
}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (("device", "sectors_read"), "device.sectors_read"),
        (("process", "read_bytes"), "process.read_bytes"),
        (("scope", "pgscan_pages"), "scope.pgscan_pages"),
        (("scope", "events", "oom"), "scope.events.oom"),
        (("scope", "io", "254:0"), "scope.io.254:0"),
        (("vmstat", "pgscan_kswapd"), "vmstat.pgscan_kswapd"),
        (("psi", "memory", "some_total_us"), "psi.memory.some_total_us"),
        (("vmstat", "nr_dirty"), None),
        (("vmstat", "workingset_nodes"), None),
        (("process", "vm_rss_bytes"), None),
        (("scope", "current_bytes"), None),
    ],
)
def test_a_counter_that_fell_is_named_and_a_level_is_not(
    path: tuple[str, ...], name: str | None
) -> None:
    after = copy.deepcopy(BEFORE)
    target = after
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = 4
    assert counters_backwards(BEFORE, after) == ([] if name is None else [name])
    assert counters_backwards(after, BEFORE) == []
    del target[path[-1]]
    assert counters_backwards(BEFORE, after) == []


def test_experts_of_different_sizes_have_misses_in_bytes(cell: Cell, amend: Amend) -> None:
    """What was simulated in bytes; so many experts of a size that none of them has are none."""
    mixed = amend(("facts", "expert_bytes"), None)
    mixed = amend(("facts", "nominal_miss_bytes"), 123 * MB, mixed)
    mixed = amend(("facts", "effective_miss_bytes"), 125 * MB, mixed)
    facts = derive_cell(mixed)
    assert (facts.nominal_miss_bytes, facts.effective_miss_bytes) == (123 * MB, 125 * MB)
    assert unknown(facts) == unknown(derive_cell(cell))
    assert facts.device_bytes is not None
    assert facts.amplification == pytest.approx(facts.device_bytes / (123 * MB))
