# SPDX-License-Identifier: Apache-2.0
"""What a section of the report is made of, before it is text, Markdown, JSON or a picture.

A table holds values, None where one is missing; its columns know their names and how a value is
shown.  A figure holds points with what they are: measured, simulated or projected.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pagetier.analysis.report.formats import plain

__all__ = [
    "Column",
    "Figure",
    "FigurePoint",
    "Form",
    "Kind",
    "Panel",
    "Section",
    "Series",
    "Table",
    "Unit",
]

Kind = Literal["measured", "simulated", "projected", "reference", "rejected"]
Form = Literal[
    "bars", "capacity", "generations", "hit-rate", "latency", "ledger", "residency", "timeline"
]
Unit = Literal["bytes", "s", "share", "count"]


@dataclass(frozen=True, slots=True)
class Column:
    """`key` names the value in JSON; `name` heads the column, with its unit."""

    key: str
    name: str
    show: Callable[[Any], str] = plain


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of values, one per column."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class FigurePoint:
    """A median with its least and greatest; all three are equal for n = 1."""

    x: float | str
    y: float
    min: float
    max: float
    n: int


@dataclass(frozen=True, slots=True)
class Series:
    """Points that belong together; `panel` names the part of the picture they stand in."""

    name: str
    kind: Kind
    points: tuple[FigurePoint, ...]
    panel: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of a picture with an axis of its own."""

    name: str
    y: str
    unit: Unit


@dataclass(frozen=True, slots=True)
class Figure:
    """The data of one picture: `form` is how it is drawn, `scale` of both axes, `note` what a
    reader must know of it.  `key` is unique in a report and a file name; of `panels` each has an
    axis of its own, without them all share `y` and `unit`."""

    key: str
    title: str
    x: str
    y: str
    scale: Literal["log", "linear", "category"]
    series: tuple[Series, ...]
    form: Form
    unit: Unit = "bytes"
    note: str = ""
    panels: tuple[Panel, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the report; `prose` are whole sentences, before the tables; `blocks` are texts to
    be pasted as they are."""

    key: str
    title: str
    prose: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    blocks: tuple[str, ...] = ()
