# SPDX-License-Identifier: Apache-2.0
"""The state of an interval: every rule on its own, beside each other, and at its edges."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.check import assess
from pagetier.analysis.check_figures import LEAST_MISS_BYTES, Figures
from pagetier.analysis.reclaim import LEAST_STOLEN_PAGES, Reclaim

MISS = 10 * LEAST_MISS_BYTES
BUSY = 10 * LEAST_STOLEN_PAGES


def reclaim(ratio: float = 1.0, stolen: int = BUSY, where: str = "host") -> Reclaim:
    return Reclaim(where, ("kswapd",), int(ratio * stolen), stolen, "mglru", False)


QUIET = Figures(
    seconds=2.0,
    backwards=(),
    mglru_enabled=True,
    unevictable_share=0.01,
    available_bytes=10**9,
    swap_used_bytes=0,
    swap_in_bytes=0,
    by_source={"kswapd": reclaim(stolen=0), "direct": reclaim(stolen=0)},
    host=reclaim(stolen=0),
    limited=None,
    limited_by_source={},
    refault_bytes=0,
    device_bytes=None,
    reader_bytes=None,
    miss_bytes=None,
    first_touch_bytes=None,
    capacity_bytes=None,
    stalled={"memory.some": 0.25, "memory.full": None, "io.some": 0.0, "io.full": 0.0},
    cgroup_limit_bytes=None,
    cgroup_name=None,
)
# A reader streams: the host reclaims and what it evicted comes back.
STREAMING = replace(
    QUIET,
    host=reclaim(),
    by_source={"kswapd": reclaim()},
    refault_bytes=100 << 20,
    device_bytes=200 << 20,
)


def state(figures: Figures) -> str:
    return assess(figures).state


def test_idle_host_is_healthy() -> None:
    found = assess(QUIET)
    assert found.state == "healthy"
    assert any("scan/steal n/a, 0 / 0 pages" in line for line in found.evidence)
    assert "pressure: memory.some 25.0%, io.some 0.0%, io.full 0.0%" in found.evidence


def test_a_streaming_reader_alone_is_healthy() -> None:
    assert state(STREAMING) == "healthy"
    assert any("computed misses n/a (no feed)" in line for line in assess(STREAMING).evidence)


@pytest.mark.parametrize(
    ("share", "found"),
    [(0.74, "healthy"), (0.741, "suspect"), (0.81, "suspect"), (None, "unknown")],
)
def test_locked_share_of_a_host_with_a_streaming_reader(share: float | None, found: str) -> None:
    assert state(replace(STREAMING, unevictable_share=share)) == found


def test_locked_memory_without_a_reader_is_healthy() -> None:
    idle = assess(replace(QUIET, unevictable_share=0.9))
    assert idle.state == "healthy"
    assert any(
        "90% of memory is unevictable" in line and "no reader is short of page cache" in line
        for line in idle.evidence
    )


@pytest.mark.parametrize(
    ("host_stolen", "refault_bytes", "found"),
    [
        (LEAST_STOLEN_PAGES, 2 << 20, "suspect"),  # 1 MiB/s over 2 s
        (LEAST_STOLEN_PAGES - 1, 2 << 20, "healthy"),
        (LEAST_STOLEN_PAGES, (2 << 20) - 1, "healthy"),
        (LEAST_STOLEN_PAGES, None, "healthy"),
    ],
)
def test_a_reader_is_short_of_cache_when_both_say_so(
    host_stolen: int, refault_bytes: int | None, found: str
) -> None:
    figures = replace(
        STREAMING,
        unevictable_share=0.9,
        host=reclaim(stolen=host_stolen),
        refault_bytes=refault_bytes,
    )
    assert state(figures) == found


@pytest.mark.parametrize(
    ("mglru", "found"), [(True, "suspect"), (None, "suspect"), (False, "healthy")]
)
def test_both_conditions_are_needed(mglru: bool | None, found: str) -> None:
    assert state(replace(STREAMING, unevictable_share=0.81, mglru_enabled=mglru)) == found


@pytest.mark.parametrize("which", ["kswapd", "direct", "limited"])
@pytest.mark.parametrize(
    ("ratio", "stolen", "found"),
    [(2.0, BUSY, "healthy"), (2.1, BUSY, "suspect"), (9.0, LEAST_STOLEN_PAGES - 1, "healthy")],
)
def test_scan_to_steal_is_an_indicator(which: str, ratio: float, stolen: int, found: str) -> None:
    found_here = reclaim(ratio, stolen, which)
    figures = replace(QUIET, by_source={which: found_here})
    if which == "limited":
        figures = replace(QUIET, limited=found_here)
    assessment = assess(figures)
    assert assessment.state == found
    if found == "suspect":
        assert "an indicator" in assessment.evidence[0]
        assert which in assessment.evidence[0]


@pytest.mark.parametrize(
    ("times", "refault_bytes", "found"),
    [
        (1.0, 100 << 20, "healthy"),
        (1.49, 100 << 20, "healthy"),
        (1.5, 100 << 20, "suspect"),
        (1.99, 100 << 20, "suspect"),
        (2.0, 100 << 20, "amplifying"),
        (5.0, 100 << 20, "amplifying"),
        # Nothing came back: then it is no reclaim that amplifies.
        (5.0, 0, "suspect"),
        (5.0, None, "suspect"),
        (1.2, 0, "healthy"),
    ],
)
def test_traffic_against_computed_misses(
    times: float, refault_bytes: int | None, found: str
) -> None:
    figures = replace(
        QUIET, device_bytes=int(times * MISS), miss_bytes=MISS, refault_bytes=refault_bytes
    )
    assert state(figures) == found


def test_the_readers_own_bytes_go_before_the_devices() -> None:
    figures = replace(STREAMING, device_bytes=9 * MISS, reader_bytes=MISS, miss_bytes=MISS)
    assessment = assess(figures)
    assert assessment.state == "healthy"
    assert any(line.startswith("the reader read") for line in assessment.evidence)
    others = assess(replace(figures, reader_bytes=None))
    assert others.state == "amplifying"
    assert others.evidence[0].startswith("the device, for anyone, read")


def test_few_misses_make_no_ratio() -> None:
    figures = replace(STREAMING, device_bytes=10**9, miss_bytes=LEAST_MISS_BYTES - 1)
    assert figures.amplification is None
    assert state(figures) == "healthy"
    exact = replace(figures, miss_bytes=LEAST_MISS_BYTES, device_bytes=3 * LEAST_MISS_BYTES)
    assert exact.amplification == 3.0
    assert state(exact) == "amplifying"


def test_measured_misses_outweigh_the_conditions() -> None:
    locked = replace(STREAMING, unevictable_share=0.9, device_bytes=MISS)
    assert state(locked) == "suspect"
    assert state(replace(locked, miss_bytes=MISS)) == "healthy"
    assert state(replace(locked, miss_bytes=MISS, device_bytes=3 * MISS)) == "amplifying"


def test_missing_counters_are_unknown() -> None:
    blind = replace(QUIET, by_source={}, host=None)
    assert state(blind) == "unknown"
    # Unless computed misses tell it directly.
    fed = replace(blind, device_bytes=MISS, miss_bytes=MISS)
    assert state(fed) == "healthy"
    # An indicator that is there is not hidden by one that is not.
    assert state(replace(blind, limited=reclaim(3.0))) == "suspect"


def test_a_counter_that_fell_voids_the_interval() -> None:
    found = assess(replace(STREAMING, unevictable_share=0.9, backwards=("pgscan_direct",)))
    assert found.state == "unknown"
    assert found.evidence == ("went backwards, so that the interval says nothing: pgscan_direct",)


def test_the_heaviest_line_comes_first() -> None:
    figures = replace(
        STREAMING,
        unevictable_share=0.9,
        by_source={"kswapd": reclaim(5.0)},
        device_bytes=4 * MISS,
        miss_bytes=MISS,
    )
    evidence = assess(figures).evidence
    assert "4.00x, with evicted pages coming back" in evidence[0]
    assert [("indicator" in line or "MGLRU reclaims" in line) for line in evidence[1:3]] == [
        True,
        True,
    ]


@given(st.data())
def test_never_amplifying_without_computed_misses(data: st.DataObject) -> None:
    """And never an exception, whatever could not be seen."""

    def maybe(strategy: st.SearchStrategy[Any]) -> Any:
        return data.draw(st.none() | strategy)

    ratio = st.builds(reclaim, st.floats(0, 20), st.integers(0, 10**6))
    figures = replace(
        QUIET,
        mglru_enabled=maybe(st.booleans()),
        unevictable_share=maybe(st.floats(0, 1)),
        by_source={"kswapd": maybe(ratio), "direct": maybe(ratio)},
        host=maybe(ratio),
        limited=maybe(ratio),
        refault_bytes=maybe(st.integers(0, 10**12)),
        device_bytes=maybe(st.integers(0, 10**12)),
        reader_bytes=maybe(st.integers(0, 10**12)),
        swap_in_bytes=maybe(st.integers(0, 10**12)),
    )
    assessment = assess(figures)
    assert assessment.state != "amplifying"
    assert assessment.evidence


def test_every_combination_has_one_state() -> None:
    """The table of all indicators: what is worst decides."""
    for locked, ratio, traffic in itertools.product((0.1, 0.9), (1.0, 3.0), (None, 1.0, 1.7, 3.0)):
        figures = replace(
            STREAMING,
            unevictable_share=locked,
            by_source={"kswapd": reclaim(ratio)},
            device_bytes=int((traffic or 1) * MISS),
            miss_bytes=None if traffic is None else MISS,
        )
        conditions = locked > 0.74 and (traffic is None or traffic >= 1.5)
        expected = "healthy"
        if conditions or ratio > 2 or (traffic or 0) >= 1.5:
            expected = "suspect"
        if (traffic or 0) >= 2:
            expected = "amplifying"
        assert state(figures) == expected, (locked, ratio, traffic)
