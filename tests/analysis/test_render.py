# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pagetier.analysis.render import COLUMNS, cells_table, markdown_block, report_json
from pagetier.analysis.results import Cell, Results

Amend = Callable[..., Cell]
MB = 10**6
S = 10**9

HOST = {
    "kernel": "6.1.0-49",
    "machine": "x86_64",
    "page_bytes": 4096,
    "mem_total_bytes": 8_000_000_000,
    "mglru": {"available": True, "mask": 7, "enabled": True},
    "cgroup_memory": "v1",
    "proactive_reclaim": [],
    "device": {
        "name": "vda",
        "model": "A|B",
        "file_system": "ext4",
        "read_ahead_kb": 128,
        "max_sectors_kb": 1280,
    },
}

META = {
    "name": "quick",
    "created": "2026-01-01T00:00:00+00:00",
    "pagetier_version": "0.1.0",
    "campaign_sha256": "camp1",
    "trace_sha256": "trace1",
    "plan_sha256": "plan1",
}


def results_of(cells: list[Cell], **more: Any) -> Results:
    fields: dict[str, Any] = {
        "path": Path("/results"),
        "meta": META,
        "campaign": {"threads": 8},
        "host": HOST,
        "pools": {"/data/my-pool": "pool1"},
        "not_run": (),
        "cells": tuple(cells),
    }
    return Results(**{**fields, **more})


def repetition(cell: Cell, number: int, **changes: Any) -> Cell:
    """The same cell again, its iterations longer by a second for each repetition."""
    measured = cell.passes["measured"]
    rows = tuple(
        dataclasses.replace(row, wall_ns=row.wall_ns + (number - 1) * S)
        for row in measured.iterations
    )
    passes = {**cell.passes, "measured": dataclasses.replace(measured, iterations=rows)}
    spec = {**cell.spec, "repetition": number}
    return dataclasses.replace(cell, id=f"c{number}", spec=spec, passes=passes, **changes)


def row_of(results: Results, number: int = 1) -> dict[str, str]:
    header, *rows = cells_table(results)
    return dict(zip(header, rows[number - 1], strict=True))


def test_one_cell_is_one_row(cell: Cell) -> None:
    results = results_of([cell])
    at = COLUMNS.index("served")
    assert cells_table(results)[0] == (*COLUMNS[:at], "scan/steal", *COLUMNS[at:])
    assert row_of(results) == {
        "tier": "page-cache",
        "mechanism": "wall",
        "C": "500 MB",
        "effective C": "450 MB",
        "layout": "files",
        "advice": "default",
        "n": "1",
        "s/it median [min-max]": "2.5 (n=1)",
        "demand GB/it": "0.5",
        "device GB/it": "0.128",
        "nominal GB/it (simulated)": "0.12",
        "at effective C (simulated)": "0.125",
        "amplification": "1.07x",
        "in-extent amplification": "0.83x",
        "over-read share": "20.0%",
        "scan/steal": "1.50",
        "served": "80.0%",
        "verdict": "kept",
    }


def test_repetitions_share_a_row_with_their_spread(cell: Cell) -> None:
    results = results_of([repetition(cell, number) for number in (1, 2, 4)])
    assert len(cells_table(results)) == 2
    assert row_of(results)["n"] == "3"
    assert row_of(results)["s/it median [min-max]"] == "3.5 [2.5-5.5]"


def test_a_rejected_repetition_is_counted_and_never_averaged(cell: Cell) -> None:
    bad = repetition(cell, 9, state="rejected", reasons=("x",), labels=("bad label",))
    row = row_of(results_of([cell, bad]))
    assert (row["n"], row["s/it median [min-max]"]) == ("1", "2.5 (n=1)")
    assert row["verdict"] == "kept; 1 rejected"


def test_a_row_of_rejected_cells_has_no_figures(cell: Cell) -> None:
    row = row_of(results_of([dataclasses.replace(cell, state="rejected")]))
    assert (row["n"], row["verdict"]) == ("0", "rejected (1)")
    figures = COLUMNS[COLUMNS.index("s/it median [min-max]") : -1]
    assert {row[name] for name in figures} == {"n/a"}


def test_labels_stand_in_the_verdict(cell: Cell) -> None:
    cells = [repetition(cell, n, labels=("wall not binding",)) for n in (1, 2)]
    assert row_of(results_of(cells))["verdict"] == "kept; wall not binding"


def test_cells_that_differ_in_anything_else_are_apart(cell: Cell, amend: Amend) -> None:
    others = [
        amend(("spec", "advice"), "random"),
        amend(("spec", "layout"), "flat"),
        amend(("spec", "capacity_bytes"), 700 * MB),
        amend(("spec", "threads"), 1),
        amend(("spec", "pool"), "/data/other"),
    ]
    assert len(cells_table(results_of([cell, *others]))) == 7


