# SPDX-License-Identifier: Apache-2.0
"""Exact simulators of expert caches: what a policy of a given size would have had to read.

`prepare` lays the events of a trace out under a contract (replay semantics, order, scope, window),
once; `simulate` then replays one policy at one budget, `lru_curve` all capacities together, and
`sweep` a grid of them on all processors.
"""

from pagetier.analysis.simulators.budgets import Budget, ExpertBytes, parse_budget
from pagetier.analysis.simulators.contract import Contract
from pagetier.analysis.simulators.curves import Curve, belady_curve, lru_curve
from pagetier.analysis.simulators.events import Events, events_of_plan, events_of_trace
from pagetier.analysis.simulators.prepare import Prepared, prepare
from pagetier.analysis.simulators.simulate import POLICIES, Outcome, simulate
from pagetier.analysis.simulators.sweep import Cell, Row, TieSpread, sweep, tie_spread
from pagetier.analysis.simulators.table import Table, table_of

__all__ = [
    "POLICIES",
    "Budget",
    "Cell",
    "Contract",
    "Curve",
    "Events",
    "ExpertBytes",
    "Outcome",
    "Prepared",
    "Row",
    "Table",
    "TieSpread",
    "belady_curve",
    "events_of_plan",
    "events_of_trace",
    "lru_curve",
    "parse_budget",
    "prepare",
    "simulate",
    "sweep",
    "table_of",
    "tie_spread",
]
