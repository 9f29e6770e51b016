# SPDX-License-Identifier: Apache-2.0
"""Studies as tables for a terminal, and their rows made flat for CSV."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from pagetier.analysis.units import format_bytes

__all__ = ["flat_regime", "print_off_domain", "print_paper", "print_regimes"]

Row = dict[str, Any]
_NESTED = ("policies", "replays", "permuted", "gap_by_tie_seed")


def flat_regime(row: Row) -> Row:
    """One row without what is nested in it; a column for each policy."""
    flat = {name: value for name, value in row.items() if name not in _NESTED}
    ties, permuted = row["gap_by_tie_seed"] or {}, row["permuted"] or {}
    for end in ("min", "max"):
        flat[f"gap_tie_{end}"] = ties.get(end)
        flat[f"permuted_gap_{end}"] = permuted.get(f"gap_{end}")
    for policy in row["policies"]:
        flat[f"miss_fraction_{policy['policy']}"] = policy["miss_fraction"]
        flat[f"misses_{policy['policy']}"] = policy["misses"]
        flat[f"initial_load_{policy['policy']}"] = policy["initial_load"]
    for replay in row["replays"]:
        flat[f"access_inflation_{replay['policy']}"] = replay["inflation"]
    return flat


def print_regimes(rows: Sequence[Row], contract: str) -> None:
    """Four tables: regime, gap, miss fractions, and what access replay would have added."""
    console = _console()
    _print(
        console,
        f"regime: {contract}",
        ("batch", "budget"),
        ("active", "union", "p95", "capacity", "r mean", "r p95", "r > 1", "union/logical"),
        ([*_key(row), *_regime_cells(row)] for row in rows),
    )
    _print(
        console,
        "gap: (m causal - m Belady) / m causal; permuted: the same events in random order",
        ("batch", "budget", "best causal"),
        ("gap", "by tie seed", "admission", "future victim", "permuted", "read / token"),
        ([*_key(row), row["best_causal"], *_gap_cells(row)] for row in rows),
    )
    _print(
        console,
        "m: (misses + initial load) / assignments before deduplication",
        ("batch", "budget"),
        (*(one["policy"] for one in rows[0]["policies"]), "static's load"),
        ([*_key(row), *_fraction_cells(row)] for row in rows),
    )
    _print(
        console,
        "access replay over event-atomic replay, recorded order (random order)",
        ("batch", "budget"),
        tuple(one["policy"] for one in rows[0]["replays"]),
        ([*_key(row), *map(_inflated, row["replays"])] for row in rows),
    )


def print_off_domain(rows: Sequence[Row], contract: str) -> None:
    """Hit rates of the frozen table beside LRU."""
    _print_tables(
        _console(), f"hit rates: {contract}; table of {rows[0]['trained_on']}", "budget", rows
    )


def print_paper(rows: Sequence[Row], figures: dict[str, list[Row]], seed: int) -> None:
    """Published beside ours, then figures 1 and 5 and the scopes in full."""
    curves, scopes = figures["figure_1"], figures["scopes"]
    console = _console()
    _print(
        console,
        f"published figures, and ours on synthesised traces of seed {seed}",
        ("section", "figure"),
        ("paper", "ours (access)", "difference", "goal", "met", "event-atomic", "difference"),
        (_paper_cells(row) for row in rows),
    )
    held = [row for row in rows if row["met"] is not None]
    met = sum(row["met"] for row in held)
    console.print(f"{met} of {len(held)} goals met; goals are held to access replay")
    _print(
        console,
        "figure 1, hit rates: mean over the domains (least-most)",
        ("replay", "E", "B"),
        tuple(dict.fromkeys(row["policy"] for row in curves)),
        _by_policy(curves, ("replay", "experts", "budget"), _curve_cell),
    )
    trained_on = figures["figure_5"][0]["trained_on"]
    title = f"figure 5, hit rates with 159 experts a layer; table of {trained_on}"
    _print_tables(console, title, "replay", figures["figure_5"])
    _print(
        console,
        "prose: one cache a layer / one for all layers, hit rates",
        ("replay", "B", "experts in all"),
        tuple(dict.fromkeys(row["policy"] for row in scopes)),
        _by_policy(scopes, ("replay", "budget", "total"), _scope_cell),
    )


def _print_tables(console: Console, title: str, key: str, rows: Sequence[Row]) -> None:
    """Of a frozen table on each trace; `key` is what else tells the rows apart."""
    _print(
        console,
        title,
        ("scored on", key),
        ("table", "own table", "LRU", "Belady", "table - LRU", "loaded before"),
        (
            [
                row["scored_on"],
                row[key],
                *(_percent(row[name]) for name in ("table", "own", "lru", "belady")),
                _percent(row["table_minus_lru"], sign="+"),
                str(row["initial_load"]),
            ]
            for row in rows
        ),
    )


def _paper_cells(row: Row) -> list[str]:
    unit = row["unit"]
    digits = 0 if unit == "tokens" else 1 if unit in ("%", "points") else 2
    off = [_off(row, row[name], digits) for name in ("difference", "event_difference")]
    return [
        row["where"],
        row["what"],
        f"{_range(row['paper_low'], row['paper_high'], digits)} {unit}",
        _range(row["ours_low"], row["ours_high"], digits),
        off[0],
        "" if row["goal"] is None else _off(row, row["goal"], digits).lstrip("+"),
        "" if row["met"] is None else "yes" if row["met"] else "NO",
        _range(row["event_low"], row["event_high"], digits),
        off[1],
    ]


def _off(row: Row, value: float, digits: int) -> str:
    return f"{value:+.1%}" if row["difference_is"] == "relative" else f"{value:+.{digits}f}"


def _range(low: float, high: float, digits: int) -> str:
    least, most = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return least if least == most else f"{least}-{most}"


def _by_policy(rows: Sequence[Row], keys: tuple[str, ...], cell: Any) -> list[list[str]]:
    """One line for all policies of a key."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        key = tuple(str(row[name]) for name in keys)
        lines.setdefault(key, list(key)).append(cell(row))
    return list(lines.values())


