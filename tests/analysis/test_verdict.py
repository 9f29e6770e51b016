# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from pagetier.analysis.derive import Limits, judge
from pagetier.analysis.results import Cell

Amend = Callable[..., Cell]
MB = 10**6


def test_a_sound_cell_is_kept(cell: Cell) -> None:
    verdict = judge(cell, Limits())
    assert (verdict.state, verdict.reasons, verdict.labels) == ("kept", (), ())


def test_the_stored_verdict_is_not_looked_at(cell: Cell) -> None:
    stored = dataclasses.replace(cell, state="rejected", reasons=("old",), labels=("old",))
    assert judge(stored, Limits()) == judge(cell)


REJECTING: list[tuple[str, tuple[str, ...], Any, str]] = [
    ("failure", ("facts", "failure"), "the worker was killed", "the worker was killed"),
    ("problems", ("facts", "problems"), ["the balloon died"], "the balloon died"),
    ("scope gone", ("facts", "scope_alive"), False, "the scope ended before"),
    ("not evicted", ("facts", "eviction"), None, "nothing says that the pool was cold"),
    (
        "not cold",
        ("facts", "eviction"),
        {"proven": False, "reason": "3 pages stay"},
        "not proven cold before the warm-up pass: 3 pages stay",
    ),
    (
        "kernel log",
        ("facts", "oom_kills"),
        ["Killed process 7"],
        "1 OOM kills .*: Killed process 7",
    ),
    ("oom", ("measured", "after", "scope", "events", "oom"), 2, "2 oom events in the scope"),
    ("oom_kill", ("measured", "after", "scope", "events", "oom_kill"), 1, "1 oom_kill events"),
    ("no limit", ("enforced", "limit_bytes"), None, "memory limit was not read back"),
    ("reads", ("facts", "reads_per_pass"), 101, "100 reads were done in the warm-up pass, .* 101"),
    ("bytes", ("facts", "demand_bytes_per_pass"), 5, "warm-up pass returned 1000000000 B .* 5 B"),
    ("content", ("warm-up", "result", "verified_reads"), 0, "content of no read was verified"),
    (
        "backwards",
        ("measured", "before", "vmstat", "pgscan_direct"),
        52,
        "counter vmstat.pgscan_direct went backwards in the measured pass",
    ),
    (
        "backwards inside a pass",
        ("measured", "after", "process", "rchar"),
        18 + 899 * MB,
        "process.rchar went backwards in the measured pass",
    ),
    ("no device", ("warm-up", "after", "device"), None, "counters are missing around the warm-up"),
    (
        "silent device",
        ("warm-up", "after", "device", "sectors_read"),
        7,
        "read 1.00 GB of a cold pool, the device counted 0 B",
    ),
    (
        "foreign",
        ("measured", "after", "device", "sectors_read"),
        (7 * 512 + 1072 * MB) // 512,
        r"foreign 8.1%: the device read .*: 22.0 MB are of others, the limit is 16.8 MB",
    ),
    (
        "process above device",
        ("measured", "after", "process", "read_bytes"),
        13 + 1076 * MB,
        "measured pass disagree: the process read 276 MB, the device 256 MB; the limit is 16.8 MB",
    ),
    (
        "scope above device",
        ("measured", "after", "scope", "io", "254:0"),
        37 + 1076 * MB,
        "the scope read 276 MB, the device 256 MB",
    ),
    (
        "scope blind",
        ("warm-up", "after", "scope", "io", "254:0"),
        37 + 700 * MB,
        "warm-up pass disagree: the process read 800 MB, the scope 700 MB; the limit is 40.0 MB",
    ),
    (
        "swapped",
        ("measured", "after", "process", "vm_swap_bytes"),
        4096,
        "4096 B of the process were swapped out in the measured pass",
    ),
    ("swap-in", ("measured", "after", "vmstat", "pswpin"), 75, "2 pages were swapped in during"),
    ("hints", ("facts", "hints_failed"), 3, "3 hints failed"),
    (
        "mask changed",
        ("facts", "mglru"),
        {"during": 7, "after": 1, "min_ttl_ms": 0},
        "the MGLRU mask was 0x0007 before the warm-up and 0x0001 at the end",
    ),
    (
        "mask appeared",
        ("facts", "mglru"),
        {"during": None, "after": 1, "min_ttl_ms": None},
        "the MGLRU mask was unknown before the warm-up and 0x0001 at the end",
    ),
    (
        "time to live",
        ("facts", "mglru"),
        {"during": 7, "after": 7, "min_ttl_ms": 1000},
        "MGLRU min_ttl_ms is 1000",
    ),
]


