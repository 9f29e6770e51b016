# SPDX-License-Identifier: Apache-2.0
"""Keep or reject a cell, from evidence alone.

`judge` is a pure function of stored numbers: a verdict can be recomputed later, elsewhere, under
other limits.  Each reason is one sentence with its numbers.  A reason rejects; a label is a remark
on a cell that may still be kept.  What the evidence for a rule needs and the host does not offer
(a scope's events on a host without a memory controller, say) is not held against a cell, except
where no verdict is possible without it.

Keys of `cell.facts` read here, all optional: failure (text), problems (list of texts), oom_kills
(list of texts), kernel_log_lost, scope_alive (bool), reads_per_pass, demand_bytes_per_pass,
distinct_bytes_per_pass, expert_bytes, eviction {proven, reason}, budget {page_cache_bytes},
admits, mglru {during, after, min_ttl_ms}, labels (list of texts); `verdict_tiers` reads more.
Keys of `cell.enforced`: limit_bytes, locked_bytes, facts {cgroup_version}.  Of a cell in which an
engine decoded, `engine` reads more.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pagetier.analysis.counters import (
    counters_backwards,
    delta,
    device_read_bytes,
    number,
    process_read_bytes,
    scope_read_bytes,
    series,
)
from pagetier.analysis.engine import engine_reasons, is_decoded
from pagetier.analysis.facts import arena_bytes, in_extent_bytes, minus
from pagetier.analysis.foreign import foreign_of, host_read_bytes, largest_other
from pagetier.analysis.naming import mapping
from pagetier.analysis.results import Cell, Pass
from pagetier.analysis.units import format_bytes
from pagetier.analysis.verdict_tiers import tier_reasons, tier_remarks

__all__ = ["Limits", "Verdict", "judge"]

PASSES = ("warm-up", "measured")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of what is tolerated before a cell is rejected.

    Shares are of device bytes (`foreign_share`), of the larger of two counts
    (`disagreement_share`), of the limit (`peak_tolerance`), and of what the cache must have held
    (`charge_share`).  Byte differences up to `floor_bytes` are never held against a cell.
    """

    foreign_share: float = 0.05
    disagreement_share: float = 0.05
    peak_tolerance: float = 0.01
    charge_share: float = 0.10
    floor_bytes: int = 16 * 2**20

    def tolerated_bytes(self, share: float, whole: int) -> float:
        return max(share * whole, self.floor_bytes)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`state` is "kept" without `reasons`, else "rejected"."""

    state: str
    reasons: tuple[str, ...]
    labels: tuple[str, ...]


def judge(cell: Cell, limits: Limits | None = None) -> Verdict:
    """The verdict on the numbers of `cell`; its stored state and reasons are not looked at."""
    limits = limits or Limits()
    reasons = tuple(reason for rule in _RULES for reason in rule(cell, limits))
    labels = tuple(label for rule in _REMARKS for label in rule(cell, limits))
    return Verdict("rejected" if reasons else "kept", reasons, labels)


# ---- reasons ------------------------------------------------------------------------------------


def _ended_early(cell: Cell, _: Limits) -> Iterator[str]:
    failure = cell.facts.get("failure")
    if failure:
        yield str(failure)
    yield from map(str, cell.facts.get("problems") or ())
    missing = [name for name in PASSES if name not in cell.passes]
    if missing and not failure:
        yield f"there is no {' and no '.join(missing)} pass"
    if cell.facts.get("scope_alive") is False:
        yield "the scope ended before the measured pass did"


def _not_cold(cell: Cell, _: Limits) -> Iterator[str]:
    eviction = cell.facts.get("eviction")
    if not isinstance(eviction, Mapping):
        yield "nothing says that the pool was cold before the warm-up pass"
    elif eviction.get("proven") is not True:
        yield f"the pool is not proven cold before the warm-up pass: {eviction.get('reason')}"


def _out_of_memory(cell: Cell, _: Limits) -> Iterator[str]:
    kills = cell.facts.get("oom_kills") or ()
    if kills:
        yield f"{len(kills)} OOM kills in the kernel log, the first: {kills[0]}"
    for path in (("scope", "events", "oom"), ("scope", "events", "oom_kill")):
        count = _growth_over_cell(cell, *path)
        if count:
            yield f"{count} {path[-1]} events in the scope"
    killed = _growth_over_cell(cell, "vmstat", "oom_kill")
    if killed and _growth_over_cell(cell, "scope", "events", "oom_kill") is None:
        yield f"the kernel killed {killed} processes for memory, maybe of this cell"


def _lock_differs(cell: Cell, _: Limits) -> Iterator[str]:
    wanted = number(cell.enforced, "locked_bytes")
    if cell.spec.get("mechanism") == "balloon" and wanted is None and cell.passes:
        yield "the balloon's locked bytes were not read back"
    if wanted is None:
        return
    for replay in _passes(cell):
        found = {number(shot, "balloon", "vm_lck_bytes") for shot in series(replay)}
        if found != {wanted}:
            other = min(found - {wanted}, key=str)
            shown = "unknown" if other is None else f"{other} B"
            yield (
                f"VmLck of the balloon is {shown} in the {replay.name} pass,"
                f" {wanted} B were requested"
            )


def _limit_unknown(cell: Cell, _: Limits) -> Iterator[str]:
    limit = number(cell.enforced, "limit_bytes")
    if cell.spec.get("mechanism") == "wall" and limit is None and cell.passes:
        yield "the kernel's memory limit was not read back, so nothing shows that there was a wall"


def _charged_elsewhere(cell: Cell, limits: Limits) -> Iterator[str]:
    measured = cell.passes.get("measured")
    if measured is None or cell.spec.get("mechanism") != "wall":
        return
    levels = [number(shot, "scope", "file_bytes") for shot in series(measured)]
    charged = max((level for level in levels if level is not None), default=None)
    if charged is None:
        yield "the file pages charged to the scope are unknown, so the wall may not hold them"
        return
    served = _served_bytes(measured)
    needed = _least_charge(cell, limits)
    if served is not None and served > 0 and charged <= needed:
        yield (
            f"{format_bytes(served)} were served from cache with at most {format_bytes(charged)} of"
            " file pages charged to the scope: the pages belong to another scope, outside the wall"
        )


def _served_bytes(measured: Pass) -> int | None:
    demand = _pool_demand(measured)
    brought = in_extent_bytes(measured)
    return minus(demand, process_read_bytes(measured) if brought is None else brought)


def _pool_demand(replay: Pass) -> int | None:
    """Bytes asked of the pool: what the arena serves is none of its business."""
    return minus(sum(row.bytes for row in replay.iterations), arena_bytes(replay))


def _least_charge(cell: Cell, limits: Limits) -> float:
    """File pages that a cache which served anything must have held, with room for doubt."""
    capacity = number(cell.facts, "budget", "page_cache_bytes")
    if capacity is None:
        capacity = number(cell.spec, "capacity_bytes") or 0
    distinct = number(cell.facts, "distinct_bytes_per_pass")
    if distinct is not None:
        return limits.charge_share * min(capacity, distinct)
    # Half an expert or a share of the capacity: below that no expert can have stayed whole.
    expert_bytes = number(cell.facts, "expert_bytes") or 0
    return min(expert_bytes / 2, limits.charge_share * capacity)


def _mglru_differs(cell: Cell, _: Limits) -> Iterator[str]:
    during, after = number(cell.facts, "mglru", "during"), number(cell.facts, "mglru", "after")
    wanted = cell.spec.get("mglru")
    if wanted in ("on", "off") and during is not None and (wanted == "on") != bool(during & 1):
        yield f"the MGLRU mask was {during:#06x}, {wanted} was asked for"
    if after is not None and after != during:
        known = "unknown" if during is None else f"{during:#06x}"
        yield f"the MGLRU mask was {known} before the warm-up and {after:#06x} at the end"
    if cell.spec.get("mechanism") != "none":
        yield from _protected_for_a_time(cell)


def _protected_for_a_time(cell: Cell) -> Iterator[str]:
    ttl_ms = number(cell.facts, "mglru", "min_ttl_ms")
    if ttl_ms:
        yield (
            f"MGLRU min_ttl_ms is {ttl_ms}: what is younger is not reclaimed, the kernel kills"
            " a process instead"
        )


def _reads_short(cell: Cell, _: Limits) -> Iterator[str]:
    reads, demand = (
        number(cell.facts, "reads_per_pass"),
        number(cell.facts, "demand_bytes_per_pass"),
    )
    for replay in _passes(cell):
        done = sum(row.reads for row in replay.iterations)
        if reads is not None and done != reads:
            yield f"{done} reads were done in the {replay.name} pass, the plan has {reads}"
        returned = sum(row.bytes for row in replay.iterations)
        if demand is not None and returned != demand:
            yield f"the {replay.name} pass returned {returned} B of the plan's {demand} B"


def _unverified(cell: Cell, _: Limits) -> Iterator[str]:
    if is_decoded(cell):
        return  # what an engine computed from its weights is compared instead
    counts = [number(replay.result, "verified_reads") or 0 for replay in _passes(cell)]
    if counts and not sum(counts):
        yield "the content of no read was verified"


def _went_backwards(cell: Cell, _: Limits) -> Iterator[str]:
    shots = [(replay.name, shot) for replay in _passes(cell) for shot in series(replay)]
    fallen: dict[str, str] = {}
    for (_name, before), (name, after) in pairwise(shots):
        for counter in counters_backwards(before, after):
            fallen.setdefault(counter, name)
    for counter, name in fallen.items():
        yield f"the counter {counter} went backwards in the {name} pass"


def _device_silent(cell: Cell, _: Limits) -> Iterator[str]:
    for replay in _passes(cell):
        if device_read_bytes(replay) is None:
            yield f"the device's counters are missing around the {replay.name} pass"
    warm_up = cell.passes.get("warm-up")
    if warm_up is None or device_read_bytes(warm_up) != 0 or is_decoded(cell):
        return  # an engine may have read all of it while it loaded
    demand = _pool_demand(warm_up)
    if demand:
        yield (
            f"the warm-up pass read {format_bytes(demand)} of a cold pool, the device counted 0 B:"
            " this is not its device, or its block accounting (queue/iostats) is off"
        )


def _foreign(cell: Cell, limits: Limits) -> Iterator[str]:
    measured = cell.passes.get("measured")
    if measured is None:
        return
    device, own = device_read_bytes(measured), process_read_bytes(measured)
    if own is None:
        own = scope_read_bytes(measured)
    if own is None:
        yield "neither the process nor the scope has a read count: foreign reads cannot be told"
    if device is None or own is None:
        return
    foreign = device - own
    tolerated = limits.tolerated_bytes(limits.foreign_share, device)
    if foreign > tolerated:
        who = largest_other(measured)
        yield (
            f"foreign {foreign / device:.1%}: {'' if who is None else f'{who}; '}"
            f"the device read {format_bytes(device)} and this process {format_bytes(own)} of it:"
            f" {format_bytes(foreign)} are of others, the limit is {format_bytes(tolerated)}"
        )


def _unexplained(cell: Cell, limits: Limits) -> Iterator[str]:
    measured = cell.passes.get("measured")
    device = None if measured is None else device_read_bytes(measured)
    if measured is None or device is None or scope_read_bytes(measured) is not None:
        return  # with a count of the scope, the residual is its difference from the process's
    foreign = foreign_of(measured)
    tolerated = limits.tolerated_bytes(limits.disagreement_share, device)
    if foreign.residual is not None and abs(foreign.residual) > tolerated:
        yield (
            f"residual {foreign.residual / device:.1%}: of {format_bytes(device)} that the device"
            f" read, {foreign.residual} B are neither this process's nor, by {foreign.how},"
            f" another's; the limit is {format_bytes(tolerated)}"
        )


def _counts_disagree(cell: Cell, limits: Limits) -> Iterator[str]:
    for replay in _passes(cell):
        device = device_read_bytes(replay)
        process, scope = process_read_bytes(replay), scope_read_bytes(replay)
        # More on the device than ours is foreign reading; less than ours, or two counts of ours
        # that differ, is an accounting that cannot be trusted.
        for left, right, one_sided in (
            (("the process", process), ("the device", device), True),
            (("the scope", scope), ("the device", device), True),
            (("the process", process), ("the host (pgpgin)", host_read_bytes(replay)), True),
        ):
            yield from _disagreement(replay.name, left, right, one_sided, limits)
        if not _scope_lost_reads(cell, replay, limits):
            ours = ("the process", process), ("the scope", scope)
            yield from _disagreement(replay.name, *ours, False, limits)


def _scope_lost_reads(cell: Cell, replay: Pass, limits: Limits) -> bool:
    """Whether io.stat alone is short, of what process and device agree on.

    Seen on 6.12: 677 MB of 2.95 GB, standing still for seconds while the device read on.  It would
    follow from a flush between two stores of blk_cgroup_bio_start (block/blk-cgroup.c, since 6.2:
    llist_add, then lqueued), which leaves a CPU's counts marked as queued and in no queue.
    """
    device, scope = device_read_bytes(replay), scope_read_bytes(replay)
    process = process_read_bytes(replay)
    if mapping(cell.enforced.get("facts")).get("cgroup_version") != "v2":
        return False
    if process is None or device is None or scope is None or not 0 < scope < process:
        return False
    tolerated = limits.tolerated_bytes(limits.disagreement_share, max(process, device))
    return abs(process - device) <= tolerated < process - scope


_Count = tuple[str, int | None]


def _disagreement(
    name: str, left: _Count, right: _Count, one_sided: bool, limits: Limits
) -> Iterator[str]:
    if left[1] is None or right[1] is None:
        return
    difference = left[1] - right[1]
    if one_sided and difference < 0:
        return
    tolerated = limits.tolerated_bytes(limits.disagreement_share, max(left[1], right[1]))
    if abs(difference) > tolerated:
        yield (
            f"counts of the {name} pass disagree: {left[0]} read {format_bytes(left[1])},"
            f" {right[0]} {format_bytes(right[1])}; the limit is {format_bytes(tolerated)}"
        )


def _swapped(cell: Cell, _: Limits) -> Iterator[str]:
    for replay in _passes(cell):
        held = [number(shot, "process", "vm_swap_bytes") or 0 for shot in series(replay)]
        if max(held):
            yield f"{max(held)} B of the process were swapped out in the {replay.name} pass"
        swapped_in = delta(replay.before, replay.after, "vmstat", "pswpin")
        if swapped_in:
            yield f"{swapped_in} pages were swapped in during the {replay.name} pass"


_Rule = Callable[[Cell, Limits], Iterator[str]]

_RULES: tuple[_Rule, ...] = (
    _ended_early,
    _not_cold,
    _out_of_memory,
    _lock_differs,
    _limit_unknown,
    _charged_elsewhere,
    _mglru_differs,
    _reads_short,
    _unverified,
    _went_backwards,
    _device_silent,
    _foreign,
    _unexplained,
    _counts_disagree,
    _swapped,
    lambda cell, _: tier_reasons(cell),
    lambda cell, _: engine_reasons(cell),
)


# ---- labels -------------------------------------------------------------------------------------


def _wall_not_binding(cell: Cell, limits: Limits) -> Iterator[str]:
    limit = number(cell.enforced, "limit_bytes")
    # A tier that keeps nothing in the page cache has no use for a wall.
    if cell.spec.get("mechanism") != "wall" or limit is None or cell.facts.get("admits") is False:
        return
    peak, how = _peak(cell)
    if peak is None:
        yield "peak unknown"
    elif peak < (1 - limits.peak_tolerance) * limit:
        yield f"wall not binding ({how} {format_bytes(peak)} of {format_bytes(limit)})"


def _peak(cell: Cell) -> tuple[int | None, str]:
    """The scope's peak by the kernel, else the highest sample, which may have missed it."""
    shots = [shot for replay in _passes(cell) for shot in series(replay)]
    for key, how in (("peak_bytes", "peak"), ("current_bytes", "highest sample")):
        levels = [number(shot, "scope", key) for shot in shots]
        known = [level for level in levels if level is not None]
        if known:
            return max(known), how
    return None, "peak"


