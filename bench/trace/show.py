# SPDX-License-Identifier: Apache-2.0
"""Facts of traces and checks of synthetic ones as a terminal shows them."""

from typing import Any

from rich.console import Console
from rich.table import Column, Table

from pagetier.bench import show

__all__ = ["documents", "synthesis"]

# What is a sentence or a list stands in a table of its own, or only in the JSON form.
_NOT_PAIRS = ("layers", "coverage_over_time", "gate_mass_by_rank", "check", "parameters")


def documents(
    console: Console, traces: dict[str, dict[str, Any]], overlap: dict[str, Any] | None
) -> None:
    """The facts of each trace by its name, and the overlap of several."""
    for name, document in traces.items():
        if overlap is not None:
            _line(console, name)
        _facts(console, document)
    if overlap is not None:
        _jaccard(console, overlap)


def _facts(console: Console, document: dict[str, Any]) -> None:
    """Pairs, coverage over time, and a line for each layer."""
    show.pairs(console, {key: value for key, value in document.items() if key not in _NOT_PAIRS})
    _series(console, "coverage after", document["coverage_over_time"])
    if document["gate_mass_by_rank"] is not None:
        masses = "  ".join(f"{mass:.3f}" for mass in document["gate_mass_by_rank"])
        _line(console, f"{'gate mass by rank':<28} {masses}")
    windows = list(document["reuse"])
    table = Table(*map(_right, ["layer", "reads", "experts used", "zipf", "top-8"]), box=None)
    for window in windows:
        table.add_column(f"W{window}", justify="right")
    for layer in document["layers"]:
        shares = [_number(layer["reuse"][window]) for window in windows]
        table.add_row(
            str(layer["layer"]),
            f"{layer['reads']:,}",
            str(layer["experts_used"]),
            _number(layer["zipf_alpha"]),
            _number(layer["top8_share"]),
            *shares,
        )
    console.print(table)


def _series(console: Console, name: str, points: list[dict[str, float]]) -> None:
    values = "  ".join(f"{point['iterations']}: {point['coverage']:.3f}" for point in points)
    _line(console, f"{name:<28} {values}")


def _jaccard(console: Console, document: dict[str, Any]) -> None:
    title = f"overlap of the top {document['top']} experts a layer (Jaccard)"
    table = Table("trace", "trace", *map(_right, ["mean", "min", "max"]), title=title, box=None)
    for pair in document["pairs"]:
        table.add_row(pair["a"], pair["b"], *(_number(pair[key]) for key in ("mean", "min", "max")))
    console.print(table)


def synthesis(console: Console, document: dict[str, Any]) -> None:
    """What was written, the parameters that were fitted, target against achieved."""
    show.pairs(console, {key: value for key, value in document.items() if key not in _NOT_PAIRS})
    if "parameters" in document:
        _line(console, "parameters:")
        for name, value in document["parameters"].items():
            _line(console, f"  {name}: {'null' if value is None else value}")
    if "check" in document:
        _targets(console, document["check"])
        _predictions(console, document["check"])


def _targets(console: Console, check: dict[str, Any]) -> None:
    columns: list[Column | str] = ["statistic", _right("target"), "achieved", "verdict"]
    fitted = ", ".join(check["fitted_parameters"])
    table = Table(
        *columns, title=f"calibrated to (fitted: {fitted})", title_justify="left", box=None
    )
    for row in check["targets"]:
        low, high = row["target"]
        target = _number(low) if low == high else f"{_number(low)} - {_number(high)}"
        achieved = "  ".join(f"{name} {_number(value)}" for name, value in row["achieved"].items())
        table.add_row(row["statistic"], target, achieved, row["verdict"])
    console.print(table)


def _predictions(console: Console, check: dict[str, Any]) -> None:
    if not check["predictions"]:
        return
    title = "predicted: nothing was fitted to it (* it had a say in what is set by hand)"
    columns: list[Column | str] = ["figure", *map(_right, ["published", "predicted", "error"])]
    table = Table(*columns, title=title, title_justify="left", box=None)
    for row in check["predictions"]:
        values = _number(row["published"]), _number(row["predicted"]), f"{row['error']:+.1%}"
        table.add_row(row["figure"] + (" *" if row["informed"] else ""), *values)
    console.print(table)


def _right(name: str) -> Column:
    return Column(name, justify="right")


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.4g}"


def _line(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
