# SPDX-License-Identifier: Apache-2.0
"""Real router traces: what replay semantics, order and batch size do to them."""

from pathlib import Path

import pytest

from pagetier.analysis.simulators import Contract, parse_budget, prepare
from pagetier.analysis.studies import (
    Workload,
    arrival_offsets,
    batched,
    gap,
    permuted,
    regime,
    replays,
    workload_of_trace,
)
from pagetier.analysis.traces import read_trace

FORTY = parse_budget("40 %")
NAMES = ("gpt-oss-20b_decode_mixed", "deepseek-v2-lite-chat_prefill_puffin")


@pytest.fixture(scope="module", params=NAMES)
def recorded(request: pytest.FixtureRequest, traces: Path) -> Workload:
    return workload_of_trace(read_trace(traces / f"{request.param}.jsonl.gz"))


@pytest.fixture(scope="module")
def eight(recorded: Workload) -> Workload:
    return of_eight(recorded, 8)


def of_eight(recorded: Workload, places: int) -> Workload:
    requests = len(set(recorded.events.request.tolist()))
    return batched(recorded, places, arrival_offsets(requests, 23))


def test_access_replay_inflates_recency_and_turns_the_ranking(eight: Workload) -> None:
    rows = {row.policy: row for row in replays(eight, Contract(), FORTY)}
    inflation = {name: row.inflation or 0 for name, row in rows.items()}
    assert inflation["static"] == 0
    assert inflation["lru"] == inflation["least-stale"] > 0.5
    assert inflation["lfru"] > 0.4
    assert 0 < inflation["belady"] < 0.06 and 0 < inflation["lfu"] < 0.13
    # The table looks better than every dynamic policy by access, and than LFRU by events it is not.
    by_access = min(("lru", "lfu", "lfru", "static"), key=lambda name: rows[name].recorded)
    assert by_access == "static"
    assert rows["lfru"].event < 1.005 * rows["static"].event


def test_a_random_order_does_not_repair_it(eight: Workload) -> None:
    rows = {row.policy: row for row in replays(eight, Contract(), FORTY)}
    lru = rows["lru"]
    assert lru.event < lru.random < lru.recorded < lru.ascending
    # What the order of ids adds goes, what leaving inside an event adds stays.
    assert (lru.random - lru.event) > 0.4 * (lru.ascending - lru.event)


def test_the_gap_closes_where_unions_exceed_the_capacity(recorded: Workload) -> None:
    seen = []
    for places in (1, 2, 4, 8):
        workload = of_eight(recorded, places)
        found = gap(workload, Contract(), FORTY)
        met = regime(prepare(workload.events, Contract()), FORTY)
        assert found.best_causal == "lfru"
        assert met.ratio_mean is not None and met.share_over_one is not None
        assert found.gap is not None and found.admission_share is not None
        assert found.future_victim_share == pytest.approx(1 - found.admission_share)
        seen.append((met.ratio_mean, met.share_over_one, found))
    ratios = [ratio for ratio, _, _ in seen]
    assert ratios == sorted(ratios) and ratios[0] < 0.35 and ratios[-1] > 1.3
    assert seen[0][1] == 0 and seen[-1][1] > 0.9
    gaps = [found.gap or 0 for _, _, found in seen]
    assert gaps == sorted(gaps, reverse=True) and gaps[0] > 0.45
    # The slacker the regime, the more of the gap is to know which resident is used last.
    shares = [found.admission_share or 0 for _, _, found in seen]
    assert shares == sorted(shares) and shares[0] < 0.1
    unions = [found.union_over_logical or 0 for _, _, found in seen]
    assert unions[0] == 1.0 and unions == sorted(unions, reverse=True)


def test_the_same_events_in_another_order_have_another_gap(recorded: Workload) -> None:
    workload = of_eight(recorded, 2)
    before = regime(prepare(workload.events, Contract()), FORTY)
    true = gap(workload, Contract(), FORTY)
    for seed in range(2):
        shuffled = permuted(workload, seed)
        after = regime(prepare(shuffled.events, Contract()), FORTY)
        assert after.as_document() == pytest.approx(before.as_document(), rel=1e-12)
        control = gap(shuffled, Contract(), FORTY)
        assert control.best_causal == "lfu" != true.best_causal
        assert control.gap is not None and true.gap is not None
        assert control.gap < 0.92 * true.gap
        assert control.of("static").transferred == true.of("static").transferred


def test_figures_of_the_mixed_trace(traces: Path) -> None:
    recorded = workload_of_trace(read_trace(traces / f"{NAMES[0]}.jsonl.gz"))
    workload = of_eight(recorded, 2)
    found = gap(workload, Contract(), FORTY)
    figures = (found.gap, found.admission_share, found.union_over_logical)
    assert figures == pytest.approx((0.4561, 0.1383, 0.9006), abs=0.0002)
    fractions = {one.policy: one.miss_fraction for one in found.policies}
    assert fractions["lfru"] == pytest.approx(0.2161, abs=0.0002)
    assert fractions["belady"] == pytest.approx(0.1175, abs=0.0002)
