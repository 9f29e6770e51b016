# SPDX-License-Identifier: Apache-2.0
"""What is in no figure and why: rejected cells, cells not run, and what could not be read."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pagetier.analysis.report import formats
from pagetier.analysis.report.arms import Arm, arm_names, arms_of
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import Column, Section, Table

__all__ = ["validity_section"]

_REJECTED = (
    Column("id", "cell"),
    Column("arm", "arm"),
    Column("repetition", "repetition"),
    Column("reasons", "why it is in no figure"),
)
_LABELLED = (Column("arm", "arm"), Column("n", "kept cells"), Column("label", "remark"))
_NOT_RUN = (Column("cell", "cell"), Column("reason", "why this host did not run it"))


def validity_section(study: Study) -> Section:
    """Every rejected cell with its reasons, and every remark on a kept one."""
    cells = study.results.cells
    rejected = sum(cell.state == "rejected" for cell in cells)
    arms = arms_of(study)
    name = arm_names(arms)
    tables = (
        Table("Rejected cells", _REJECTED, tuple(_rejected(arms, name))),
        Table("Remarks on kept cells", _LABELLED, tuple(_labelled(arms, name))),
        Table(
            "Not run on this host",
            _NOT_RUN,
            tuple((item.get("cell"), item.get("reason")) for item in study.results.not_run),
        ),
    )
    return Section(
        key="validity",
        title="Validity",
        prose=(_counted(len(cells), rejected), *_unread(study)),
        tables=tuple(table for table in tables if table.rows),
    )


def _counted(cells: int, rejected: int) -> str:
    if not cells:
        return "No cell is finished: there is nothing to report yet."
    if rejected == cells:
        return f"Cells rejected: {cells} of {cells}; no figure of this campaign can be used."
    if not rejected:
        return f"Cells kept: {cells} of {cells}."
    return (
        f"Cells kept: {cells - rejected} of {cells}; rejected, with the reasons below: {rejected}."
    )


def _unread(study: Study) -> Iterator[str]:
    for problem in study.problems:
        yield f"Not read: {problem}."


def _rejected(arms: list[Arm], name: Any) -> Iterator[tuple[Any, ...]]:
    for arm in arms:
        for cell in arm.cells:
            if cell.state == "rejected":
                reasons = "; ".join(cell.reasons) or "no reason stored"
                yield cell.id, name(arm), cell.spec.get("repetition"), reasons


def _labelled(arms: list[Arm], name: Any) -> Iterator[tuple[Any, ...]]:
    for arm in arms:
        labels = Counter(label for point in arm.points for label in point.cell.labels)
        for label, count in labels.items():
            yield name(arm), formats.plain(count), label
