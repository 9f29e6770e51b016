# SPDX-License-Identifier: Apache-2.0
"""What is needed of a host, each need an object of its own: a name, who needs it, and a judgement
of findings.  The doctor, a run's preflight and the operator's check all read this one list.
"""

from pagetier.bench.requirements.access import ACCESS
from pagetier.bench.requirements.model import Findings, Need, PoolFindings, Requirement
from pagetier.bench.requirements.reclaim import RECLAIM
from pagetier.bench.requirements.storage import STORAGE

__all__ = ["NEEDS", "Findings", "Need", "PoolFindings", "Requirement"]

NEEDS: tuple[Need, ...] = (*ACCESS, *RECLAIM, *STORAGE)
"""Every need, in the order in which the doctor prints them."""
