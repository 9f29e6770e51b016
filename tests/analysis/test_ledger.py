# SPDX-License-Identifier: Apache-2.0
"""The terms of the ledger, the agreement of its sources, and its iterations."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.counters import SECTOR_BYTES
from pagetier.analysis.derive import Limits, derive_cell, judge
from pagetier.analysis.foreign import foreign_of
from pagetier.analysis.ledger import agreements, by_iteration, obtained, refault_bytes, traced
from pagetier.analysis.render_json import report_json
from pagetier.analysis.results import Cell, Iteration, Pass, Results, Sample

MB = 10**6
KIB = 1024


def shot(at_s: float, device: int, process: int, **more: Any) -> dict[str, Any]:
    return {
        "at_ns": round(at_s * 1e9),
        "device": {"major": 8, "minor": 0, "sectors_read": device // SECTOR_BYTES},
        "process": {"read_bytes": process},
        "vmstat": {"pgpgin": more.get("host", device) // KIB, "workingset_refault_file": 0},
        "scope": None if "scope" not in more else {"io": {"8:0": more["scope"]}},
    }


def others(
    read_bytes: int | None, *largest: tuple[int, str, int], hidden: int = 0
) -> dict[str, Any]:
    named = [{"pid": pid, "name": name, "read_bytes": count} for pid, name, count in largest]
    return {"read_bytes": read_bytes, "hidden": hidden, "largest": named}


def replay(after: dict[str, Any], **result: Any) -> Pass:
    return Pass("measured", shot(0, 0, 0, scope=0), after, result, (), ())


def test_others_that_are_counted_leave_a_residual() -> None:
    found = foreign_of(replay(shot(1, 512 * MB, 400 * MB), others=others(110 * MB)))
    assert (found.bytes, found.residual) == (110 * MB, 2 * MB)
    assert found.how == "read_bytes of all other processes"


@pytest.mark.parametrize("host", [600 * MB, 1024 * MB])
def test_counts_of_others_say_nothing_while_the_host_read_more_than_the_device(host: int) -> None:
    measured = replay(shot(1, 512 * MB, 400 * MB, host=host), others=others(110 * MB))
    found = foreign_of(measured)
    assert (found.bytes, found.residual) == (112 * MB, None)
    assert "residual included" in found.how


def test_a_hidden_process_that_reads_makes_the_scope_step_in() -> None:
    seen = others(90 * MB, hidden=1)
    measured = replay(shot(1, 512 * MB, 400 * MB, scope=404 * MB), others=seen)
    assert (foreign_of(measured).bytes, foreign_of(measured).residual) == (108 * MB, 4 * MB)


def test_a_hidden_process_that_read_nothing_is_none_to_care_about() -> None:
    seen = others(110 * MB, hidden=1)
    found = foreign_of(replay(shot(1, 512 * MB, 400 * MB), others=seen))
    assert (found.bytes, found.residual) == (110 * MB, 2 * MB)
    assert found.how.endswith("all other processes but 1, which may not be looked at")


def test_nothing_known_is_none() -> None:
    after = shot(1, 512 * MB, 400 * MB)
    assert foreign_of(replay({**after, "device": None})).bytes is None
    assert foreign_of(replay({**after, "process": None})).bytes is None


@given(
    *[st.integers(0, 10**6)] * 4,
    st.booleans(),
    st.booleans(),
)
def test_device_is_own_and_foreign_and_residual(
    device: int, process: int, scope: int, other: int, with_scope: bool, counted: bool
) -> None:
    scopes = {"scope": scope} if with_scope else {}
    after = shot(1, device * SECTOR_BYTES, process, **scopes)
    measured = replay(after, others=others(other if counted else None))
    found = foreign_of(measured)
    assert found.bytes is not None
    assert process + found.bytes + (found.residual or 0) == device * SECTOR_BYTES


def test_the_terms_of_a_cell_add_up(cell: Cell) -> None:
    facts = derive_cell(cell)
    ledger = facts.ledger
    own = (ledger.first, ledger.repeat, ledger.prefetch, ledger.over_read)
    assert None not in own
    assert sum(term for term in own if term is not None) == facts.process_bytes
    assert obtained(cell).keys() == {field.name for field in dataclasses.fields(ledger)}


# ---- verdict ------------------------------------------------------------------------------------


def with_measured(cell: Cell, **changes: Any) -> Cell:
    measured = dataclasses.replace(cell.passes["measured"], **changes)
    return dataclasses.replace(cell, passes={**cell.passes, "measured": measured})


def amended(
    cell: Cell, device: int, process: int, host: int, scope: int | None, other: dict[str, Any]
) -> Cell:
    """Growth of every count over the measured pass."""
    before = cell.passes["measured"].before

    def at(base: dict[str, Any], grown: tuple[int, int, int, int]) -> dict[str, Any]:
        return {
            **base,
            "device": {**before["device"], "sectors_read": grown[0] // SECTOR_BYTES},
            "process": {**before["process"], "read_bytes": grown[1]},
            "vmstat": {**before["vmstat"], "pgpgin": grown[2] // KIB},
            "scope": {**base["scope"], "io": None if scope is None else {"254:0": grown[3]}},
        }

    measured = cell.passes["measured"]
    return with_measured(
        cell,
        before=at(dict(before), (0, 0, 0, 0)),
        after=at(dict(measured.after), (device, process, host, scope or 0)),
        samples=(),
        result={**measured.result, "others": other},
    )


def reasons(cell: Cell) -> list[str]:
    before_warm_up = ("went backwards",)  # the amended pass starts its counters anew
    return [
        reason
        for reason in judge(cell, Limits()).reasons
        if not any(part in reason for part in before_warm_up)
    ]


def test_foreign_names_who_read_most(cell: Cell) -> None:
    contaminated = amended(
        cell, 512 * MB, 400 * MB, 512 * MB, None, others(112 * MB, (77, "dd", 111 * MB))
    )
    (reason,) = reasons(contaminated)
    assert reason.startswith("foreign 21.9%: dd (pid 77) read 111 MB; the device read 512 MB")


def test_a_residual_rejects_by_its_name(cell: Cell) -> None:
    # Others say that they read 40 MB which the device never saw.
    odd = amended(cell, 512 * MB, 512 * MB, 512 * MB, None, others(40 * MB))
    (reason,) = reasons(odd)
    assert reason.startswith("residual -7.8%: of 512 MB that the device read, -40000000 B")


def test_a_host_that_read_less_than_we_did_is_an_accounting_that_cannot_be_trusted(
    cell: Cell,
) -> None:
    odd = amended(cell, 512 * MB, 512 * MB, 400 * MB, None, others(None))
    (reason,) = reasons(odd)
    assert "the process read 512 MB, the host (pgpgin) 400 MB" in reason


# ---- agreement ----------------------------------------------------------------------------------


def test_agreement_is_shown_for_every_pair_with_its_limit() -> None:
    measured = replay(shot(1, 512 * MB, 400 * MB, scope=360 * MB))
    pairs = {(pair.left, pair.right): pair for pair in agreements(measured, Limits())}
    assert len(pairs) == 5
    ours = pairs["process read_bytes", "scope io"]
    assert (ours.difference_bytes, ours.share, ours.limit_bytes, ours.ok) == (
        40 * MB,
        0.1,
        20 * MB,
        False,
    )
    assert pairs["process read_bytes", "device sectors x 512"].ok is True, "others may read"
    assert pairs["device sectors x 512", "host pgpgin"].difference_bytes == 0


def test_agreement_with_what_is_missing_is_unknown() -> None:
    measured = dataclasses.replace(replay(shot(1, 512 * MB, 0)), before=shot(0, 0, 0))
    pair = next(iter(agreements(measured, Limits())))
    assert (pair.difference_bytes, pair.limit_bytes, pair.ok) == (None, None, None)


def test_a_trace_stands_beside_what_was_got_without_it() -> None:
    shown = {"in_extent_bytes": 90 * MB, "over_read_bytes": 9 * MB, "problem": None}
    row = Iteration(0, 1, 1, 1, 1, 20 * MB, 68 * MB, None)
    measured = replay(shot(1, 512 * MB, 100 * MB), insertions=shown)
    found = traced(dataclasses.replace(measured, iterations=(row,)))
    assert found is not None
    assert (found.taken_while_reading, found.unexplained) == (2 * MB, MB)
    assert traced(replay(shot(1, 0, 0))) is None
    lost = replay(shot(1, 0, 0), insertions={"in_extent_bytes": None, "problem": "lost"})
    failed = traced(lost)
    assert failed is not None
    assert (failed.in_extent, failed.unexplained, failed.problem) == (None, None, "lost")


def test_refaults_are_a_labelled_lower_bound() -> None:
    after = {**shot(1, 0, 0), "vmstat": {"workingset_refault_file": 10}}
    found, source = refault_bytes(replay(after), 16384)
    assert found == 163840
    assert source is not None and "lower bound" in source
    assert refault_bytes(replay(after), None) == (None, None)


# ---- per iteration ------------------------------------------------------------------------------


def timeline(samples: Sequence[tuple[float, int, int]], ends_s: list[float]) -> Pass:
    shots = [shot(at_s, device, own) for at_s, device, own in samples]
    rows = tuple(
        Iteration(i, round(end * 1e9), 1, 1, 1, 20 * MB, 60 * MB, None)
        for i, end in enumerate(ends_s)
    )
    middle = tuple(Sample(one["at_ns"], one) for one in shots[1:-1])
    return Pass("measured", shots[0], shots[-1], {"start_ns": 0}, rows, middle)


def test_the_timeline_divides_the_counts_among_iterations() -> None:
    # 100 MB of ours and 28 MB of others each second, ten samples in each.
    ticks = [(i / 10, i * 12_800_000, i * 10 * MB) for i in range(21)]
    found = by_iteration(timeline(ticks, [1.0, 2.0]))
    assert found.device == (128 * MB, 128 * MB)
    assert found.over_read == (20 * MB, 20 * MB)
    assert found.others == (28 * MB, 28 * MB)
    assert (found.first, found.repeat) == ((20 * MB, 20 * MB), (60 * MB, 60 * MB))


def test_an_end_between_far_samples_is_unknown() -> None:
    ticks = [(0.0, 0, 0), (1.0, 128 * MB, 100 * MB), (2.0, 256 * MB, 200 * MB)]
    found = by_iteration(timeline(ticks, [0.5, 2.0]))
    assert found.device == (None, None), "a second of doubt is more than a twentieth"
    ends = by_iteration(timeline(ticks, [1.0, 2.0]))
    assert ends.device == (128 * MB, 128 * MB)


def test_nothing_moved_is_a_known_zero() -> None:
    ticks = [(0.0, 512, 512), (0.4, 512, 512), (1.0, 512, 512)]
    assert by_iteration(timeline(ticks, [0.7, 0.9])).device == (0, 0)


@given(st.lists(st.integers(0, 10 * MB), min_size=30, max_size=30), st.integers(1, 28))
def test_known_iterations_are_within_the_doubt_allowed(steps: list[int], cut: int) -> None:
    totals = list(itertools.accumulate(steps, initial=0))
    ticks = [(float(i), total, 0) for i, total in enumerate(totals)]
    (first, second) = by_iteration(timeline(ticks, [cut + 0.5, 30.0])).device
    for value, least, most in (
        (first, totals[cut], totals[cut + 1]),
        (second, totals[30] - totals[cut + 1], totals[30] - totals[cut]),
    ):
        if value is not None:
            assert least - 30 * SECTOR_BYTES <= value <= most + 30 * SECTOR_BYTES
            assert most - least <= 0.05 * value + 60 * SECTOR_BYTES


def test_hints_leave_the_over_read_of_an_iteration_unknown() -> None:
    ticks = [(i / 10, i * 12_800_000, i * 10 * MB) for i in range(21)]
    measured = timeline(ticks, [1.0, 2.0])
    hinted = dataclasses.replace(measured, result={**measured.result, "hints": {"submitted": 1}})
    assert by_iteration(hinted).over_read == (None, None)


def test_json_shows_evidence_and_page_exact_misses(cell: Cell) -> None:
    exact = {"page_bytes": 4096, "demand_pages": 500, "nominal_miss_pages": 100}
    stored = dataclasses.replace(cell, facts={**cell.facts, "page_exact": exact})
    campaign = {"limits": {"disagreement_share": 0.5, "foreign_share": 0.05}}
    host = {"limit_reclaim_counters": {"direct": False, "file": True}}
    results = Results(Path("results"), {}, campaign, host, {}, (), (stored,))
    (found,) = report_json(results)["cells"]
    assert found["page_exact"]["demand_bytes_per_iteration"] == 1000 * 1024
    assert found["page_exact"]["nominal_miss_bytes_per_iteration"] == 50 * 4096
    assert found["page_exact"]["effective_miss_bytes_per_iteration"] is None
    limits = [pair["limit_bytes"] for pair in found["ledger_evidence"]["agreement"]["measured"]]
    assert limits[0] == 125 * MB, "half of 250 MB: the campaign's own limit"
    assert found["scan_to_steal_includes_limits"] is True
    assert [item["includes_limits"] for item in found["reclaim_counters"]] == [True, True, False]
