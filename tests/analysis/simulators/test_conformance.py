# SPDX-License-Identifier: Apache-2.0
"""The conformance trace: its counts, and that the page which writes it out says the same."""

import re
from pathlib import Path

from pagetier.analysis.simulators import Budget, Contract, prepare, simulate
from pagetier.analysis.simulators.conformance import (
    CAPACITY,
    CONFORMANCE,
    STEPS,
    conformance_events,
    replay_all,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "conformance.md"


def test_shape() -> None:
    events = conformance_events()
    assert (events.num_layers, events.num_experts, events.num_iterations) == (3, 4, 5)
    assert len(events.experts) == 30


def test_counts() -> None:
    assert (CONFORMANCE[0].hits, CONFORMANCE[0].misses) == (12, 18)
    for expected, outcome in replay_all():
        assert (outcome.hits, outcome.misses) == (expected.hits, expected.misses)
    assert len({expected.hits for expected in CONFORMANCE}) == 3


def test_no_seed_moves_event_atomic_replay() -> None:
    found = {
        simulate(
            prepare(conformance_events(), Contract(seed=seed)), "lru", Budget("experts", CAPACITY)
        ).misses
        for seed in range(50)
    }
    assert found == {18}


def by_hand(layer: int) -> list[tuple[list[int], list[int]]]:
    """Hits and cache after each step of event-atomic replay: an event fills the cache."""
    cache: set[int] = set()
    rows = []
    for step in STEPS:
        event = set(step[layer])
        rows.append((sorted(event & cache), sorted(event)))
        cache = event
    return rows


def test_the_page_writes_out_what_happens() -> None:
    text = PAGE.read_text()
    for layer in range(3):
        section = text.split(f"### Layer {layer}")[1].split("###")[0]
        lines = re.findall(r"^\| \d \|.*$", section, flags=re.MULTILINE)
        assert len(lines) == len(STEPS)
        for (hits, after), line, step in zip(by_hand(layer), lines, STEPS, strict=True):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            shown = [[int(digit) for digit in re.findall(r"\d", cell)] for cell in cells[1:]]
            assert shown[0] == list(step[layer])
            assert shown[2] == hits
            assert shown[4] == after
    for expected in CONFORMANCE:
        assert f"{expected.hits} hits and {expected.misses} misses" in text
