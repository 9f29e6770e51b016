# SPDX-License-Identifier: Apache-2.0
"""The facts of a pool as ``pagetier pool info --json`` gives them.  Sizes are bytes."""

from typing import Any

import numpy as np

from pagetier.native.reader import ExtentTable
from pagetier.native.residency import page_bytes
from pagetier.tiers.evict import resident_bytes
from pagetier.tiers.pool import Pool

__all__ = ["pool_info"]


def pool_info(pool: Pool) -> dict[str, Any]:
    """Facts by their stable keys; None where one does not exist or is not known.

    `spine_bytes` (what a model has beside its experts) is None for a pool made from a geometry,
    `resident_bytes` where the kernel does not tell.
    """
    return {
        "num_layers": pool.num_layers,
        "num_experts": pool.num_experts,
        "experts": pool.total_experts,
        "expert_bytes": {
            "min": pool.expert_bytes,
            "max": pool.expert_bytes,
            "mean": float(pool.expert_bytes),
        },
        "pool_bytes": pool.total_bytes,
        "files": len(pool.files()),
        "spine_bytes": None,
        "alignment": _alignment(pool.extent_table()),
        "layout": pool.layout,
        "seed": pool.seed,
        "digest": pool.digest,
        "resident_bytes": resident_bytes(pool),
    }


def _alignment(table: ExtentTable) -> int:
    """The largest power of two that divides all offsets; the page where all are 0."""
    bits = int(np.bitwise_or.reduce(table.extents["offset"]))
    return bits & -bits if bits else page_bytes()