def _killed_elsewhere(cell: Cell, _: Limits) -> Iterator[str]:
    killed = _growth_over_cell(cell, "vmstat", "oom_kill")
    if killed and _growth_over_cell(cell, "scope", "events", "oom_kill") == 0:
        yield f"{killed} OOM kills elsewhere on the host"
    lost = number(cell.facts, "kernel_log_lost")
    if lost:
        yield f"{lost} lines of the kernel log were lost: it proves no absence of OOM kills"


def _extent_unknown(cell: Cell, _: Limits) -> Iterator[str]:
    measured = cell.passes.get("measured")
    if measured is not None and in_extent_bytes(measured) is None and not is_decoded(cell):
        yield "residency unknown: over-read cannot be told from reclaim"


def _short_scope(cell: Cell, limits: Limits) -> Iterator[str]:
    for replay in _passes(cell):
        if _scope_lost_reads(cell, replay, limits):
            yield (
                f"io.stat of the scope lost reads in the {replay.name} pass: it counted"
                f" {format_bytes(scope_read_bytes(replay) or 0)} of the"
                f" {format_bytes(process_read_bytes(replay) or 0)} that process and device agree on"
            )


def _unused_protection(cell: Cell, _: Limits) -> Iterator[str]:
    if cell.spec.get("mechanism") == "none":
        yield from _protected_for_a_time(cell)


def _given(cell: Cell, _: Limits) -> Iterator[str]:
    labels: Any = cell.facts.get("labels")
    yield from map(str, labels or ())


_REMARKS: tuple[_Rule, ...] = (
    _wall_not_binding,
    _killed_elsewhere,
    _extent_unknown,
    _short_scope,
    _unused_protection,
    lambda cell, _: tier_remarks(cell),
    _given,
)


def _passes(cell: Cell) -> list[Pass]:
    return [cell.passes[name] for name in PASSES if name in cell.passes]


def _growth_over_cell(cell: Cell, *keys: str) -> int | None:
    """Growth of a counter from before the warm-up to after the measured pass."""
    passes = _passes(cell)
    return delta(passes[0].before, passes[-1].after, *keys) if passes else None
