# SPDX-License-Identifier: Apache-2.0
"""From the raw numbers of a cell to its facts and its verdict: one place to import both from."""

from pagetier.analysis.counters import counters_backwards
from pagetier.analysis.facts import (
    CellFacts,
    EffectiveCapacity,
    Ledger,
    Reclaim,
    Spread,
    derive_cell,
    effective_capacity,
)
from pagetier.analysis.verdict import Limits, Verdict, judge

__all__ = [
    "CellFacts",
    "EffectiveCapacity",
    "Ledger",
    "Limits",
    "Reclaim",
    "Spread",
    "Verdict",
    "counters_backwards",
    "derive_cell",
    "effective_capacity",
    "judge",
]
