# SPDX-License-Identifier: Apache-2.0
"""Results for people and programs: rows of a table, a Markdown block to paste, a JSON document.

Cells that differ in nothing but the repetition share a row: its figures are medians over the kept
ones, and the spread that is shown is least to greatest of their medians.  Rejected cells are never
averaged; they are listed with their reasons.  Simulated columns say so; a missing figure is n/a.
"""

import json
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from pagetier.analysis.derive import CellFacts, Spread, derive_cell
from pagetier.analysis.hint_counts import Hints
from pagetier.analysis.naming import (
    mapping,
    mglru_enabled,
    prefetch_name,
    reclaim_name,
    tier_name,
)
from pagetier.analysis.render_json import report_json
from pagetier.analysis.results import Cell, Results
from pagetier.analysis.units import format_bytes

__all__ = [
    "COLUMNS",
    "cells_table",
    "markdown_block",
    "prefetch_name",
    "reclaim_name",
    "report_json",
]

COLUMNS = (
    "tier",
    "mechanism",
    "C",
    "effective C",
    "layout",
    "advice",
    "n",
    "s/it median [min-max]",
    "demand GB/it",
    "device GB/it",
    "nominal GB/it (simulated)",
    "at effective C (simulated)",
    "amplification",
    "in-extent amplification",
    "over-read share",
    "served",
    "verdict",
)
"""The columns of every table.  What else rows may differ in stands before `n`, what only some
mechanisms have before `served`; each only where there is something to tell."""

_LEGEND = (
    "Measured: effective C (time-mean of resident file pages), s/it, demand, device, over-read,"
    " served. Simulated: nominal, the misses of an exact global LRU of whole experts at C over"
    " warm-up and measured pass, and the same at the effective C; amplification is device / nominal"
    " and in-extent amplification is in-extent / nominal.",
    "in-extent: bytes inside the experts asked for that were absent just before their read;"
    " over-read share: the rest of what this process read, mostly readahead; served:"
    " 1 - in-extent / demand. Without its over-read share no amplification judges reclaim.",
    "locked: share of the host's memory that the balloon held. scan/steal: pages scanned per page"
    " reclaimed, an indicator: of kswapd and direct reclaim (vmstat), under a wall of the scope"
    " (memory.stat) or of all file reclaim (vmstat); MGLRU counts scans as classic LRU does not.",
    "served by arena: that part of served which came from locked memory, the rest from the page"
    " cache. time / page cache: s/it to that of the page cache with the same budget and without"
    " hints. resident / hinted: bytes in the page cache just after a hint to the bytes it named;"
    " hinted, then used: of the bytes that hints brought, those still there at the next read.",
    "n: kept repetitions; each s/it is the median of a measured pass, its bracket min-max over n"
    " repetitions. Warm-up passes and rejected cells are in no figure. GB = 10^9 B.",
)


@dataclass(frozen=True, slots=True)
class _Row:
    """The repetitions of one cell specification."""

    spec: Mapping[str, Any]
    mglru: str
    cells: tuple[Cell, ...]
    facts: tuple[CellFacts, ...]  # of the kept cells
    base_s: float | None = None  # s/it of the page cache beside it, where other tiers are

    @property
    def kept(self) -> int:
        return len(self.facts)


def cells_table(results: Results) -> list[tuple[str, ...]]:
    """The column names, then one row of texts per cell specification."""
    rows = _rows(results)
    differing = [column for column in _DIFFERING if len({*map(column.text, rows)} - {"n/a"}) > 1]
    telling = [column for column in _TELLING if {*map(column.text, rows)} - {"n/a"}]
    table = [(COLUMNS, None), *((_texts(row), row) for row in rows)]
    return [_spliced(texts, row, differing, telling) for texts, row in table]


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    text: Callable[["_Row"], str]


def _spliced(
    texts: tuple[str, ...], row: "_Row | None", differing: list[_Column], telling: list[_Column]
) -> tuple[str, ...]:
    def extra(columns: list[_Column]) -> list[str]:
        return [column.name if row is None else column.text(row) for column in columns]

    n, served = COLUMNS.index("n"), COLUMNS.index("served")
    return (*texts[:n], *extra(differing), *texts[n:served], *extra(telling), *texts[served:])


def _of_spec(key: str) -> Callable[["_Row"], str]:
    def text(row: _Row) -> str:
        value = row.spec.get(key)
        return "n/a" if value is None else str(value)

    return text


