# SPDX-License-Identifier: Apache-2.0
"""The byte ledger as a table, and what an audit adds to it."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from pagetier.analysis.audit import AuditPoint
from pagetier.analysis.report.ledger import ledger_section
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import Table
from pagetier.analysis.results import Cell

MakeCell = Callable[..., Cell]
MakeStudy = Callable[..., Study]
GB = 10**9
PAGE = 4096


def table(study: Study, number: int = 0) -> list[dict[str, Any]]:
    section = ledger_section(study)
    assert section is not None
    found: Table = section.tables[number]
    keys = [column.key for column in found.columns]
    return [dict(zip(keys, row, strict=True)) for row in found.rows]


def page_exact(misses: int, effective: int) -> dict[str, Any]:
    """Of a pass of two iterations; pages per iteration."""
    return {
        "page_exact": {
            "page_bytes": PAGE,
            "demand_pages": 10**6,
            "nominal_miss_pages": 2 * misses,
            "effective_miss_pages": 2 * effective,
        }
    }


def look(iteration: int, overlap: float, **figures: float) -> dict[str, Any]:
    point = AuditPoint(
        iteration=iteration,
        resident_bytes=1000,
        lru_bytes=1000,
        overlap_bytes=round(1000 * overlap),
        overlap=overlap,
        same_size_overlap=overlap + 0.05,
        missing_bytes=0,
        kept_instead_bytes=0,
        never_read_bytes=100,
        partial_experts=0,
        kept_instead_age=1.5,
        kept_instead_reads=3.0,
        missing_reads=2.0,
    )
    return {**asdict(point), **figures}


def test_terms_are_per_iteration_and_set_against_pages_at_the_effective_capacity(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    cells = [
        make_cell(
            device=device * GB,
            in_extent=4 * GB,
            repetition=at,
            facts=page_exact(misses=900_000, effective=500_000),
        )
        for at, device in enumerate((5, 6, 9), start=1)
    ]
    (row,) = table(make_study(cells))
    assert (row["n"], row["first_bytes"], row["repeat_bytes"]) == (3, 0, 4 * GB)
    assert row["over_read_bytes"] == pytest.approx(2 * GB, rel=1e-6)
    assert row["device_bytes_per_iteration"].max == pytest.approx(9 * GB, rel=1e-6)
    assert row["page_misses_bytes"] == 900_000 * PAGE
    assert row["page_misses_effective_bytes"] == 500_000 * PAGE
    assert row["in_extent_ratio"] == pytest.approx(4 * GB / (500_000 * PAGE))


def test_what_was_not_simulated_is_missing(make_cell: MakeCell, make_study: MakeStudy) -> None:
    (row,) = table(make_study([make_cell()]))
    assert row["page_misses_bytes"] is None and row["in_extent_ratio"] is None


def test_a_rejected_cell_is_in_no_row(make_cell: MakeCell, make_study: MakeStudy) -> None:
    assert ledger_section(make_study([make_cell(state="rejected")])) is None


def test_an_audit_is_told_over_all_looks(make_cell: MakeCell, make_study: MakeStudy) -> None:
    looks = [look(0, 0.7), look(1, 0.9, kept_instead_age=2.5)]
    insertions = {"in_extent_bytes": 9 * GB, "over_read_bytes": GB}
    audited = make_cell(
        in_extent=4 * GB, facts={"audit": {"points": looks}}, result={"insertions": insertions}
    )
    study = make_study([audited, make_cell(capacity_bytes=50 * GB)])
    (row,) = table(study, 1)
    assert (row["overlap"].min, row["overlap"].max, row["overlap"].count) == (0.7, 0.9, 2)
    assert row["same_size_overlap"].median == pytest.approx(0.85)
    assert (row["never_read_share"], row["kept_instead_age"]) == (0.1, 2.0)
    assert (row["kept_instead_reads"], row["missing_reads"]) == (3.0, 2.0)
    assert row["traced_in_extent_bytes"] == 4.5 * GB
    assert row["traced_over_read_bytes"] == 0.5 * GB
    # Two iterations of 4 GB were absent just before their reads.
    assert row["taken_while_reading_bytes"] == 0.5 * GB


def test_without_an_audit_there_is_no_second_table(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    section = ledger_section(make_study([make_cell()]))
    assert section is not None and len(section.tables) == 1
