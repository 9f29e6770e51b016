# SPDX-License-Identifier: Apache-2.0
"""Verdicts on tiers from evidence: locks, preload, fallback of O_DIRECT, hints."""

import copy
import errno
from collections.abc import Callable
from typing import Any

import pytest

from pagetier.analysis.derive import derive_cell, judge
from pagetier.analysis.results import Cell

Amend = Callable[..., Cell]
MB = 10**6
LOCKED = 300 * MB


def lock(cell: Cell, found: int | None) -> Cell:
    """The cell with so much of the worker locked in every snapshot."""
    changed = copy.deepcopy(cell)
    for replay in changed.passes.values():
        for shot in (replay.before, replay.after, *(sample.data for sample in replay.samples)):
            shot["process"]["vm_lck_bytes"] = found
    return changed


@pytest.fixture
def arena(cell: Cell, amend: Amend) -> Cell:
    """A kept cell of an arena: 60 of the 100 reads of 10 MB are served by it."""
    held = lock(cell, LOCKED)
    for path, value in (
        (("spec", "tier"), "arena"),
        (("spec", "arena"), {"table": "oracle", "fraction": 1.0}),
        (("facts", "budget"), {"locked_asked_bytes": LOCKED, "page_cache_bytes": 200 * MB}),
        (("facts", "preload"), {"bytes": LOCKED}),
        (("facts", "pool_resident_before_bytes"), 0),
        (("facts", "arena_reads_per_pass"), 60),
        (("facts", "admits"), True),
        (("warm-up", "result", "arena_reads"), 60),
        (("warm-up", "result", "arena_bytes"), 600 * MB),
        (("measured", "result", "arena_reads"), 60),
        (("measured", "result", "arena_bytes"), 600 * MB),
    ):
        held = amend(path, value, held)
    return held


def reasons(cell: Cell) -> str:
    return "; ".join(judge(cell).reasons)


def labels(cell: Cell) -> str:
    return "; ".join(judge(cell).labels)


def test_a_sound_arena_is_kept_and_its_hits_are_told_apart(arena: Cell) -> None:
    assert judge(arena).state == "kept"
    facts = derive_cell(arena)
    assert facts.served_arena == pytest.approx(0.6)
    assert facts.served_page_cache == pytest.approx(0.2)  # 1000 - 600 - 200 in-extent
    assert facts.served_fraction == pytest.approx(0.8)


@pytest.mark.parametrize("found", [None, LOCKED - 4096, 0])
def test_another_lock_than_requested_rejects(arena: Cell, found: int | None) -> None:
    shown = "unknown" if found is None else f"{found} B"
    assert f"VmLck of the worker is {shown} in the warm-up pass" in reasons(lock(arena, found))


def test_a_lock_that_slips_in_one_sample_rejects(arena: Cell) -> None:
    changed = copy.deepcopy(arena)
    process: dict[str, Any] = changed.passes["measured"].samples[0].data["process"]
    process["vm_lck_bytes"] = LOCKED // 2
    assert "in the measured pass" in reasons(changed)


def test_a_preload_that_fills_the_page_cache_rejects(arena: Cell, amend: Amend) -> None:
    left = amend(("facts", "pool_resident_before_bytes"), 4096, arena)
    assert "4.10 KB of the pool were in the page cache after the arena was loaded" in reasons(left)
    unknown = amend(("facts", "pool_resident_before_bytes"), None, arena)
    assert "nothing shows that preloading the arena bypassed" in reasons(unknown)


def test_arena_hits_are_known_before_the_first_read(arena: Cell, amend: Amend) -> None:
    fewer = amend(("measured", "result", "arena_reads"), 59, arena)
    assert reasons(fewer) == "the arena served 59 reads in the measured pass, not its 60"


def test_an_arena_of_everything_may_read_nothing(arena: Cell, amend: Amend) -> None:
    whole = amend(("warm-up", "result", "arena_bytes"), 1000 * MB, arena)
    silent = amend(("warm-up", "after", "device", "sectors_read"), 7, whole)
    assert "the device counted 0 B" not in reasons(silent)
    assert "the device counted 0 B" in reasons(
        amend(("warm-up", "result", "arena_bytes"), 999 * MB, silent)
    )


def test_what_the_arena_serves_needs_no_page_cache(arena: Cell, amend: Amend) -> None:
    """Without the arena's part 800 MB would be served by 4 MB of charged pages."""
    charged = copy.deepcopy(arena)
    for shot in (
        charged.passes["measured"].before,
        charged.passes["measured"].after,
        charged.passes["measured"].samples[0].data,
    ):
        shot["scope"]["file_bytes"] = 4 * MB
    serving = amend(("measured", "result", "arena_bytes"), 800 * MB, charged)
    assert "charged to the scope" not in reasons(serving)
    assert "charged to the scope" in reasons(charged)