def _locked(row: "_Row") -> str:
    """Share of the host's memory that the balloon held."""
    return _percent(_median(row, lambda facts: facts.locked_share))


def _scan_to_steal(row: "_Row") -> str:
    def figure(facts: CellFacts) -> float | None:
        return None if facts.reclaim is None else facts.reclaim.scan_to_steal

    return _number(_median(row, figure))


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}"


def _served_by_arena(row: "_Row") -> str:
    """Of the demand; the rest of what was served came from the page cache."""
    arena = row.spec.get("arena") is not None
    return _percent(_median(row, lambda facts: facts.served_arena)) if arena else "n/a"


def _hint_figure(figure: Callable[[Hints], float | None]) -> Callable[[CellFacts], float | None]:
    return lambda facts: None if facts.hints is None else figure(facts.hints)


def _hints_given(row: "_Row") -> str:
    """Submitted, overwritten before the worker took them, completed."""
    counts = [
        _median(row, _hint_figure(figure))
        for figure in (lambda h: h.submitted, lambda h: h.overwritten, lambda h: h.completed)
    ]
    return "n/a" if None in counts else "/".join(f"{count:.0f}" for count in counts)


def _hints_resident(row: "_Row") -> str:
    return _percent(_median(row, _hint_figure(lambda hints: hints.resident_share)))


def _hints_used(row: "_Row") -> str:
    """Of the bytes that hints brought, those that were still there at the expert's next read."""
    return _percent(_median(row, _hint_figure(lambda hints: hints.used_share)))


def _time_ratio(row: "_Row") -> str:
    """To the row of the page cache that differs from this one in tier and advisor alone."""
    own = _repetition_medians(row)
    if row.base_s is None or own is None:
        return "n/a"
    return f"{own.median / row.base_s:.2f}x"


def _prefetch_text(row: "_Row") -> str:
    return prefetch_name(row.spec) or "none"


def _spine_text(row: "_Row") -> str:
    spine = row.spec.get("spine_bytes")
    return "n/a" if spine is None else format_bytes(spine)


def _arena_table(row: "_Row") -> str:
    arena = mapping(row.spec.get("arena"))
    return PurePath(str(arena["table"])).name if "table" in arena else "n/a"


_DIFFERING = (
    _Column("MGLRU", lambda row: row.mglru),
    _Column("arena table", _arena_table),
    _Column("spine", _spine_text),
    _Column("prefetch", _prefetch_text),
    _Column("prompt", _of_spec("prompt")),
    _Column("read_ahead_kb", _of_spec("read_ahead_kb")),
    _Column("read", _of_spec("read")),
    _Column("threads", _of_spec("threads")),
    _Column("barrier", _of_spec("barrier")),
    _Column("headroom", _of_spec("headroom")),
    _Column("balloon order", _of_spec("balloon_order")),
    _Column("balloon huge pages", _of_spec("balloon_huge_pages")),
)
_TELLING = (
    _Column("locked", _locked),
    _Column("scan/steal", _scan_to_steal),
    _Column("time / page cache", _time_ratio),
    _Column("hints given/overwritten/done", _hints_given),
    _Column("resident / hinted", _hints_resident),
    _Column("hinted, then used", _hints_used),
    _Column("served by arena", _served_by_arena),
)


def _rows(results: Results) -> list[_Row]:
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in results.cells:
        spec = {key: value for key, value in cell.spec.items() if key != "repetition"}
        key = json.dumps(spec, sort_keys=True), _mglru_state(cell, results.host)
        groups.setdefault(key, []).append(cell)
    rows = [
        _Row(
            spec=cells[0].spec,
            mglru=mglru,
            cells=tuple(cells),
            facts=tuple(derive_cell(cell) for cell in cells if cell.state == "kept"),
        )
        for (_, mglru), cells in groups.items()
    ]
    return sorted(_beside_page_cache(rows), key=_place)


def _beside_page_cache(rows: list[_Row]) -> list[_Row]:
    """Rows with the time of the plain page cache that they compare with; of nothing else none."""
    times = {
        _comparable(row): spread.median
        for row in rows
        if _is_plain(row) and (spread := _repetition_medians(row)) is not None
    }
    compared = {_comparable(row) for row in rows if not _is_plain(row)}
    return [
        replace(row, base_s=times.get(_comparable(row)) if _comparable(row) in compared else None)
        for row in rows
    ]


def _is_plain(row: _Row) -> bool:
    return row.spec.get("tier") == "page-cache" and row.spec.get("prefetch") is None


