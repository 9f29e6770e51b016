# SPDX-License-Identifier: Apache-2.0
"""Results directories made of a few figures: what a cell took, read and would have missed."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pagetier.analysis.figures.pictures import draw
from pagetier.analysis.report.beside import Beside
from pagetier.analysis.report.document import appendices, sections
from pagetier.analysis.report.gallery import gallery
from pagetier.analysis.report.html import Page, html_page
from pagetier.analysis.report.reading import Study, read_study
from pagetier.analysis.report.summary import summary_of
from pagetier.analysis.results import Cell, Iteration, Pass
from pagetier.bench.store import Store

EXPERT_BYTES = 1000
GB = 10**9

MakeCell = Callable[..., Cell]
MakeStudy = Callable[..., Study]

HOST = {
    "kernel": "6.12.1",
    "mem_total_bytes": 480 * GB,
    "mglru": {"available": True, "enabled": True},
    "device": {"name": "nvme0n1", "model": "disk"},
}
TRACE = {
    "num_layers": 2,
    "num_experts": 10,
    "top_k": 3,
    "requests": 1,
    "iterations": 2,
    "records": 4,
    "reads": 12,
}
META = {
    "name": "made",
    "created": "2026-01-01T00:00:00+00:00",
    "pagetier_version": "0.1.0",
    "plan_sha256": "plan1",
    "not_run": "[]",
}


def _shot(at_s: float, read: int, file: int) -> dict[str, Any]:
    return {
        "at_ns": int(at_s * 1e9),
        "device": {"major": 259, "minor": 0, "sectors_read": read // 512},
        "process": {"read_bytes": read},
        "scope": {"file_bytes": file, "pgscan_pages": 2 * read, "pgsteal_pages": read},
        "meminfo": {"MemTotal": 480 * GB},
    }


def _pass(name: str, start_s: float, walls: list[float], **totals: int) -> Pass:
    iterations, ends, now_s = len(walls), [], start_s
    for wall in walls:
        now_s += wall
        ends.append(now_s)
    rows = tuple(
        Iteration(
            iteration=at,
            end_ns=int(end * 1e9),
            wall_ns=round(wall * 1e9),
            bytes=totals["demand"],
            reads=totals["demand"] // EXPERT_BYTES,
            first_bytes=0,
            repeat_bytes=totals["in_extent"],
            nominal_misses=totals["misses"] // EXPERT_BYTES,
        )
        for at, (wall, end) in enumerate(zip(walls, ends, strict=True))
    )
    read, file = totals["device"] * iterations, totals["file"]
    return Pass(
        name=name,
        before=_shot(start_s, 0, file),
        after=_shot(now_s, read, file),
        result={"start_ns": int(start_s * 1e9)},
        iterations=rows,
        samples=(),
    )


@pytest.fixture
def make_cell() -> MakeCell:
    """A cell from figures per iteration, in seconds and bytes; the rest of `spec` by name."""
    numbers = iter(range(10**6))

    def make(
        seconds: float | list[float] = 1.0,
        device: float = 5 * GB,
        misses: float = 5 * GB,
        in_extent: float | None = None,
        file: float | None = None,
        mask: int = 7,
        locked: int | None = None,
        tokens: int | None = 2,
        state: str = "kept",
        facts: dict[str, Any] | None = None,
        result: dict[str, Any] | None = None,
        **spec: Any,
    ) -> Cell:
        number = next(numbers)
        whole = {"tier": "page-cache", "mechanism": "wall", "capacity_bytes": 100 * GB}
        whole |= {"pool": "/data/pool", "layout": "files", "advice": "default", "repetition": 1}
        whole |= {"mglru": "keep", **spec}
        walls = seconds if isinstance(seconds, list) else [seconds, seconds]
        held: Any = whole["capacity_bytes"] if file is None else file
        totals = {
            "demand": 30 * GB,
            "device": round(device),
            "misses": round(misses),
            "in_extent": round(device if in_extent is None else in_extent),
            "file": round(held or 0),
        }
        measured = _pass("measured", 1000, walls, **totals)
        measured = replace(measured, result={**measured.result, **(result or {})})
        return Cell(
            id=f"{number:012x}",
            position=number,
            spec=whole,
            state=state,
            reasons=("it was rejected",) if state == "rejected" else (),
            labels=(),
            started=f"2026-01-01T00:00:{number % 60:02}+00:00",
            finished="2026-01-01T01:00:00+00:00",
            enforced={"locked_bytes": locked},
            facts={
                "expert_bytes": EXPERT_BYTES,
                "accepted_tokens": tokens,
                "mglru": {"during": mask},
                "pool_sha256": "pool1",
                **(facts or {}),
            },
            passes={"warm-up": _pass("warm-up", 0, walls, **totals), "measured": measured},
        )

    return make


@pytest.fixture
def make_study(tmp_path: Path) -> MakeStudy:
    """The study of cells as they come back from a results directory."""
    numbers = iter(range(1000))

    def make(
        cells: list[Cell],
        host: dict[str, Any] | None = None,
        campaign: dict[str, Any] | None = None,
        **meta: str,
    ) -> Study:
        directory = tmp_path / f"results-{next(numbers)}"
        texts = {
            **META,
            "host": json.dumps({**HOST, **(host or {})}),
            "campaign": json.dumps(campaign or {}),
            "pools": json.dumps({"/data/pool": "pool1"}),
            "trace": json.dumps(TRACE),
            **meta,
        }
        with Store.create(directory, texts) as store:
            for cell in cells:
                store.add_cell(cell)
        return read_study(directory)

    return make


@pytest.fixture
def paper_sweep(make_cell: MakeCell) -> list[Cell]:
    """Table 2 of the paper as cells of a balloon: three repetitions of each capacity.

    Its columns are rounded, and ratios of rounded numbers are others than those it prints.  These
    values print every column as the paper does, before and after division.
    """
    rows = (
        (448, 0.99, 0.005, 5.322, 5.3495),
        (256, 1.37, 0.021, 9.782, 8.0505),
        (128, 1.95, 0.040, 17.38, 11.59),
        (64, 2.76, 0.014, 33.64, 15.145),
    )
    return [
        make_cell(
            seconds=seconds * (1 + spread * offset),
            device=device * GB,
            misses=misses * GB,
            mechanism="balloon",
            capacity_bytes=capacity * GB,
            repetition=repetition,
            tokens=None,
        )
        for capacity, seconds, spread, device, misses in rows
        for repetition, offset in ((1, -0.4), (2, 0.0), (3, 0.6))
    ]


@pytest.fixture
def cells(make_cell: MakeCell) -> list[Cell]:
    """Two capacities under both kinds of reclaim, twice, a second tier, and a rejected cell."""
    kept = [
        make_cell(device=device * GB, capacity_bytes=c * GB, mask=mask, tier=tier, repetition=at)
        for at in (1, 2)
        for c, mask, tier, device in (
            (200, 7, "page-cache", 3),
            (100, 7, "page-cache", 8),
            (200, 0, "page-cache", 2),
            (100, 0, "page-cache", 5),
            (100, 7, "arena", 4),
        )
    ]
    return [*kept, make_cell(capacity_bytes=100 * GB, repetition=3, state="rejected")]


# The pages of one test differ in little from those of the next.
_draw = cache(draw)


def _page_of(study: Study, title: str = "pagetier: made") -> str:
    told = sections(study, Beside())
    pictured = gallery(study)
    figures = [figure for section in (*told, *pictured) for figure in section.figures]
    return html_page(
        Page(
            title=title,
            facts=("Linux 6.12",),
            summary=summary_of(study, told),
            sections=[*told, *pictured, *appendices(study, Beside())],
            pictures={figure.key: _draw(figure).svg for figure in figures},
        )
    )


@pytest.fixture
def page_of() -> Callable[..., str]:
    """The page of a study, with its pictures."""
    return _page_of


@pytest.fixture
def page(cells: list[Cell], make_study: MakeStudy) -> str:
    """The page of `cells`."""
    return _page_of(make_study(cells))
