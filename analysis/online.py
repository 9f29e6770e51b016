# SPDX-License-Identifier: Apache-2.0
"""An exact LRU of whole experts that is fed as the reads happen, at a capacity that may change.

Access replay, as in `pagetier.analysis.lru`: one cache for all layers, every read an access, in the
order in which it comes.  It starts empty, so that an expert's first read is a miss even when the
kernel has long had its pages: first touches are counted apart for that reason.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from pagetier.analysis.check_figures import Computed

__all__ = ["OnlineLru"]


class OnlineLru:
    """Counts misses in bytes; `expert_bytes` is a size per global expert id."""

    def __init__(self, expert_bytes: Sequence[int], capacity_bytes: int = 0) -> None:
        self._sizes = expert_bytes
        self._capacity_bytes = capacity_bytes
        self._held: OrderedDict[int, None] = OrderedDict()
        self._held_bytes = 0
        self._seen: set[int] = set()
        self._reads = 0
        self._miss_bytes = 0
        self._first_touch_bytes = 0

    def resize(self, capacity_bytes: int) -> None:
        """Another capacity from now on; what no longer fits goes, least recently used first."""
        self._capacity_bytes = capacity_bytes
        self._shrink()

    def read(self, experts: Iterable[int]) -> None:
        """Read experts, in this order."""
        for expert in experts:
            self._reads += 1
            if expert in self._held:
                self._held.move_to_end(expert)
                continue
            size = self._sizes[expert]
            self._miss_bytes += size
            if expert not in self._seen:
                self._seen.add(expert)
                self._first_touch_bytes += size
            # What is larger than the whole cache passes through it without a stay.
            if size <= self._capacity_bytes:
                self._held[expert] = None
                self._held_bytes += size
                self._shrink()

    def computed(self) -> Computed:
        """The counts so far."""
        return Computed(
            self._miss_bytes, self._first_touch_bytes, self._reads, self._capacity_bytes
        )

    def _shrink(self) -> None:
        while self._held_bytes > self._capacity_bytes:
            expert, _ = self._held.popitem(last=False)
            self._held_bytes -= self._sizes[expert]