def _comparable(row: _Row) -> str:
    """What must be equal of two rows whose times are compared."""
    left_out = ("repetition", "tier", "arena", "prefetch")
    spec = {key: value for key, value in row.spec.items() if key not in left_out}
    return json.dumps([spec, row.mglru], sort_keys=True)


def _mglru_state(cell: Cell, host: Mapping[str, Any]) -> str:
    return {True: "on", False: "off", None: "n/a"}[mglru_enabled(cell, host)]


def _place(row: _Row) -> tuple[Any, ...]:
    """Unlimited cells first, then each mechanism from large to small."""
    capacity = row.spec.get("capacity_bytes")
    names = [tier_name(row.spec), prefetch_name(row.spec)]
    names += [str(row.spec.get(key)) for key in ("layout", "advice", "pool")]
    mechanism = str(row.spec.get("mechanism"))
    return mechanism != "none", mechanism, -(capacity or 0), *names, row.mglru


def _texts(row: _Row) -> tuple[str, ...]:
    capacity = row.spec.get("capacity_bytes")
    return (
        tier_name(row.spec),
        str(row.spec.get("mechanism", "n/a")),
        "no limit" if capacity is None else format_bytes(capacity),
        _effective(row),
        _layout(row.spec),
        str(row.spec.get("advice", "n/a")),
        str(row.kept),
        _seconds(row),
        _gigabytes(row, lambda facts: facts.demand_bytes),
        _device(row),
        _gigabytes(row, lambda facts: facts.nominal_miss_bytes),
        _gigabytes(row, lambda facts: facts.effective_miss_bytes),
        _factor(_median(row, lambda facts: facts.amplification)),
        _factor(_median(row, lambda facts: facts.in_extent_amplification)),
        _percent(_median(row, lambda facts: facts.over_read_share)),
        _percent(_median(row, lambda facts: facts.served_fraction)),
        _verdict(row),
    )


def _effective(row: _Row) -> str:
    value = _median(row, lambda facts: facts.effective_capacity.bytes)
    return "n/a" if value is None else format_bytes(round(value))


def _layout(spec: Mapping[str, Any]) -> str:
    layout = spec.get("layout")
    return PurePath(str(spec.get("pool", "n/a"))).name if layout is None else str(layout)


def _median(row: _Row, figure: Callable[[CellFacts], float | None]) -> float | None:
    """Over the repetitions; None as soon as one of them lacks the figure."""
    values = [figure(facts) for facts in row.facts]
    known = [value for value in values if value is not None]
    return statistics.median(known) if known and len(known) == len(values) else None


def _repetition_medians(row: _Row) -> Spread | None:
    spreads = [facts.iteration_s for facts in row.facts]
    return Spread.of([spread.median for spread in spreads if spread is not None])


def _seconds(row: _Row) -> str:
    spread = _repetition_medians(row)
    if spread is None:
        return "n/a"
    if spread.count == 1:
        return f"{spread.median:.4g} (n=1)"
    return f"{spread.median:.4g} [{spread.min:.4g}-{spread.max:.4g}]"


def _gigabytes(row: _Row, figure: Callable[[CellFacts], int | None]) -> str:
    value = _median(row, lambda facts: facts.per_iteration(figure(facts)))
    return "n/a" if value is None else f"{value / 1e9:.3g}"


def _device(row: _Row) -> str:
    """With its spread: bytes are exact, so a difference of repetitions is the kernel's doing."""
    middle = _gigabytes(row, lambda facts: facts.device_bytes)
    values = [facts.per_iteration(facts.device_bytes) for facts in row.facts]
    known = [value for value in values if value is not None]
    if len(known) < 2 or len(known) != len(values):
        return middle
    return f"{middle} [{min(known) / 1e9:.3g}-{max(known) / 1e9:.3g}]"


def _factor(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}x"


def _percent(value: float | None) -> str:
    # Rounded first: whole pages of an unaligned demand are a share a little below 0.
    return "n/a" if value is None else f"{round(value, 3) + 0.0:.1%}"


def _verdict(row: _Row) -> str:
    rejected = len(row.cells) - row.kept
    if not row.kept:
        return f"rejected ({rejected})"
    labels = dict.fromkeys(label for cell in row.cells for label in _kept_labels(cell))
    parts = ["kept", *labels]
    if rejected:
        parts.append(f"{rejected} rejected")
    return "; ".join(parts)


def _kept_labels(cell: Cell) -> tuple[str, ...]:
    return cell.labels if cell.state == "kept" else ()


