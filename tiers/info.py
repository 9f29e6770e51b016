# SPDX-License-Identifier: Apache-2.0
"""The facts of a pool as ``pagetier pool info --json`` gives them.  Sizes are bytes."""

from typing import Any

import numpy as np

from pagetier.native.extents import ExtentTable
from pagetier.native.residency import page_bytes
from pagetier.tiers.base import Pool
from pagetier.tiers.evict import resident_bytes
from pagetier.tiers.pages import aligned_extents, extent_pages, page_sharing

__all__ = ["pool_info"]


def pool_info(pool: Pool) -> dict[str, Any]:
    """Facts by their stable keys; None where one does not exist or is not known.

    `spine_bytes` (what a model has beside its experts) is None for a pool made from a geometry,
    `resident_bytes` (of all files of the pool) where the kernel does not tell.  A page that two
    experts share counts for both in `page_rounded_bytes` and once in `pages`.
    """
    sizes, table = pool.expert_sizes, pool.extent_table()
    return {
        "num_layers": pool.num_layers,
        "num_experts": pool.num_experts,
        "experts": pool.total_experts,
        "expert_bytes": {
            "min": int(sizes.min()),
            "max": int(sizes.max()),
            "mean": float(sizes.mean()),
        },
        "pool_bytes": pool.total_bytes,
        "files": len(pool.files()),
        "alignment": _alignment(table),
        "layout": pool.layout,
        "digest": pool.digest,
        **_pieces(table),
        **pool.facts(),
        "resident_bytes": resident_bytes(pool),
    }


def _alignment(table: ExtentTable) -> int:
    """The largest power of two that divides all offsets; the page where all are 0."""
    bits = int(np.bitwise_or.reduce(table.extents["offset"]))
    return bits & -bits if bits else page_bytes()


def _pieces(table: ExtentTable) -> dict[str, Any]:
    page = page_bytes()
    sharing = page_sharing(table, page)
    pieces = np.diff(table.expert_start.astype(np.int64))
    return {
        "extents": len(table.extents),
        "extents_per_expert": {"min": int(pieces.min()), "max": int(pieces.max())},
        "aligned_extents": {
            "512": aligned_extents(table, 512),
            "4096": aligned_extents(table, 4096),
            "page": aligned_extents(table, page),
        },
        "page_bytes": page,
        "page_rounded_bytes": int(extent_pages(table, page).sum()) * page,
        "pages": sharing.pages,
        "shared_pages": sharing.shared_pages,
    }