def _curve_cell(row: Row) -> str:
    return f"{row['mean']:.1f} ({row['low']:.1f}-{row['high']:.1f})"


def _scope_cell(row: Row) -> str:
    return f"{row['per_layer']:.1f} / {row['globally']:.1f}"


def _key(row: Row) -> list[str]:
    return ["recorded" if row["batch"] is None else str(row["batch"]), row["budget"]]


def _regime_cells(row: Row) -> list[str]:
    least, most = row["capacity_min"], row["capacity_max"]
    return [
        f"{row['mean_active']:.2f}",
        f"{row['union_mean']:.2f}",
        str(row["union_p95"]),
        str(least) if least == most else f"{least}-{most}",
        _number(row["ratio_mean"]),
        _number(row["ratio_p95"]),
        _percent(row["share_over_one"]),
        _number(row["union_over_logical"]),
    ]


def _gap_cells(row: Row) -> list[str]:
    ties, permuted = row["gap_by_tie_seed"], row["permuted"]
    best = next(one for one in row["policies"] if one["policy"] == row["best_causal"])
    read = best["bytes_per_token"]
    return [
        _percent(row["gap"]),
        "n/a" if ties is None else f"{_percent(ties['min'])}-{_percent(ties['max'])}",
        _percent(row["admission_share"]),
        _percent(row["future_victim_share"]),
        "n/a"
        if permuted is None
        else f"{_percent(permuted['gap_min'])}-{_percent(permuted['gap_max'])}"
        f" ({', '.join(permuted['best_causal'])})",
        format_bytes(read) if read is not None else f"{_number(best['per_token'])} experts",
    ]


def _fraction_cells(row: Row) -> list[str]:
    static = next(one for one in row["policies"] if one["policy"] == "static")
    fractions = [_percent(one["miss_fraction"]) for one in row["policies"]]
    return [*fractions, f"{static['initial_load']} experts"]


def _inflated(row: Row) -> str:
    return f"{_percent(row['inflation'], '+')} ({_percent(row['random_inflation'], '+')})"


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"


def _percent(value: float | None, sign: str = "") -> str:
    return "n/a" if value is None else f"{value:{sign}.2%}"


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=180)


def _print(
    console: Console,
    title: str,
    names: Sequence[str],
    numbers: Sequence[str],
    lines: Iterable[Sequence[str]],
) -> None:
    table = Table(title=title, title_justify="left", box=None)
    for name in names:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    for line in lines:
        table.add_row(*line)
    console.print(table)
