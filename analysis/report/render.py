# SPDX-License-Identifier: Apache-2.0
"""Sections as text, as Markdown and as JSON: one renderer for all of them.

What is the same in every row of a table stands above it, and a column in which no row has a value
is left out, in text and in Markdown; JSON has every value under its key.
"""

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import asdict, is_dataclass
from typing import Any

from pagetier.analysis.report.formats import MISSING
from pagetier.analysis.report.section import Figure, Section, Table

__all__ = ["section_json", "section_markdown", "section_text", "shown_table"]

_WIDTH = 100
_TABLE_WIDTH = 160
# Cells are broken at the widest of these with which a table fits.
_CELL_WIDTHS = (60, 44, 32, 24, 18)


def section_json(section: Section) -> dict[str, Any]:
    """Every value of the section."""
    return {
        "key": section.key,
        "title": section.title,
        "prose": list(section.prose),
        "tables": [_table_json(table) for table in section.tables],
        "figures": [asdict(figure) for figure in section.figures],
        "blocks": list(section.blocks),
    }


def _table_json(table: Table) -> dict[str, Any]:
    keys = [column.key for column in table.columns]
    rows = [dict(zip(keys, map(_value, row), strict=True)) for row in table.rows]
    return {"caption": table.caption, "rows": rows}


def _value(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


# ---- what is shown of a table -------------------------------------------------------------------


def shown_table(table: Table) -> tuple[str, list[str], list[list[str]]]:
    """Caption with what all rows share, the remaining column names, and the texts."""
    texts = [[c.show(v) for c, v in zip(table.columns, row, strict=True)] for row in table.rows]
    different = [len({row[at] for row in texts}) > 1 for at in range(len(table.columns))]
    # Of a single row everything is the same: it stays whole, without what it does not have.
    kept = [
        at
        for at in range(len(table.columns))
        if different[at] or (len(texts) == 1 and texts[0][at] not in ("", MISSING))
    ]
    shared = [
        f"{column.name} {texts[0][at]}"
        for at, column in enumerate(table.columns)
        if len(texts) > 1 and not different[at] and texts[0][at] not in ("", MISSING)
    ]
    caption = f"{table.caption} (all: {'; '.join(shared)})" if shared else table.caption
    return (
        caption,
        [table.columns[at].name for at in kept],
        [[row[at] for at in kept] for row in texts],
    )


# ---- text ---------------------------------------------------------------------------------------


def section_text(section: Section) -> str:
    """For a terminal: columns aligned, sentences wrapped."""
    parts = [f"{section.title}\n{'=' * len(section.title)}"]
    parts += ["\n".join(textwrap.wrap(text, _WIDTH)) for text in section.prose]
    parts += ["\n".join(_table_lines(table)) for table in section.tables]
    parts += section.blocks
    return "\n\n".join(parts) + "\n"


def _table_lines(table: Table) -> Iterator[str]:
    caption, names, rows = shown_table(table)
    yield from textwrap.wrap(f"{caption}:", _WIDTH)
    for limit in _CELL_WIDTHS:
        broken = [[_broken(text, limit) for text in row] for row in (names, *rows)]
        # A header is no wider than what stands below it, but for its longest word.
        broken[0] = [_broken(name, _longest(broken[1:], at)) for at, name in enumerate(names)]
        widths = [_longest(broken, at) for at in range(len(names))]
        if sum(widths) + 2 * len(widths) <= _TABLE_WIDTH:
            break
    yield from _aligned(broken[0], widths)
    yield "  ".join("-" * width for width in widths)
    for row in broken[1:]:
        yield from _aligned(row, widths)


def _broken(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 12), break_long_words=False, break_on_hyphens=False) or [
        ""
    ]


def _longest(rows: list[list[list[str]]], at: int) -> int:
    return max((len(line) for row in rows for line in row[at]), default=0)


def _aligned(row: list[list[str]], widths: list[int]) -> Iterator[str]:
    for line in range(max(map(len, row), default=0)):
        texts = (cell[line] if line < len(cell) else "" for cell in row)
        yield "  ".join(
            text.ljust(width) for text, width in zip(texts, widths, strict=True)
        ).rstrip()


# ---- Markdown -----------------------------------------------------------------------------------


def section_markdown(section: Section) -> str:
    """For a file or an issue thread; pictures are links to `figures/` beside the file."""
    parts = [f"## {_line(section.title)}", *map(_line, section.prose)]
    parts += [_figure_markdown(figure) for figure in section.figures]
    parts += [_table_markdown(table) for table in section.tables]
    parts += [f"```\n{block}\n```" for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def _figure_markdown(figure: Figure) -> str:
    alt = _line(figure.title).translate(str.maketrans("[]", "()"))
    return f"![{alt}](figures/{figure.key}.svg)"


def _table_markdown(table: Table) -> str:
    caption, names, rows = shown_table(table)
    lines = [_row(names), "|" + "---|" * len(names), *map(_row, rows)]
    return "\n".join([f"{_line(caption)}:", "", *lines])


def _row(texts: Iterable[str]) -> str:
    return "| " + " | ".join(map(_line, texts)) + " |"


def _line(text: str) -> str:
    """One line that cannot end a table cell: names come from devices, files and kernels."""
    return " ".join(text.split()).replace("|", "\\|")
