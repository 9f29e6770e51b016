# SPDX-License-Identifier: Apache-2.0
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from pagetier.analysis.derive import derive_cell
from pagetier.analysis.errors import InputError
from pagetier.analysis.report.beside import Beside
from pagetier.analysis.report.document import appendices, report_document, sections
from pagetier.analysis.report.reading import Study, read_study
from pagetier.analysis.report.render import section_markdown, section_text
from pagetier.analysis.results import Cell, read_results

MakeCell = Callable[..., Cell]
MakeStudy = Callable[..., Study]
GB = 10**9


def edit(study: Study, statement: str, *values: object) -> Path:
    """Change the database under a study; its directory."""
    with sqlite3.connect(study.results.path / "results.db") as db:
        db.execute(statement, values)
    db.close()
    return study.results.path


def told(study: Study) -> str:
    """Everything the report says, in both forms."""
    found = [*sections(study, Beside()), *appendices(study, Beside())]
    report_document(study, found)
    return "\n".join(f"{section_text(s)}\n{section_markdown(s)}" for s in found)


def test_the_same_cells_as_the_whole_reader(make_cell: MakeCell, make_study: MakeStudy) -> None:
    study = make_study([make_cell(repetition=n) for n in (1, 2)])
    whole = read_results(study.results.path)
    assert [cell.id for cell in study.results.cells] == [cell.id for cell in whole.cells]
    for lazy, eager in zip(study.results.cells, whole.cells, strict=True):
        assert dict(lazy.passes) == eager.passes
        assert list(lazy.passes) == ["warm-up", "measured"]
        assert derive_cell(lazy) == derive_cell(eager)
    assert [point.facts for point in study.points] == [derive_cell(cell) for cell in whole.cells]


def test_a_pass_is_there_again_after_another_cell(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    study = make_study([make_cell(seconds=1.0), make_cell(seconds=2.0, repetition=2)])
    first, second = study.results.cells
    before = first.passes["measured"]
    assert second.passes["measured"].iterations[0].wall_ns == 2 * 10**9
    assert first.passes["measured"] == before
    assert first.passes.get("third") is None


def test_rates_are_bytes_over_the_time_of_the_pass(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    study = make_study([make_cell(seconds=[1.0, 3.0], device=512 * 10**6)])
    rates = {rate.name: rate for rate in study.points[0].rates}
    assert rates["measured"].seconds == pytest.approx(4.0)
    assert rates["warm-up"].bytes_per_s == pytest.approx(2 * 512 * 10**6 / 4)


def test_an_edited_cell_is_a_problem_and_the_others_are_told(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    study = make_study([make_cell(repetition=n) for n in (1, 2, 3)])
    bad = study.results.cells[1].id
    found = read_study(edit(study, "UPDATE cells SET spec = '[1' WHERE id = ?", bad))
    assert len(found.points) == 2
    (problem,) = found.problems
    assert bad in problem and "edited" in problem
    assert problem in told(found)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE passes SET before = 'no JSON' WHERE cell_id = ? AND name = 'measured'",
        "UPDATE passes SET result = '[]' WHERE cell_id = ? AND name = 'measured'",
        "UPDATE passes SET after = '3' WHERE cell_id = ? AND name = 'warm-up'",
    ],
)
def test_an_edited_pass_is_a_problem(
    make_cell: MakeCell, make_study: MakeStudy, statement: str
) -> None:
    study = make_study([make_cell(repetition=n) for n in (1, 2)])
    found = read_study(edit(study, statement, study.results.cells[0].id))
    assert (len(found.points), len(found.results.cells), len(found.problems)) == (1, 1, 1)
    assert "edited" in found.problems[0]
    told(found)


def test_edited_host_facts_are_a_problem_and_the_cells_are_told(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    study = make_study([make_cell()])
    found = read_study(edit(study, "UPDATE meta SET value = '{' WHERE key = 'host'"))
    assert len(found.points) == 1
    assert "table meta, host" in found.problems[0]
    told(found)


def test_a_truncated_database_is_told_as_far_as_it_goes(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    study = make_study([make_cell(seconds=[0.1] * 400, repetition=n) for n in range(1, 13)])
    path = study.results.path / "results.db"
    whole = path.read_bytes()
    counts = set()
    for share in (0.9, 0.6, 0.3):
        path.write_bytes(whole[: int(len(whole) * share)])
        found = read_study(study.results.path)
        assert found.problems and all(str(path) in problem for problem in found.problems)
        assert "results.db" in told(found)
        counts.add(len(found.points))
    assert max(counts) > 0
    path.write_bytes(whole[:1000])
    with pytest.raises(InputError, match="not a readable results database"):
        read_study(study.results.path)


def test_another_schema_says_what_it_is(make_cell: MakeCell, make_study: MakeStudy) -> None:
    study = make_study([make_cell()])
    directory = edit(study, "UPDATE meta SET value = '0' WHERE key = 'schema_version'")
    with pytest.raises(InputError) as caught:
        read_study(directory)
    for text in ("schema version 0", "made", "2026-01-01", "1 cells", "written by pagetier 0.1.0"):
        assert text in str(caught.value)


def test_no_directory_and_no_database(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such directory"):
        read_study(tmp_path / "absent")
    with pytest.raises(InputError, match=r"no results\.db in it"):
        read_study(tmp_path)


def test_an_empty_campaign_is_told(make_study: MakeStudy) -> None:
    text = told(make_study([]))
    assert "No cell is finished: there is nothing to report yet." in text
    assert "No kept cell has a figure to show." in text


def test_a_campaign_of_rejected_cells_is_told(make_cell: MakeCell, make_study: MakeStudy) -> None:
    study = make_study([make_cell(state="rejected", repetition=n) for n in (1, 2)])
    assert study.points == ()
    text = told(study)
    assert "Cells rejected: 2 of 2; no figure of this campaign can be used." in text
    assert text.count("it was rejected") == 2  # once in each form: the reason is the same


def test_nothing_is_left_beside_the_database(make_cell: MakeCell, make_study: MakeStudy) -> None:
    study = make_study([make_cell()])
    told(study)
    assert [path.name for path in study.results.path.iterdir()] == ["results.db"]
