# SPDX-License-Identifier: Apache-2.0
"""What the content of a pool must be: computed from a seed, or the digests of what was read."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagetier.tiers.base import Pool
from pagetier.tiers.models.pool import MappedPool
from pagetier.tiers.models.verify import digest_experts

__all__ = ["Expected", "expected_content"]


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """`digests` by expert, where they are not None; else what `seed` gives."""

    seed: int
    digests: NDArray[np.uint64] | None


def expected_content(pool: Pool, experts: NDArray[np.integer]) -> Expected:
    """What a replay of these experts has to find.

    Of a mapped pool the experts that were never read are read for it, so that the pool is cold only
    after the next eviction.  Raises a ModelError when one cannot be read.
    """
    if isinstance(pool, MappedPool):
        return Expected(0, digest_experts(pool, experts))
    return Expected(pool.seed, None)
