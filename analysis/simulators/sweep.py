# SPDX-License-Identifier: Apache-2.0
"""A grid of policies and budgets on all processors.

The replays run in C without the GIL, so threads suffice; Ctrl-C ends a sweep when the replays that
have begun are through, none of which takes long.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass

from pagetier.analysis.simulators.budgets import Budget, ExpertBytes
from pagetier.analysis.simulators.prepare import Prepared
from pagetier.analysis.simulators.simulate import Outcome, simulate
from pagetier.analysis.simulators.table import Table

__all__ = ["Cell", "Row", "TieSpread", "sweep", "tie_spread"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of a grid; `prepared` says which trace under which contract."""

    prepared: Prepared
    policy: str
    budget: Budget


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of a cell, without its accesses."""

    cell: Cell
    budget_experts: int | None
    budget_bytes: int | None
    accesses: int
    hits: int
    miss_bytes_per_iteration: float | None
    initial_load: int
    initial_load_bytes: int | None
    fitted_on: str | None

    @property
    def misses(self) -> int:
        return self.accesses - self.hits

    @property
    def hit_rate(self) -> float | None:
        """None when nothing was scored."""
        return self.hits / self.accesses if self.accesses else None


@dataclass(frozen=True, slots=True)
class TieSpread:
    """How far the misses of one cell move with the tie seed alone."""

    seeds: tuple[int, ...]
    min: int
    max: int


def sweep(
    cells: Iterable[Cell],
    sizes: ExpertBytes | None = None,
    table: Table | None = None,
    *,
    workers: int | None = None,
    on_done: Callable[[int], None] | None = None,
) -> list[Row]:
    """The rows of the cells in their order; `on_done` is told how many are through."""
    todo = list(cells)

    def row_of(cell: Cell) -> Row:
        return _row(cell, simulate(cell.prepared, cell.policy, cell.budget, sizes, table))

    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        futures = [pool.submit(row_of, cell) for cell in todo]
        try:
            waiting = set(futures)
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                if on_done is not None:
                    on_done(len(futures) - len(waiting))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [future.result() for future in futures]


def tie_spread(rows: Sequence[Row]) -> TieSpread:
    """The spread of rows that differ in their tie seed alone."""
    seeds = tuple(row.cell.prepared.contract.seed for row in rows)
    misses = [row.misses for row in rows]
    return TieSpread(seeds, min(misses), max(misses))


def _row(cell: Cell, outcome: Outcome) -> Row:
    return Row(
        cell=cell,
        budget_experts=outcome.capacity.experts,
        budget_bytes=outcome.capacity.bytes,
        accesses=outcome.accesses,
        hits=outcome.hits,
        miss_bytes_per_iteration=outcome.miss_bytes_per_iteration,
        initial_load=len(outcome.initial_load),
        initial_load_bytes=outcome.initial_load_bytes,
        fitted_on=outcome.fitted_on,
    )
