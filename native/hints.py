# SPDX-License-Identifier: Apache-2.0
"""Hints to a prefetch worker: which experts, when, and how the kernel is told.

One worker thread takes hints from one slot.  A hint that is submitted while the one before still
waits there replaces it; demand never waits for the worker, and the worker preempts no reader
(SCHED_BATCH): without a processor to spare hints come later.  While hints follow each other within
a millisecond the worker is not woken but looks for the next one every 0.1 ms.
"""

from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["DEFAULT_CHUNK_BYTES", "Delivery", "HintArrays", "HintDelivery"]

Delivery = Literal["advice", "blocking"]

# The readahead of a stock kernel (VM_READAHEAD_PAGES), and well below the requests of any disk: one
# WILLNEED call is cut at the larger of the two (force_page_cache_ra in mm/readahead.c).
DEFAULT_CHUNK_BYTES: Final = 128 * 1024


class HintArrays(Protocol):
    """When record r starts being read, a hint for hint_experts[hint_start[r]:hint_start[r + 1]].

    ``hint_start`` has one entry more than the plan has records; a record without hints has an empty
    range and submits nothing.
    """

    @property
    def hint_start(self) -> NDArray[np.uint64]: ...
    @property
    def hint_experts(self) -> NDArray[np.uint32]: ...


@dataclass(frozen=True, slots=True)
class HintDelivery:
    """How hints reach the kernel.

    ``advice``: WILLNEED, by posix_fadvise, or by madvise where the reader maps; ``blocking``: the
    worker reads the experts itself, into a buffer of its own.
    An expert whose pages are all resident is hinted without a call, unless residency is off.
    ``chunk_bytes``: bytes per call, in whole pages; 0 = each extent by one call ("whole"), which
    the kernel cuts at the readahead window.
    """

    how: Delivery = "advice"
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