def test_rows_go_from_no_limit_to_the_smallest_capacity(cell: Cell, amend: Amend) -> None:
    free = amend(("spec", "capacity_bytes"), None, amend(("spec", "mechanism"), "none"))
    cells = [cell, amend(("spec", "capacity_bytes"), 9 * MB), free]
    cells += [amend(("spec", "capacity_bytes"), 700 * MB)]
    table = cells_table(results_of(cells))
    assert [row[2] for row in table[1:]] == ["no limit", "700 MB", "500 MB", "9.00 MB"]


def test_unknown_figures_are_not_numbers(cell: Cell, amend: Amend) -> None:
    rows = tuple(
        dataclasses.replace(row, first_bytes=None, nominal_misses=0)
        for row in cell.passes["measured"].iterations
    )
    row = row_of(results_of([amend(("measured", "iterations"), rows)]))
    names = ["amplification", "in-extent amplification", "over-read share", "served"]
    assert [row[name] for name in names] == ["n/a"] * 4
    assert row["nominal GB/it (simulated)"] == "0"


def test_one_repetition_without_a_figure_leaves_the_row_without_it(
    cell: Cell, amend: Amend
) -> None:
    blind = amend(("measured", "after", "device"), None, repetition(cell, 2))
    assert row_of(results_of([cell, blind]))["device GB/it"] == "n/a"


def test_markdown_block(cell: Cell) -> None:
    bad = repetition(cell, 2, state="rejected", reasons=("8.00 MB are foreign", "oom\n| x"))
    results = results_of([cell, bad], not_run=({"cell": "balloon 1 GB", "reason": "no lock"},))
    block = markdown_block(results)
    for line in (
        "### pagetier: quick, 2 cells (2026-01-01T00:00:00+00:00)",
        "| kernel | 6.1.0-49 |",
        "| page size | 4.10 KB (4096 B) |",
        "| device | vda, A\\|B, ext4 |",
        "| read_ahead_kb | 128 |",
        "| max_sectors_kb | 1280 |",
        "| page reclaim | MGLRU |",
        "| cgroup memory controller | v1 |",
        "| proactive reclaim | none found |",
        "| pagetier | 0.1.0 |",
        "| trace sha256 | trace1 |",
        "| plan sha256 | plan1 |",
        "| pool sha256 my-pool | pool1 |",
        "| campaign sha256 | camp1 |",
        "- page-cache, wall 500 MB, files, advice default, repetition 2:"
        " 8.00 MB are foreign; oom \\| x",
        "- balloon 1 GB: no lock",
    ):
        assert f"\n{line}\n" in f"\n{block}\n", line
    assert "Simulated: nominal" in block
    assert block.endswith("\n")


def test_tables_in_the_block_have_one_width(cell: Cell) -> None:
    lines = markdown_block(results_of([cell])).splitlines()
    wide = [line for line in lines if line.startswith("|") and "page-cache" in line]
    header = next(line for line in lines if line.startswith("| tier"))
    rule = lines[lines.index(header) + 1]
    assert len(wide) == 1
    columns = len(cells_table(results_of([cell]))[0])
    assert header.count("|") == rule.count("|") == wide[0].count("|") == columns + 1


def test_a_block_without_any_host_fact(cell: Cell) -> None:
    block = markdown_block(results_of([cell], host={}, meta={}, pools={}))
    assert "| kernel | n/a |" in block
    assert "| page reclaim | n/a |" in block
    assert "Rejected" not in block
    assert "Not run" not in block


@pytest.mark.parametrize(
    ("mglru", "name"),
    [
        ({"available": False, "enabled": None}, "classic LRU (no MGLRU in this kernel)"),
        ({"available": True, "enabled": False}, "classic LRU (MGLRU off)"),
        ({"available": True, "enabled": True}, "MGLRU"),
        ({"available": True, "enabled": None}, "n/a"),
        (None, "n/a"),
    ],
)
def test_reclaim_is_named(cell: Cell, mglru: Any, name: str) -> None:
    block = markdown_block(results_of([cell], host={**HOST, "mglru": mglru}))
    assert f"| page reclaim | {name} |" in block


def with_mglru(cell: Cell, wanted: str, mask: int | None) -> Cell:
    facts = {**cell.facts, "mglru": {"before": 7, "during": mask, "after": mask}}
    spec = {**cell.spec, "mglru": wanted}
    return dataclasses.replace(cell, id=f"{wanted}{mask}", spec=spec, facts=facts)


