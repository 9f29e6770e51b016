# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pagetier.analysis.report.arms import arms_of
from pagetier.analysis.report.audit import residency_figure
from pagetier.analysis.report.gallery import MAX_PASSES, gallery
from pagetier.analysis.report.generations import generations_figure
from pagetier.analysis.report.latency import bucket_end_ns, latency_figure
from pagetier.analysis.report.ledger import MAX_CELLS, ledger_figure
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import Figure
from pagetier.analysis.report.timeline import MAX_BINS, timeline_figure
from pagetier.analysis.results import Cell, Sample
from pagetier.analysis.units import format_bytes

MakeCell = Callable[..., Cell]
MakeStudy = Callable[..., Study]
GB = 10**9


def line(figure: Figure | None, name: str) -> list[tuple[Any, float]]:
    assert figure is not None
    (series,) = (series for series in figure.series if series.name == name)
    return [(point.x, point.y) for point in series.points]


def with_samples(cell: Cell, *samples: dict[str, Any]) -> Cell:
    measured = cell.passes["measured"]
    rows = tuple(Sample(sample["at_ns"], sample) for sample in samples)
    return replace(cell, passes={**cell.passes, "measured": replace(measured, samples=rows)})


# ---- ledger -------------------------------------------------------------------------------------


def test_the_ledger_has_a_row_per_cell_and_names_the_rejected(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    cells = [
        make_cell(device=6 * GB, in_extent=5 * GB, misses=4 * GB, repetition=2),
        make_cell(device=9 * GB, in_extent=8 * GB, misses=4 * GB, repetition=3, state="rejected"),
        make_cell(device=7 * GB, in_extent=5 * GB, misses=4 * GB, repetition=1),
    ]
    figure = ledger_figure(arms_of(make_study(cells)))
    repeat = line(figure, "in-extent, repeat")
    assert repeat == [("wall #1", 5 * GB), ("wall #2", 5 * GB), ("wall #3, rejected", 8 * GB)]
    assert [y for _, y in line(figure, "over-read")] == pytest.approx([2 * GB, GB, GB], rel=1e-6)
    assert {y for _, y in line(figure, "nominal misses (simulated)")} == {4 * GB}
    assert figure is not None and figure.note.startswith("3 of 3 cells.")


def test_a_ledger_without_in_extent_bytes_says_not_told_apart(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    cell = make_cell(device=6 * GB)
    measured = cell.passes["measured"]
    rows = tuple(replace(row, first_bytes=None, repeat_bytes=None) for row in measured.iterations)
    cell = replace(cell, passes={"measured": replace(measured, iterations=rows)})
    figure = ledger_figure(arms_of(make_study([cell])))
    ((_, untold),) = line(figure, "not told apart")
    assert untold == pytest.approx(6 * GB, rel=1e-6)


def test_of_many_cells_each_arm_shows_its_middle_one(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    count = MAX_CELLS + 1
    cells = [make_cell(device=at * GB, repetition=at) for at in range(1, count + 1)]
    figure = ledger_figure(arms_of(make_study(cells)))
    ((_, shown),) = line(figure, "in-extent, repeat")
    assert shown == (count + 1) // 2 * GB
    assert figure is not None and f"1 of {count} cells" in figure.note


def test_no_picture_of_nothing(make_study: MakeStudy) -> None:
    study = make_study([])
    assert ledger_figure([]) is None and latency_figure([]) is None
    assert gallery(study) == []


# ---- timeline -----------------------------------------------------------------------------------


def shot(at_s: float, read: int, **scope: int) -> dict[str, Any]:
    return {
        "at_ns": int(at_s * 1e9),
        "device": {"major": 259, "minor": 0, "sectors_read": read // 512},
        "scope": scope,
    }


def test_a_timeline_counts_iterations(make_cell: MakeCell, make_study: MakeStudy) -> None:
    # Iterations of 1 s and 3 s; the device read 1 GB in the first and 9 GB in the second.
    cell = make_cell(seconds=[1.0, 3.0], device=5 * GB, misses=5000, in_extent=4 * GB)
    cell = with_samples(cell, shot(1001, GB, current_bytes=7, file_bytes=5))
    study = make_study([cell])
    figure = timeline_figure(study, study.points[0])
    xs, device = zip(*line(figure, "device"), strict=True)
    assert xs == (1.0, 2.0) and list(device) == pytest.approx([GB, 9 * GB])
    assert line(figure, "in-extent") == [(1.0, 4 * GB), (2.0, 4 * GB)]
    assert line(figure, "misses of LRU (simulated)") == [(1.0, 5000), (2.0, 5000)]
    assert line(figure, "iteration") == [(1.0, 1.0), (2.0, 3.0)]
    assert line(figure, "memory.current of the scope") == [(1.5, 7)]
    assert line(figure, "C") == [(0.5, 100 * GB), (2.5, 100 * GB)]


def test_stalls_are_shares_of_the_time_between_samples(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    stalls = [
        {**shot(1000.5, 0), "psi": {"memory": {"some_total_us": 100_000}}},
        {**shot(1001.5, 0), "psi": {"memory": {"some_total_us": 350_000}}},
    ]
    study = make_study([with_samples(make_cell(), *stalls)])
    ((x, share),) = line(timeline_figure(study, study.points[0]), "memory, some (host)")
    assert x == 1.5 and share == pytest.approx(0.25)


def test_an_emulated_clock_has_neither_times_nor_stalls(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    stalls = [
        {**shot(1000.5, 0), "psi": {"memory": {"some_total_us": 0}}},
        {**shot(1001.5, 0), "psi": {"memory": {"some_total_us": 9}}},
    ]
    cell = with_samples(make_cell(result={"latency_histogram": [[500, 3]]}), *stalls)
    study = make_study([cell], host={"clock": "emulated"})
    figures = [figure for section in gallery(study) for figure in section.figures]
    panels = {series.panel for figure in figures for series in figure.series}
    assert "bytes" in panels and not panels & {"time", "stalls"}
    assert "latency" not in {figure.form for figure in figures}


def test_long_passes_are_means_of_equal_numbers_of_iterations(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    walls = [1.0, 3.0] * (MAX_BINS * 2)
    study = make_study([make_cell(seconds=walls)])
    times = line(timeline_figure(study, study.points[0]), "iteration")
    assert len(times) == MAX_BINS
    assert {y for _, y in times} == {2.0}
    assert times[0][0] == 2.5 and times[-1][0] == 4 * MAX_BINS - 1.5


def test_passes_are_shown_of_the_arms_that_read_most(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    cells = [
        make_cell(in_extent=at * GB, device=at * GB, misses=GB, capacity_bytes=at * GB)
        for at in range(1, MAX_PASSES + 4)
    ]
    passes = gallery(make_study(cells))[-1]
    assert [figure.key for figure in passes.figures] == [
        f"timeline-{at:02}" for at in range(1, MAX_PASSES + 1)
    ]
    assert f"{MAX_PASSES} of {MAX_PASSES + 3} arms" in passes.prose[0]
    assert format_bytes((MAX_PASSES + 3) * GB) in passes.figures[0].title


# ---- generations, residency ---------------------------------------------------------------------


def generations(*pages: int) -> dict[str, Any]:
    rows = [
        {"seq": at, "age_ms": 9, "anon_pages": 1, "file_pages": n} for at, n in enumerate(pages)
    ]
    return {"nodes": [{"node": 0, "generations": rows}, {"node": 1, "generations": rows}]}


def test_generations_are_youngest_first_over_all_nodes_of_the_scope(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    root = {"memcg": "/", **generations(99, 99)}
    samples = [
        {**shot(1000.5, 0), "lru_gen": [root, {"memcg": "/scope", **generations(1, 2, 3)}]},
        shot(1001, 0),
        {**shot(1001.5, 0), "lru_gen": [root, {"memcg": "/scope", **generations(4, 5)}]},
    ]
    figure = generations_figure(make_study([with_samples(make_cell(), *samples)]).points[0])
    assert line(figure, "youngest") == [(1.0, 6), (2.0, 10)]
    assert line(figure, "second") == [(1.0, 4), (2.0, 8)]
    assert line(figure, "third") == [(1.0, 2), (2.0, 0)]


@pytest.mark.parametrize("found", [None, [], "text", [{"memcg": "/", **generations(0, 0)}]])
def test_no_generations_no_picture(
    make_cell: MakeCell, make_study: MakeStudy, found: object
) -> None:
    samples = [{**shot(1000 + at / 9, 0), "lru_gen": found} for at in range(3)]
    assert generations_figure(make_study([with_samples(make_cell(), *samples)]).points[0]) is None


def test_residency_is_the_share_of_the_simulated_set(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    def audit(*common: int) -> dict[str, Any]:
        looks = [
            {"iteration": at, "lru_bytes": 10, "overlap_bytes": n}
            for at, n in enumerate(common, start=1)
        ]
        empty = {"iteration": 9, "lru_bytes": 0, "overlap_bytes": 0}
        return {"audit": {"capacity_experts": 1, "points": [*looks, empty]}}

    cells = [make_cell(facts=audit(8, 6), repetition=1), make_cell(facts=audit(4), repetition=2)]
    figure = residency_figure(arms_of(make_study(cells)))
    assert figure is not None
    points = [(p.x, p.y, p.min, p.max, p.n) for p in figure.series[0].points]
    assert points == [(1, pytest.approx(0.6), 0.4, 0.8, 2), (2, 0.6, 0.6, 0.6, 1)]
    assert residency_figure(arms_of(make_study([make_cell()]))) is None


# ---- latency ------------------------------------------------------------------------------------


def test_buckets_end_where_the_reader_says() -> None:
    # 32 buckets per octave: single nanoseconds up to 64, then of 2, 4, ... nanoseconds.
    ends = bucket_end_ns(np.array([0, 31, 63, 64, 95, 96], dtype=np.int64))
    assert ends.tolist() == [1, 32, 64, 66, 128, 132]


def test_latency_is_the_share_of_reads_below(make_cell: MakeCell, make_study: MakeStudy) -> None:
    cells = [
        make_cell(result={"latency_histogram": rows}, repetition=at)
        for at, rows in enumerate(([[10, 1], [20, 3]], [[10, 3], [30, 1]]), start=1)
    ]
    figure = latency_figure(arms_of(make_study(cells)))
    assert figure is not None
    (series,) = figure.series
    shares = {round(float(p.x) * 1e9): (p.min, p.y, p.max, p.n) for p in series.points}
    assert shares[11] == (0.25, 0.5, 0.75, 2)
    assert shares[21] == (0.75, 0.875, 1.0, 2)
    assert shares[31] == (1.0, 1.0, 1.0, 2)


def test_an_edited_histogram_is_a_problem_of_its_cell(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    study = make_study([make_cell(result={"latency_histogram": [[1, 2, 3]]}), make_cell()])
    (problem,) = study.problems
    assert "latency_histogram is no list of pairs: the database was edited" in problem
    assert len(study.points) == 1


def test_the_gallery_is_pictures_of_plain_numbers(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    for section in gallery(make_study([make_cell()])):
        json.dumps([[(p.x, p.y) for s in f.series for p in s.points] for f in section.figures])