@pytest.mark.parametrize(
    ("path", "value", "reason"), [case[1:] for case in REJECTING], ids=[c[0] for c in REJECTING]
)
def test_each_fault_rejects_with_its_numbers(
    amend: Amend, path: tuple[str, ...], value: Any, reason: str
) -> None:
    verdict = judge(amend(path, value))
    assert verdict.state == "rejected"
    matching = [text for text in verdict.reasons if re.search(reason, text)]
    assert matching, verdict.reasons
    assert all("\n" not in text for text in verdict.reasons)


@pytest.mark.parametrize(
    ("wanted", "mask", "kept"),
    [("on", 7, True), ("on", 1, True), ("on", 6, False), ("off", 0, True), ("off", 5, False)],
)
def test_mglru_is_what_was_asked_for(amend: Amend, wanted: str, mask: int, kept: bool) -> None:
    facts = {"before": 7, "during": mask, "after": mask, "min_ttl_ms": 0}
    cell = amend(("facts", "mglru"), facts, base=amend(("spec", "mglru"), wanted))
    verdict = judge(cell)
    assert (verdict.state == "kept") is kept
    assert kept or f"{mask:#06x}, {wanted} was asked for" in verdict.reasons[0]


def test_a_host_without_mglru_is_no_fault(amend: Amend) -> None:
    facts = {"before": None, "during": None, "after": None, "min_ttl_ms": None}
    assert judge(amend(("facts", "mglru"), facts)).state == "kept"


def test_time_to_live_is_a_remark_where_nothing_is_reclaimed(amend: Amend) -> None:
    facts = {"before": 7, "during": 7, "after": 7, "min_ttl_ms": 1000}
    cell = amend(("facts", "mglru"), facts, base=amend(("spec", "mechanism"), "none"))
    verdict = judge(cell)
    assert verdict.state == "kept"
    assert [label for label in verdict.labels if "min_ttl_ms is 1000" in label]


def test_reads_that_io_stat_lost_are_a_remark_where_the_device_has_them(amend: Amend) -> None:
    """Of 250 MB that process and device agree on; a race of cgroup v2 alone, which never adds."""
    second = amend(("enforced", "facts"), {"cgroup_version": "v2"})

    def counted(scope: int, base: Cell = second) -> Cell:
        return amend(("measured", "after", "scope", "io", "254:0"), 37 + 800 * MB + scope, base)

    verdict = judge(counted(200 * MB))
    assert verdict.reasons == ()
    (label,) = [label for label in verdict.labels if "io.stat" in label]
    assert "in the measured pass: it counted 200 MB of the 250 MB" in label
    assert judge(counted(250 * MB)).labels == judge(second).labels
    # The process may run elsewhere, the scope may hold another: neither is that race.
    assert judge(counted(300 * MB)).state == "rejected"
    still = second.passes["measured"].samples[0].data["scope"]["io"]["254:0"]
    nothing = amend(("measured", "before", "scope", "io", "254:0"), still, second)
    nothing = amend(("measured", "after", "scope", "io", "254:0"), still, nothing)
    assert [text for text in judge(nothing).reasons if "the scope 0 B" in text]
    assert judge(counted(200 * MB, amend(("enforced", "facts"), {}))).state == "rejected"
    apart = ("measured", "after", "device", "sectors_read"), (7 * 512 + 1300 * MB) // 512
    assert "the scope 200 MB" in " ".join(judge(amend(*apart, base=counted(200 * MB))).reasons)


def test_a_fault_in_the_middle_of_a_pass_is_seen(cell: Cell, amend: Amend) -> None:
    """A counter that fell and rose again, as after a reset between two samples."""
    sample = cell.passes["measured"].samples[0]
    data: dict[str, Any] = json.loads(json.dumps(sample.data))
    data["device"]["sectors_read"] = 3
    data["process"]["vm_swap_bytes"] = 8192
    samples = (dataclasses.replace(sample, data=data),)
    reasons = judge(amend(("measured", "samples"), samples)).reasons
    assert reasons == (
        "the counter device.sectors_read went backwards in the measured pass",
        "8192 B of the process were swapped out in the measured pass",
    )