def test_mglru_is_a_column_where_its_states_differ(cell: Cell) -> None:
    cells = [with_mglru(cell, "on", 7), with_mglru(cell, "off", 0)]
    header, *rows = cells_table(results_of(cells))
    at = header.index("MGLRU")
    assert [name for name in header if name not in COLUMNS] == ["MGLRU", "scan/steal"]
    assert header[at + 1] == "n"
    assert [row[at] for row in rows] == ["off", "on"]
    assert {len(row) for row in rows} == {len(header)}


@pytest.mark.parametrize("masks", [(7, 1), (None, 7), (None, None)])
def test_mglru_is_no_column_where_they_do_not(cell: Cell, masks: tuple[int | None, ...]) -> None:
    cells = [with_mglru(cell, "keep", mask) for mask in masks]
    header, *rows = cells_table(results_of(cells))
    assert "MGLRU" not in header
    assert len(rows) == 1


def test_device_bytes_show_their_spread(cell: Cell, amend: Amend) -> None:
    more = amend(("measured", "after", "device", "sectors_read"), 2_250_000, repetition(cell, 2))
    first, second = (row_of(results_of([one]))["device GB/it"] for one in (cell, more))
    both = row_of(results_of([cell, more]))["device GB/it"]
    assert first != second
    assert both.endswith(f"[{first}-{second}]")


def test_what_differs_is_a_column(cell: Cell) -> None:
    orders = {"pread": "touch-lock", "mmap": None}  # what only one of them has tells nothing apart
    specs = [{**cell.spec, "read": read, "balloon_order": orders[read]} for read in orders]
    cells = [dataclasses.replace(cell, id=str(n), spec=s) for n, s in enumerate(specs)]
    header, *rows = cells_table(results_of(cells))
    assert sorted(row[header.index("read")] for row in rows) == ["mmap", "pread"]
    assert "balloon order" not in header


def test_a_balloon_shows_what_it_locked(cell: Cell, amend: Amend) -> None:
    locked = amend(("enforced", "locked_bytes"), 300)
    told = amend(("measured", "before", "meminfo"), {"MemTotal": 400}, locked)
    assert row_of(results_of([told]))["locked"] == "75.0%"
    assert "locked" not in row_of(results_of([cell]))


def test_repetitions_under_another_state_are_not_pooled(cell: Cell) -> None:
    cells = [with_mglru(cell, "keep", mask) for mask in (7, 0)]
    header, *rows = cells_table(results_of(cells))
    assert [(row[header.index("MGLRU")], row[header.index("n")]) for row in rows] == [
        ("off", "1"),
        ("on", "1"),
    ]


def test_a_cell_that_never_ran_stands_with_the_state_asked_for(cell: Cell) -> None:
    failed = dataclasses.replace(with_mglru(cell, "off", None), state="rejected", reasons=("no",))
    results = results_of([with_mglru(cell, "off", 0), failed])
    assert [row[-1] for row in cells_table(results)[1:]] == ["kept; 1 rejected"]
    assert "MGLRU off, advice default" in markdown_block(results)


def test_reclaim_is_named_by_cell(cell: Cell) -> None:
    results = results_of([with_mglru(cell, "on", 7), with_mglru(cell, "off", 0)])
    found = report_json(results)["cells"]
    assert [
        (item["mglru"], item["mglru_mask"], item["reclaim_implementation"]) for item in found
    ] == [
        ("on", 7, "MGLRU"),
        ("off", 0, "classic LRU (MGLRU off)"),
    ]
    block = markdown_block(results)
    assert "| page reclaim | differs by cell: MGLRU, classic LRU (MGLRU off) |" in block


def test_json_document(cell: Cell) -> None:
    document = report_json(results_of([cell]))
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["campaign"] == {"threads": 8, "sha256": "camp1"}
    assert document["host"] == HOST
    (found,) = document["cells"]
    expected = {
        "id": "c1",
        "tier": "page-cache",
        "mechanism": "wall",
        "capacity_bytes": 500 * MB,
        "mglru": "keep",
        "repetition": 1,
        "state": "kept",
        "reasons": [],
        "iteration_s": {"median": 2.5, "min": 2.0, "max": 3.0},
        "demand_bytes_per_iteration": 500 * MB,
        "device_bytes_per_iteration": 128 * MB,
        "nominal_miss_bytes_per_iteration": 120 * MB,
        "effective_capacity_bytes": 450 * MB,
        "amplification": pytest.approx(256 / 240),
        "in_extent_amplification": pytest.approx(200 / 240),
        "served_fraction": pytest.approx(0.8),
        "accepted_tokens": 4,
        "s_per_accepted_token": pytest.approx(1.25),
        "scan_pages": 6000,
        "steal_pages": 4000,
        "scan_to_steal": 1.5,
        "reclaim_implementation": "MGLRU",
        "over_read_share": pytest.approx(0.2),
    }
    assert {key: found[key] for key in expected} == expected
    ledger = dict(found["ledger"])
    obtained = ledger.pop("obtained")
    assert ledger == {
        "first": 10 * MB,
        "repeat": 90 * MB,
        "over_read": 25 * MB,
        "prefetch": 0,
        "foreign": 3 * MB,
        "residual": 0,
    }
    assert sum(ledger.values()) == found["device_bytes_per_iteration"]
    assert obtained.keys() == ledger.keys()


