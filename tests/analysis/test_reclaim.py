# SPDX-License-Identifier: Apache-2.0
"""Scan and steal: which counters, which label, when a ratio, and what a self-test concludes."""

import pytest

from pagetier.analysis.reclaim import (
    LEAST_STOLEN_PAGES,
    Reclaim,
    implementation_of,
    limit_counters,
    reclaim_between,
)

START = {
    "pgscan_kswapd": 1000,
    "pgsteal_kswapd": 500,
    "pgscan_direct": 70,
    "pgsteal_direct": 30,
    "pgscan_file": 5,
    "pgsteal_file": 6,
    "pgscan": 9,
    "pgsteal": 8,
}


def grown(**by: int) -> dict[str, int]:
    return {name: value + by.get(name, 0) for name, value in START.items()}


def between(after: dict[str, int], *sources: str, before: dict[str, int] = START) -> Reclaim | None:
    return reclaim_between(
        before, after, where="host", mglru_enabled=True, includes_limits=False, sources=sources
    )


def test_sources_are_summed_and_named() -> None:
    after = grown(pgscan_kswapd=9000, pgsteal_kswapd=3000, pgscan_direct=500, pgsteal_direct=100)
    found = between(after, "kswapd", "direct", "khugepaged")
    assert found is not None
    assert (found.scanned_pages, found.stolen_pages) == (9500, 3100)
    assert found.sources == ("kswapd", "direct")
    assert found.ratio == 9500 / 3100
    assert found.label == "host: kswapd + direct, mglru, without limit reclaim"


def test_the_sum_of_a_cgroup() -> None:
    found = between(grown(pgscan=4096, pgsteal=2048), "all")
    assert found is not None
    assert (found.scanned_pages, found.stolen_pages, found.ratio) == (4096, 2048, 2.0)


@pytest.mark.parametrize(
    ("stolen", "ratio"), [(0, None), (LEAST_STOLEN_PAGES - 1, None), (LEAST_STOLEN_PAGES, 3.0)]
)
def test_no_ratio_below_a_minimum_of_stolen_pages(stolen: int, ratio: float | None) -> None:
    found = between(grown(pgscan_direct=3 * stolen, pgsteal_direct=stolen), "direct")
    assert found is not None
    assert found.ratio == ratio


@pytest.mark.parametrize("name", ["pgscan_kswapd", "pgsteal_kswapd", "pgscan_direct"])
def test_an_absent_counter_is_no_zero(name: str) -> None:
    after = {key: value for key, value in START.items() if key != name}
    assert between(after, "kswapd", "direct") is None
    assert between(START, "kswapd", "direct", before=after) is None


def test_nothing_of_a_kernel_that_counts_nothing_apart() -> None:
    assert between(START, "khugepaged") is None


@pytest.mark.parametrize("name", ["pgscan_direct", "pgsteal_direct"])
def test_a_counter_that_fell_voids_the_interval(name: str) -> None:
    assert between(grown(**{name: -1}), "kswapd", "direct") is None


@pytest.mark.parametrize(
    ("enabled", "name"), [(True, "mglru"), (False, "classic"), (None, "unknown")]
)
def test_implementation(enabled: bool | None, name: str) -> None:
    assert implementation_of(enabled) == name


@pytest.mark.parametrize(
    ("includes", "words"), [(True, "with"), (False, "without"), (None, "perhaps with")]
)
def test_the_label_says_what_is_in_it(includes: bool | None, words: str) -> None:
    found = Reclaim("host", ("direct",), 1, 1, "classic", includes)
    assert found.label == f"host: direct, classic, {words} limit reclaim"


@pytest.mark.parametrize(
    ("background", "walled", "includes"),
    [
        (0, 0, False),
        (0, 6000, True),
        (0, 3000, True),  # half
        (0, 2999, None),
        (0, 600, None),  # a tenth
        (0, 599, False),
        (600, 6600, True),
        (601, 6601, None),  # the host stole a tenth by itself: too busy to tell
        (600, 600, False),
    ],
)
def test_which_counters_include_limit_reclaim(
    background: int, walled: int, includes: bool | None
) -> None:
    quiet = START, grown(pgsteal_direct=background)
    found = limit_counters(quiet, (START, grown(pgsteal_direct=walled)), 6000)
    assert found == {"kswapd": False, "direct": includes, "file": False}


def test_a_self_test_without_evidence_tells_nothing() -> None:
    unknown = {"kswapd": None, "direct": None, "file": None}
    assert limit_counters((START, START), (START, START), 0) == unknown
    assert limit_counters(({}, {}), (START, START), 6000) == unknown
    fell = START, grown(pgsteal_direct=-1)
    assert limit_counters((START, START), fell, 6000)["direct"] is None