def test_a_cell_without_passes(cell: Cell) -> None:
    empty = dataclasses.replace(cell, passes={})
    assert judge(empty).reasons == ("there is no warm-up and no measured pass",)
    failed = dataclasses.replace(empty, facts={**cell.facts, "failure": "no memory"})
    assert judge(failed).reasons == ("no memory",)
    half = dataclasses.replace(cell, passes={"warm-up": cell.passes["warm-up"]})
    assert judge(half).reasons == ("there is no measured pass",)


def test_an_oom_in_the_warm_up_rejects_the_cell(amend: Amend) -> None:
    changed = amend(("warm-up", "after", "scope", "events", "oom_kill"), 1)
    for end in ("before", "after"):
        changed = amend(("measured", end, "scope", "events", "oom_kill"), 1, changed)
    samples = changed.passes["measured"].samples
    samples[0].data["scope"]["events"]["oom_kill"] = 1
    assert judge(changed).reasons == ("1 oom_kill events in the scope",)


def test_an_oom_kill_elsewhere_is_a_label_where_the_scope_counts_its_own(amend: Amend) -> None:
    changed = amend(("measured", "after", "vmstat", "oom_kill"), 80)
    verdict = judge(changed)
    assert (verdict.state, verdict.labels) == ("kept", ("1 OOM kills elsewhere on the host",))
    uncounted = amend(("warm-up", "before", "scope", "events"), None, changed)
    assert judge(uncounted).reasons == (
        "the kernel killed 1 processes for memory, maybe of this cell",
    )


def test_a_kernel_log_with_gaps_is_labelled(amend: Amend) -> None:
    (label,) = judge(amend(("facts", "kernel_log_lost"), 4)).labels
    assert label.startswith("4 lines of the kernel log were lost")


# ---- pages charged elsewhere --------------------------------------------------------------------


def charged(cell: Cell, file_bytes: int | None, **facts: Any) -> Cell:
    """All of the measured pass's file charge set to one value."""
    passes = {}
    for name, replay in cell.passes.items():
        shots: list[dict[str, Any]] = json.loads(json.dumps([replay.before, replay.after]))
        for shot in shots:
            shot["scope"]["file_bytes"] = file_bytes
        passes[name] = dataclasses.replace(replay, before=shots[0], after=shots[1], samples=())
    return dataclasses.replace(cell, passes=passes, facts={**cell.facts, **facts})


@pytest.mark.parametrize("file_bytes", [0, 352_000])
def test_a_warm_file_read_inside_an_empty_wall_is_rejected(cell: Cell, file_bytes: int) -> None:
    # Measured once: a file warmed outside, read inside a wall, 0 device bytes, 352 KB charged.
    (reason,) = judge(charged(cell, file_bytes)).reasons
    assert "800 MB were served from cache with at most" in reason
    assert "belong to another scope" in reason


def test_a_small_distinct_set_needs_a_small_charge(cell: Cell) -> None:
    assert judge(charged(cell, 30 * MB)).state == "kept"
    assert judge(charged(cell, 30 * MB, distinct_bytes_per_pass=400 * MB)).state == "rejected"
    assert judge(charged(cell, 30 * MB, distinct_bytes_per_pass=200 * MB)).state == "kept"


def test_an_unknown_charge_is_no_proof_of_a_wall(cell: Cell) -> None:
    (reason,) = judge(charged(cell, None)).reasons
    assert "charged to the scope are unknown" in reason


def test_only_a_wall_needs_its_own_pages(cell: Cell, amend: Amend) -> None:
    free = amend(("spec", "mechanism"), "none", charged(cell, 0))
    assert judge(free).state == "kept"


def test_without_residency_the_process_count_tells_what_was_served(cell: Cell) -> None:
    measured = cell.passes["measured"]
    rows = tuple(
        dataclasses.replace(row, first_bytes=None, repeat_bytes=None) for row in measured.iterations
    )
    passes = {**cell.passes, "measured": dataclasses.replace(measured, iterations=rows)}
    verdict = judge(charged(dataclasses.replace(cell, passes=passes), 0))
    assert "750 MB were served from cache" in verdict.reasons[0]
    assert verdict.labels == ("residency unknown: over-read cannot be told from reclaim",)


