# SPDX-License-Identifier: Apache-2.0
"""Grids: rows in order, the same on any number of workers, ended by an exception or Ctrl-C."""

import numpy as np
import pytest

from pagetier.analysis.errors import InputError
from pagetier.analysis.simulators import (
    POLICIES,
    Budget,
    Cell,
    Contract,
    Events,
    prepare,
    simulate,
    sweep,
    tie_spread,
)
from pagetier.analysis.simulators.rows import row_document


def events(steps: int = 40) -> Events:
    rng = np.random.default_rng(7)
    ids = np.concatenate(
        [layer * 8 + rng.permutation(8)[:3] for _ in range(steps) for layer in range(2)]
    )
    return Events(
        experts=ids.astype(np.uint32),
        event_start=np.arange(2 * steps + 1, dtype=np.uint64) * np.uint64(3),
        iteration_start=np.arange(steps + 1, dtype=np.uint64) * np.uint64(2),
        request=np.zeros(steps, dtype=np.int64),
        num_layers=2,
        num_experts=8,
    )


def grid(seed: int = 0) -> list[Cell]:
    prepared = prepare(events(), Contract(warm=0.6, seed=seed))
    return [Cell(prepared, policy, Budget("experts", n)) for policy in POLICIES for n in (1, 3, 5)]


def test_rows_are_those_of_single_replays_in_order() -> None:
    told: list[int] = []
    cells = grid()
    rows = sweep(cells, 10, workers=3, on_done=told.append)
    assert told[-1] == len(cells) and told == sorted(told)
    for cell, row in zip(cells, rows, strict=True):
        alone = simulate(cell.prepared, cell.policy, cell.budget, 10)
        assert row.cell is cell
        assert (row.accesses, row.hits, row.misses) == (alone.accesses, alone.hits, alone.misses)
        assert row.miss_bytes_per_iteration == alone.misses * 10 / 16
    assert rows == sweep(cells, 10, workers=1)


def test_the_first_failure_ends_a_sweep() -> None:
    prepared = prepare(events(), Contract())
    with pytest.raises(InputError, match="no policy 'x'"):
        sweep([Cell(prepared, "x", Budget("experts", 1))] * 50, workers=1)


def test_an_interrupt_ends_a_sweep() -> None:
    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(grid() * 20, workers=2, on_done=interrupt)


def test_tie_spread() -> None:
    rows = [sweep(grid(seed)[3:4])[0] for seed in range(6)]
    assert rows[0].cell.policy == "static"
    spread = tie_spread(rows)
    assert spread.seeds == (0, 1, 2, 3, 4, 5)
    assert (spread.min, spread.max) == (min(r.misses for r in rows), max(r.misses for r in rows))


def test_a_row_names_its_contract_and_its_budget_by_layer() -> None:
    prepared = prepare(events(), Contract("access", "random", warm="pass", seed=3))
    row = sweep([Cell(prepared, "lru", Budget("bytes", 50))], 10)[0]
    document = row_document(row)
    assert document["budget"] == "50 B"
    assert (document["budget_experts"], document["budget_bytes"]) == (2.5, 25)
    assert document["budget_total_experts"] == 5
    assert [document[name] for name in ("replay", "order", "scope", "window", "tie_seed")] == [
        "access",
        "random",
        "per-layer",
        "warm-pass",
        3,
    ]
    assert document["misses"] == document["accesses"] - document["hits"]
    assert document["static_fit"] is None and document["tie_spread"] is None
