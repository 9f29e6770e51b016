# SPDX-License-Identifier: Apache-2.0
"""Rows of a simulation as JSON, CSV or a table; each names the contract it counts under."""

import csv
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from pagetier.analysis.units import format_bytes
from pagetier.bench.output import print_json

__all__ = ["present", "print_csv"]


def present(
    documents: Sequence[dict[str, Any]], as_json: bool, as_csv: bool, contract: str
) -> None:
    """All rows, in the form that was asked for."""
    if as_json:
        print_json({"contract": contract, "rows": documents})
    elif as_csv:
        print_csv(documents)
    else:
        _print_table(documents, contract)


def print_csv(documents: Sequence[dict[str, Any]]) -> None:
    """One line a row; of the tie seeds their number, and the extremes of the misses."""
    flat = [
        {
            **{name: value for name, value in row.items() if name != "tie_spread"},
            **{f"tie_{name}": value for name, value in (row["tie_spread"] or {}).items()},
        }
        for row in documents
    ]
    for row in flat:
        if "tie_seeds" in row:
            row["tie_seeds"] = len(row["tie_seeds"])
    writer = csv.DictWriter(sys.stdout, fieldnames=list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)


def _print_table(documents: Sequence[dict[str, Any]], contract: str) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=180)
    table = Table(title=contract, title_justify="left")
    for name in ("policy", "budget", "experts in all"):
        table.add_column(name)
    for name in ("accesses", "hits", "misses", "by tie seed", "hit rate", "miss / iteration"):
        table.add_column(name, justify="right")
    for row in documents:
        table.add_row(*_cells(row))
    console.print(table)
    fits = {row["static_fit"] for row in documents if row["static_fit"] is not None}
    for fit in sorted(fits):
        console.print(f"static set fitted on: {fit}; its initial load is not among the misses")


def _cells(row: dict[str, Any]) -> list[str]:
    spread, rate, missed = row["tie_spread"], row["hit_rate"], row["miss_bytes_per_iteration"]
    return [
        row["policy"],
        row["budget"],
        "n/a" if row["budget_total_experts"] is None else str(row["budget_total_experts"]),
        str(row["accesses"]),
        str(row["hits"]),
        str(row["misses"]),
        "" if spread is None else f"{spread['min_misses']}-{spread['max_misses']}",
        "n/a" if rate is None else f"{rate:.4f}",
        "n/a" if missed is None else format_bytes(missed),
    ]