# ---- locked memory ------------------------------------------------------------------------------


def ballooned(cell: Cell, wanted: int | None, locked: list[Any]) -> Cell:
    passes = {}
    values = iter(locked)
    for name, replay in cell.passes.items():
        shots = [
            {**shot, "balloon": {"vm_lck_bytes": next(values)}}
            for shot in (replay.before, replay.after)
        ]
        passes[name] = dataclasses.replace(replay, before=shots[0], after=shots[1], samples=())
    return dataclasses.replace(
        cell,
        spec={**cell.spec, "mechanism": "balloon"},
        enforced={"locked_bytes": wanted},
        passes=passes,
    )


def test_locked_bytes_must_equal_the_request_all_the_time(cell: Cell) -> None:
    assert judge(ballooned(cell, 4096, [4096] * 4)).state == "kept"
    (reason,) = judge(ballooned(cell, 4096, [4096, 4096, 4096, 0])).reasons
    assert reason == "VmLck of the balloon is 0 B in the measured pass, 4096 B were requested"
    reasons = judge(ballooned(cell, 4096, [4096, 8192, 4096, None])).reasons
    assert [text[:33] for text in reasons] == [
        "VmLck of the balloon is 8192 B in",
        "VmLck of the balloon is unknown i",
    ]
    assert judge(ballooned(cell, None, [4096] * 4)).reasons == (
        "the balloon's locked bytes were not read back",
    )


# ---- limits and labels --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "state"),
    [
        (Limits(), "kept"),
        (Limits(floor_bytes=0), "kept"),
        (Limits(floor_bytes=0, foreign_share=0.02), "rejected"),
        (Limits(floor_bytes=8 * MB, foreign_share=0.02), "kept"),
    ],
)
def test_foreign_limit_is_the_larger_of_share_and_floor(
    cell: Cell, limits: Limits, state: str
) -> None:
    # 6 MB of 256 MB are foreign: 2.3 %.
    assert judge(cell, limits).state == state


def test_without_a_count_of_ours_foreign_reads_cannot_be_told(amend: Amend) -> None:
    changed = amend(("measured", "before", "process"), None)
    assert judge(changed).state == "kept"
    changed = amend(("measured", "before", "scope", "io"), None, changed)
    (reason,) = judge(changed).reasons
    assert "foreign reads cannot be told" in reason


@pytest.mark.parametrize(
    ("peak", "labels"),
    [
        (600 * MB, ()),
        (594 * MB, ()),
        (593 * MB, ("wall not binding (peak 593 MB of 600 MB)",)),
    ],
)
def test_a_wall_that_was_not_reached_is_labelled(
    cell: Cell, peak: int, labels: tuple[str, ...]
) -> None:
    verdict = judge(_with_peak(cell, "peak_bytes", peak))
    assert (verdict.state, verdict.labels) == ("kept", labels)


def test_samples_stand_in_for_a_missing_peak(cell: Cell) -> None:
    verdict = judge(_with_peak(cell, "peak_bytes", None))
    assert verdict.labels == ("wall not binding (highest sample 590 MB of 600 MB)",)
    unknown = _with_peak(_with_peak(cell, "peak_bytes", None), "current_bytes", None)
    assert judge(unknown).labels == ("peak unknown",)


def _with_peak(cell: Cell, key: str, value: int | None) -> Cell:
    passes = {}
    for name, replay in cell.passes.items():
        shots: list[dict[str, Any]] = json.loads(json.dumps([replay.before, replay.after]))
        for shot in shots:
            shot["scope"][key] = value
        samples = []
        for sample in replay.samples:
            data = json.loads(json.dumps(sample.data))
            data["scope"][key] = value
            samples.append(dataclasses.replace(sample, data=data))
        passes[name] = dataclasses.replace(
            replay, before=shots[0], after=shots[1], samples=tuple(samples)
        )
    return dataclasses.replace(cell, passes=passes)


def test_labels_of_the_preflight_are_passed_on(amend: Amend) -> None:
    assert judge(amend(("facts", "labels"), ["proactive reclaim"])).labels == ("proactive reclaim",)