# ---- Markdown -----------------------------------------------------------------------------------


def markdown_block(results: Results) -> str:
    """One block to paste into an issue: host and hashes, the cells, the rejected ones, a legend."""
    name = results.meta.get("name", "campaign")
    parts = [
        f"### pagetier: {_plain(name)}, {len(results.cells)} cells"
        f" ({_plain(results.meta.get('created', 'date unknown'))})",
        _markdown_table([("fact", "value"), *host_rows(results)]),
        _markdown_table(cells_table(results)),
    ]
    rejected = [_rejection(cell) for cell in results.cells if cell.state == "rejected"]
    if rejected:
        parts.append("\n".join(["Rejected, in no figure above:", "", *rejected]))
    not_run = [_not_run(item) for item in results.not_run]
    if not_run:
        parts.append("\n".join(["Not run on this host:", "", *not_run]))
    parts.append("\n".join(f"- {line}" for line in _LEGEND))
    return "\n\n".join(parts) + "\n"


def host_rows(results: Results) -> list[tuple[str, str]]:
    """Facts that a figure depends on, and hashes of what was replayed; n/a where unknown."""
    host, device = results.host, mapping(results.host.get("device"))
    meta = results.meta
    facts: list[tuple[str, object]] = [
        ("kernel", host.get("kernel")),
        ("machine", host.get("machine")),
        ("memory", _size(host.get("mem_total_bytes"))),
        ("clock", host.get("clock", "the host's own")),
        ("page size", _size(host.get("page_bytes"))),
        ("device", _joined(device.get("name"), device.get("model"), device.get("file_system"))),
        ("read_ahead_kb", device.get("read_ahead_kb")),
        ("max_sectors_kb", device.get("max_sectors_kb")),
        ("page reclaim", _reclaim_of_all(results)),
        ("cgroup memory controller", host.get("cgroup_memory")),
        ("proactive reclaim", _listed(host.get("proactive_reclaim"))),
        ("pagetier", meta.get("pagetier_version")),
        ("trace sha256", meta.get("trace_sha256")),
        ("plan sha256", meta.get("plan_sha256")),
        *((f"pool sha256 {PurePath(path).name}", digest) for path, digest in results.pools.items()),
        ("campaign sha256", meta.get("campaign_sha256")),
    ]
    return [(name, "n/a" if value is None else str(value)) for name, value in facts]


def _reclaim_of_all(results: Results) -> str | None:
    names = dict.fromkeys(reclaim_name(cell, results.host) for cell in results.cells)
    known = [name for name in names if name is not None]
    if len(known) < 2:
        return known[0] if known else None
    return f"differs by cell: {', '.join(known)}"


def _rejection(cell: Cell) -> str:
    spec = cell.spec
    capacity = spec.get("capacity_bytes")
    limit = "no limit" if capacity is None else format_bytes(capacity)
    mglru = f" MGLRU {spec['mglru']}," if spec.get("mglru") in ("on", "off") else ""
    what = (
        f"{tier_name(spec)}, {spec.get('mechanism')} {limit}, {_layout(spec)},{mglru}"
        f" advice {spec.get('advice')},{_prefetch_of(spec)} repetition {spec.get('repetition')}"
    )
    return f"- {_plain(what)}: {_plain('; '.join(cell.reasons) or 'no reason stored')}"


def _prefetch_of(spec: Mapping[str, Any]) -> str:
    name = prefetch_name(spec)
    return f" prefetch {name}," if name else ""


def _not_run(item: Mapping[str, Any]) -> str:
    return f"- {_plain(str(item.get('cell')))}: {_plain(str(item.get('reason')))}"


def _markdown_table(rows: Iterable[tuple[str, ...]]) -> str:
    header, *body = ["| " + " | ".join(map(_plain, row)) + " |" for row in rows]
    rule = "|" + "---|" * (header.count(" | ") + 1)
    return "\n".join([header, rule, *body])


def _plain(text: str) -> str:
    """One line that cannot end a table cell: names come from devices, files and kernels."""
    return " ".join(text.split()).replace("|", "\\|")


def _size(value: object) -> str | None:
    return f"{format_bytes(value)} ({value} B)" if isinstance(value, int) else None


def _joined(*parts: object) -> str | None:
    known = [str(part) for part in parts if part is not None]
    return ", ".join(known) or None


def _listed(values: object) -> str | None:
    if not isinstance(values, list):
        return None
    return ", ".join(map(str, values)) or "none found"
