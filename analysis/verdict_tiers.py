# SPDX-License-Identifier: Apache-2.0
"""What evidence says about a cell's tier: rules and remarks beside those of `verdict`.

Keys read here, all optional: facts.budget {locked_asked_bytes}, facts.preload {bytes,
admitted_bytes}, facts.pool_resident_before_bytes and pool_resident_after_bytes, facts.admits,
facts.arena_reads_per_pass, facts.hints_failed, facts.hint_failure {errno, call, path}, facts.
read_ahead_kb; of each pass result.arena_reads and result.hints.
"""

import os
from collections.abc import Iterator, Mapping

from pagetier.analysis.counters import number, series
from pagetier.analysis.hint_counts import Hints
from pagetier.analysis.results import Cell
from pagetier.analysis.units import format_bytes

__all__ = ["tier_reasons", "tier_remarks"]

# Below this share of the bytes hinted a hint was not what it names.
_WHOLE_SHARE = 0.99


def tier_reasons(cell: Cell) -> Iterator[str]:
    """Why a cell does not measure the tier that it names."""
    yield from _lock_differs(cell)
    yield from _preload_admitted(cell)
    yield from _arena_reads_differ(cell)
    yield from _fell_back(cell)
    yield from _hints_failed(cell)


def tier_remarks(cell: Cell) -> Iterator[str]:
    """What a reader of the figures of a tier should know."""
    yield from _hints_cut(cell)
    yield from _kept_behind(cell)


def _lock_differs(cell: Cell) -> Iterator[str]:
    asked = number(cell.facts, "budget", "locked_asked_bytes")
    if asked is None:
        return
    for replay in cell.passes.values():
        found = {number(shot, "process", "vm_lck_bytes") for shot in series(replay)} - {asked}
        if found:
            other = min(found, key=str)
            shown = "unknown" if other is None else f"{other} B"
            yield (
                f"VmLck of the worker is {shown} in the {replay.name} pass, {asked} B of spine and"
                " arena were requested"
            )


def _preload_admitted(cell: Cell) -> Iterator[str]:
    if not isinstance(cell.facts.get("preload"), Mapping):
        return
    left = number(cell.facts, "pool_resident_before_bytes")
    if left is None:
        yield "residency unknown: nothing shows that preloading the arena bypassed the page cache"
    elif left:
        yield (
            f"{format_bytes(left)} of the pool were in the page cache after the arena was loaded,"
            " beside the budget"
        )


def _arena_reads_differ(cell: Cell) -> Iterator[str]:
    """What an arena holds never changes, so its hits are known before the first read."""
    wanted = number(cell.facts, "arena_reads_per_pass")
    for replay in cell.passes.values():
        found = number(replay.result, "arena_reads")
        if wanted is not None and found is not None and found != wanted:
            yield f"the arena served {found} reads in the {replay.name} pass, not its {wanted}"


def _left_behind(cell: Cell) -> int | None:
    """Pages of the pool that a tier which admits nothing left in the cache, from an expert on."""
    if cell.facts.get("admits") is not False:
        return None
    before = number(cell.facts, "pool_resident_before_bytes") or 0
    after = number(cell.facts, "pool_resident_after_bytes")
    expert_bytes = number(cell.facts, "expert_bytes") or number(cell.facts, "largest_expert_bytes")
    grown = None if after is None else after - before
    return grown if grown is not None and grown >= max(expert_bytes or 0, 1) else None


def _fell_back(cell: Cell) -> Iterator[str]:
    grown = _left_behind(cell)
    if cell.spec.get("tier") == "direct" and grown is not None:
        yield (
            f"fell back to buffered: {format_bytes(grown)} of the pool came into the page cache"
            " while it was read by O_DIRECT"
        )


def _kept_behind(cell: Cell) -> Iterator[str]:
    grown = _left_behind(cell)
    if cell.spec.get("tier") != "direct" and grown is not None:
        yield f"{format_bytes(grown)} of the pool stayed in the page cache, over-read or in use"


def _hints_failed(cell: Cell) -> Iterator[str]:
    failed = number(cell.facts, "hints_failed")
    if not failed:
        return
    first = cell.facts.get("hint_failure")
    why = ""
    if isinstance(first, Mapping):
        code = number(first, "errno") or 0
        why = f" (the first: {first.get('call')} on {first.get('path')}: {os.strerror(code)})"
    yield f"{failed} hints failed, so the cell measures fewer hints than it names{why}"


def _hints_cut(cell: Cell) -> Iterator[str]:
    measured = cell.passes.get("measured")
    hints = None if measured is None else Hints.of(measured)
    share = None if hints is None else hints.resident_share
    if share is None or share >= _WHOLE_SHARE or hints is None:
        return
    prefetch = cell.spec.get("prefetch")
    chunk = prefetch.get("chunk") if isinstance(prefetch, Mapping) else None
    cause = "cut at the readahead window" if chunk == "whole" else "cut, or evicted at once"
    yield f"hints {cause}: {share:.1%} of the bytes hinted were resident after"
