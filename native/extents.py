# SPDX-License-Identifier: Apache-2.0
"""Where the bytes of experts lie, and the reads of a plan: the arrays that C works on. Bytes."""

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["EXTENT_DTYPE", "ExtentTable", "PlanArrays"]

EXTENT_DTYPE: Final = np.dtype(
    [("file", np.uint32), ("offset", np.uint64), ("length", np.uint64)], align=True
)


@dataclass(frozen=True, slots=True)
class ExtentTable:
    """Where the bytes of every expert lie.

    Expert e is the extents [expert_start[e], expert_start[e + 1]), in this order.  `identities` has
    st_dev and st_ino of each path: another file in its place is refused.
    """

    paths: tuple[str, ...]
    extents: NDArray[np.void]
    expert_start: NDArray[np.uint64]
    identities: NDArray[np.uint64] | None = None


class PlanArrays(Protocol):
    """The reads of a plan, in order.

    Record r is experts[record_start[r]:record_start[r + 1]]; iteration i is the records
    [iteration_start[i], iteration_start[i + 1]).  Both bounds start at 0 and end at the count.
    """

    @property
    def experts(self) -> NDArray[np.uint32]: ...
    @property
    def record_start(self) -> NDArray[np.uint64]: ...
    @property
    def iteration_start(self) -> NDArray[np.uint64]: ...
