# SPDX-License-Identifier: Apache-2.0
"""How documents look on a terminal; every number shown also stands in the ``--json`` form."""

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from pagetier.analysis.render import cells_table
from pagetier.analysis.results import Results
from pagetier.analysis.units import format_bytes

__all__ = ["as_document", "cells", "doctor", "engine_plan", "pairs", "plan"]


def as_document(record: Any) -> dict[str, Any]:
    """A frozen record as a JSON object."""
    return asdict(record)


def pairs(console: Console, document: dict[str, Any]) -> None:
    """One key and value per line; nested keys joined by dots; a missing value is n/a."""
    for key, value in _flat(document):
        console.print(f"{key:<28} {_text(value)}", highlight=False, markup=False, soft_wrap=True)


def _flat(document: dict[str, Any], prefix: str = "") -> "list[tuple[str, Any]]":
    rows: list[tuple[str, Any]] = []
    for key, value in document.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", value))
    return rows


def _text(value: object) -> str:
    if value is None:
        return "n/a"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def doctor(console: Console, document: dict[str, Any]) -> None:
    """Capabilities with what was found; the remedy stands under each gap."""
    signs = {True: "ok  ", False: "GAP ", None: "?   "}
    for item in document["requirements"]:
        line = f"{signs[item['ok']]} {item['name']}: {item['found']}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
        if item["ok"] is not True and item["remedy"]:
            console.print(f"       {item['remedy']}", highlight=False, markup=False, soft_wrap=True)
    if "probe" in document:
        console.print("probe", highlight=False)
        pairs(console, document["probe"])


def plan(console: Console, document: dict[str, Any]) -> None:
    """The forecast of a dry run."""
    table = Table("#", "cell", "demand", "device (simulated)", "about")
    for number, row in enumerate(document["cells"], start=1):
        table.add_row(
            str(number),
            row["cell"],
            format_bytes(row["demand_bytes"]),
            format_bytes(row["device_bytes"]),
            f"{row['seconds']:.0f} s",
        )
    console.print(table)
    for item in document["refused"]:
        console.print(f"refused: {item['cell']}: {item['reason']}", highlight=False, markup=False)
    if document["prefetch"]:
        console.print(_qualities(document["prefetch"]))
    assumed = document["assumed"]
    console.print(
        f"about {document['seconds'] / 60:.0f} min, {format_bytes(document['device_bytes'])} from "
        f"the device, assuming {format_bytes(assumed['device_bytes_per_s'])}/s from it and "
        f"{format_bytes(assumed['memory_bytes_per_s'])}/s from memory",
        highlight=False,
    )


def engine_plan(console: Console, document: dict[str, Any]) -> None:
    """The cells of an engine's campaign; what they read is known only to the engine."""
    table = Table("#", "cell", "demand, at most")
    for number, row in enumerate(document["cells"], start=1):
        table.add_row(str(number), row["cell"], format_bytes(row["demand_bytes_at_most"]))
    console.print(table)
    for item in document["refused"]:
        console.print(f"refused: {item['cell']}: {item['reason']}", highlight=False, markup=False)
    console.print(
        f"{document['engine']} loads {format_bytes(document['weights_bytes'])} for each cell, "
        f"{format_bytes(document['experts_bytes'])} of them experts; decoded once before, for its "
        "routing",
        highlight=False,
    )


def _qualities(plans: list[dict[str, Any]]) -> Table:
    """Recall and precision of each prefetch plan, overall, then recall by layer."""
    table = Table("prefetch plan", "hints", "recall", "precision", "recall by layer [min-max]")
    for row in plans:
        recalls = [layer["recall"] for layer in row["layers"] if layer["recall"] is not None]
        spread = f"{min(recalls):.1%}-{max(recalls):.1%}" if recalls else "n/a"
        least = row["min_layer_recall"]
        name = f"{row['plan']}, layers above {least:g}" if least else row["plan"]
        table.add_row(
            name, f"{row['hints']:,}", _share(row["recall"]), _share(row["precision"]), spread
        )
    return table


def _share(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.1%}"


def cells(console: Console, results: Results) -> None:
    """The campaign's table: measured beside simulated, the verdict last.

    What is the same in every row stands above the table, not in it.
    """
    header, *rows = cells_table(results)
    told = [at for at, name in enumerate(header) if name in _SHARED and _same(rows, at)]
    if told:
        shared = ", ".join(f"{header[at]} {rows[0][at]}" for at in told)
        console.print(f"all cells: {shared}", highlight=False, markup=False)
    kept = [at for at in range(len(header)) if at not in told]
    table = Table(*(_column(header[at]) for at in kept))
    for row in rows:
        table.add_row(*(row[at] for at in kept))
    console.print(table)


def _column(name: str) -> Column:
    """As narrow as its longest word: a broken word in a header is no header."""
    return Column(name, overflow="fold", min_width=max(map(len, name.split())))


_SHARED = ("tier", "mechanism", "layout", "advice", "n")


def _same(rows: list[tuple[str, ...]], at: int) -> bool:
    return len({row[at] for row in rows}) == 1
