# SPDX-License-Identifier: Apache-2.0
"""Questions put to the simulators: in which regime a cache works, how far the best causal policy is
from the offline optimum and why, what a table is worth on other traces, and what was published."""

from pagetier.analysis.studies.batching import Workload, arrival_offsets, batched, workload_of_trace
from pagetier.analysis.studies.gap import Gap, Measure, ReplayRow, gap, replays
from pagetier.analysis.studies.off_domain import OffDomainRow, off_domain
from pagetier.analysis.studies.permutation import permuted
from pagetier.analysis.studies.regime import Regime, regime

__all__ = [
    "Gap",
    "Measure",
    "OffDomainRow",
    "Regime",
    "ReplayRow",
    "Workload",
    "arrival_offsets",
    "batched",
    "gap",
    "off_domain",
    "permuted",
    "regime",
    "replays",
    "workload_of_trace",
]