def direct(cell: Cell, amend: Amend, after: int | None) -> Cell:
    changed = amend(("spec", "tier"), "direct")
    changed = amend(("facts", "admits"), False, changed)
    changed = amend(("facts", "pool_resident_before_bytes"), 0, changed)
    return amend(("facts", "pool_resident_after_bytes"), after, changed)


@pytest.mark.parametrize("after", [None, 0, 10 * MB - 1])
def test_direct_reads_leave_no_trace(cell: Cell, amend: Amend, after: int | None) -> None:
    assert judge(direct(cell, amend, after)).state == "kept"


def test_residency_that_grows_under_direct_rejects(cell: Cell, amend: Amend) -> None:
    found = reasons(direct(cell, amend, 80 * MB))
    assert found.startswith("fell back to buffered: 80.0 MB of the pool came into the page cache")


@pytest.mark.parametrize(
    ("after", "state"), [(12 * MB - 1, "kept"), (12 * MB, "rejected"), (80 * MB, "rejected")]
)
def test_what_stays_of_experts_of_different_sizes_is_held_against_the_largest(
    cell: Cell, amend: Amend, after: int, state: str
) -> None:
    mixed = amend(("facts", "expert_bytes"), None, direct(cell, amend, after))
    assert judge(amend(("facts", "largest_expert_bytes"), 12 * MB, mixed)).state == state


def test_what_other_tiers_leave_behind_is_a_remark(cell: Cell, amend: Amend) -> None:
    behind = amend(("spec", "tier"), "drop-behind", direct(cell, amend, 80 * MB))
    assert (judge(behind).state, labels(behind)) == (
        "kept",
        "80.0 MB of the pool stayed in the page cache, over-read or in use",
    )


def test_a_wall_need_not_bind_a_tier_that_admits_nothing(cell: Cell, amend: Amend) -> None:
    loose = amend(("enforced", "limit_bytes"), 5000 * MB)
    assert "wall not binding" in labels(loose)
    assert "wall not binding" not in labels(amend(("facts", "admits"), False, loose))


HINTS = {
    "submitted": 9,
    "overwritten": 2,
    "completed": 7,
    "failed": 0,
    "hinted_bytes": 100 * MB,
    "resident_before_bytes": 40 * MB,
    "resident_after_bytes": 100 * MB,
    "brought_bytes": 30 * MB,
    "raced_bytes": 8 * MB,
    "used_bytes": 24 * MB,
    "evicted_bytes": 5 * MB,
    "lost_bytes": 0,
    "unused_bytes": 1 * MB,
    "busy_ns": 11,
}


def hinted(amend: Amend, chunk: object = "safe", **counts: Any) -> Cell:
    changed = amend(("measured", "result", "hints"), {**HINTS, **counts})
    return amend(("spec", "prefetch"), {"plan": "oracle", "chunk": chunk}, changed)


def test_hints_stand_in_the_ledger_and_apart(amend: Amend) -> None:
    facts = derive_cell(hinted(amend))
    assert facts.hints is not None
    assert (facts.hints.submitted, facts.hints.unused_bytes) == (9, MB)
    assert (facts.hints.resident_share, facts.hints.used_share) == (1.0, 0.8)
    assert (facts.ledger.prefetch, facts.ledger.over_read) == (30 * MB, 20 * MB)
    terms = [facts.ledger.first, facts.ledger.repeat, facts.ledger.over_read]
    terms += [facts.ledger.prefetch, facts.ledger.foreign, facts.ledger.residual]
    assert sum(term for term in terms if term is not None) == facts.device_bytes


def test_unknown_residency_leaves_hints_unknown(amend: Amend) -> None:
    facts = derive_cell(hinted(amend, brought_bytes=None, resident_after_bytes=None))
    assert facts.hints is not None and facts.hints.resident_share is None
    assert (facts.ledger.prefetch, facts.over_read_bytes) == (None, None)


def test_cut_hints_are_said(amend: Amend) -> None:
    assert labels(hinted(amend)) == ""
    cut = hinted(amend, chunk="whole", resident_after_bytes=47 * MB)
    assert labels(cut) == (
        "hints cut at the readahead window: 47.0% of the bytes hinted were resident after"
    )
    assert "hints cut, or evicted at once: 98.0%" in labels(
        hinted(amend, resident_after_bytes=98 * MB)
    )


def test_any_failed_hint_rejects_with_its_errno(amend: Amend) -> None:
    failed = amend(("facts", "hints_failed"), 3)
    assert reasons(failed).startswith("3 hints failed, so the cell measures fewer")
    first = {"errno": errno.EINVAL, "call": "madvise", "path": "/p/x.bin"}
    named = amend(("facts", "hint_failure"), first, failed)
    assert "the first: madvise on /p/x.bin: Invalid argument" in reasons(named)
