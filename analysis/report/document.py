# SPDX-License-Identifier: Apache-2.0
"""The whole report of one results directory: its sections in order, and its JSON document."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pagetier.analysis.render import report_json
from pagetier.analysis.report.agreement import agreement_section
from pagetier.analysis.report.beside import Beside
from pagetier.analysis.report.capacity import capacity_section
from pagetier.analysis.report.checklist import checklist_section
from pagetier.analysis.report.drift import drift_section
from pagetier.analysis.report.engine import engine_section, is_engine_study
from pagetier.analysis.report.equal_memory import equal_memory_section
from pagetier.analysis.report.ledger import ledger_section
from pagetier.analysis.report.placement import placement_section
from pagetier.analysis.report.prefetch import prefetch_section
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.reclaim import reclaim_section
from pagetier.analysis.report.render import section_json
from pagetier.analysis.report.section import Section
from pagetier.analysis.report.simulated import simulated_section
from pagetier.analysis.report.validity import validity_section

__all__ = ["appendices", "report_document", "sections"]


def sections(study: Study, beside: Beside) -> list[Section]:
    """What was found, in the order of reading; a section without anything to tell is left out."""
    if is_engine_study(study):
        # Its arms differ in what holds the weights, which the sections of replays do not know.
        decoded = [validity_section(study), engine_section(study)]
        return [section for section in decoded if section is not None]
    found = [
        validity_section(study),
        capacity_section(study),
        reclaim_section(study),
        agreement_section(study),
        equal_memory_section(study),
        prefetch_section(study),
        ledger_section(study),
        drift_section(study),
        simulated_section(beside),
        placement_section(study, beside),
    ]
    return [_with_points(section) for section in found if section is not None]


def _with_points(section: Section) -> Section:
    """Without figures that have nothing to show."""
    figures = tuple(f for f in section.figures if any(series.points for series in f.series))
    return replace(section, figures=figures)


def appendices(study: Study, beside: Beside) -> list[Section]:
    """What is looked up rather than read."""
    return [checklist_section(study, beside)]


def report_document(study: Study, told: Sequence[Section]) -> dict[str, Any]:
    """The document of ``report --json``: every cell, then the sections, then what is wrong.

    Cells are turned into JSON one by one: their passes do not fit into memory together.
    """
    whole = report_json(replace(study.results, cells=()))
    cells = [
        found
        for cell in study.results.cells
        for found in report_json(replace(study.results, cells=(cell,)))["cells"]
    ]
    return {
        **whole,
        "cells": cells,
        "sections": [section_json(section) for section in told],
        "problems": list(study.problems),
    }