def test_json_of_a_cell_that_never_ran(cell: Cell) -> None:
    failed = dataclasses.replace(cell, state="rejected", reasons=("died",), passes={})
    (found,) = report_json(results_of([failed]))["cells"]
    assert found["iteration_s"] == {"median": None, "min": None, "max": None}
    assert found["amplification"] is None
    assert found["reasons"] == ["died"]
    assert found["ledger"]["foreign"] is None


def of_tier(cell: Cell, tier: str, seconds: int, **spec: Any) -> Cell:
    """The cell as another tier, its iterations longer by so many seconds."""
    changed = repetition(cell, 1 + seconds)
    return dataclasses.replace(
        changed,
        id=f"{tier}{seconds}{len(spec)}",
        spec={**changed.spec, "repetition": 1, "tier": tier, **spec},
    )


def test_tiers_are_told_apart_and_compared_with_the_page_cache(cell: Cell, amend: Amend) -> None:
    half = {"arena": {"table": "oracle", "fraction": 0.5}}
    plain = of_tier(cell, "page-cache", 0, advice="random", arena=None, prefetch=None)
    served = amend(("measured", "result", "arena_bytes"), 600 * MB)
    hybrid = of_tier(served, "hybrid", 2, advice="random", prefetch=None, **half)
    direct = of_tier(cell, "direct", 5, advice="random", arena=None, prefetch=None)
    results = results_of([plain, hybrid, direct])
    rows = {row_of(results, number)["tier"]: row_of(results, number) for number in (1, 2, 3)}
    assert rows.keys() == {"direct", "hybrid 0.5", "page-cache"}
    assert rows["page-cache"]["time / page cache"] == "1.00x"
    assert rows["hybrid 0.5"]["time / page cache"] == "1.80x"  # 4.5 s to 2.5 s
    assert rows["direct"]["time / page cache"] == "3.00x"
    assert rows["hybrid 0.5"]["served by arena"] == "60.0%"
    assert rows["page-cache"]["served by arena"] == "n/a"


def test_a_page_cache_alone_is_compared_with_nothing(cell: Cell) -> None:
    header = cells_table(results_of([cell]))[0]
    assert "time / page cache" not in header
    assert not [name for name in header if "hint" in name or "arena" in name]


def test_hints_are_columns_where_there_are_some(cell: Cell, amend: Amend) -> None:
    prefetch = {"plan": "degraded", "delivery": "advice", "chunk": "whole", "recall": 0.4}
    counts = {"submitted": 9, "overwritten": 2, "completed": 7, "hinted_bytes": 100}
    counts |= {"resident_after_bytes": 47, "brought_bytes": 30, "used_bytes": 24}
    hinted = amend(("measured", "result", "hints"), counts)
    hinted = of_tier(hinted, "page-cache", 1, prefetch=prefetch)
    plain = of_tier(cell, "page-cache", 0, prefetch=None)
    rows = [row_of(results_of([plain, hinted]), number) for number in (1, 2)]
    assert [row["prefetch"] for row in rows] == ["none", "degraded 0.4, advice whole"]
    assert [row["time / page cache"] for row in rows] == ["1.00x", "1.40x"]
    told = ("hints given/overwritten/done", "resident / hinted", "hinted, then used")
    assert [rows[1][name] for name in told] == ["9/2/7", "47.0%", "80.0%"]
    assert [rows[0][name] for name in told] == ["n/a"] * 3


def test_json_of_a_tier(cell: Cell, amend: Amend) -> None:
    budget = {"arena_bytes": 5, "locked_read_bytes": 5}
    changed = amend(("facts", "budget"), budget)
    changed = amend(("measured", "result", "arena_bytes"), 600 * MB, changed)
    changed = amend(("warm-up", "result", "content_hash"), "00ff", changed)
    (document,) = report_json(results_of([changed]))["cells"]
    assert document["served"] == pytest.approx({"arena": 0.6, "page_cache": 0.2, "missed": 0.2})
    assert (document["budget"], document["content_hash"]) == (budget, "00ff")
    assert document["hints"] is None


def test_a_share_just_below_nothing_has_no_sign(cell: Cell, amend: Amend) -> None:
    row = dataclasses.replace(cell.passes["measured"].iterations[0], first_bytes=820_200_000)
    rows = (row, cell.passes["measured"].iterations[1])
    assert row_of(results_of([amend(("measured", "iterations"), rows)]))["served"] == "0.0%"
