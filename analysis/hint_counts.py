# SPDX-License-Identifier: Apache-2.0
"""What hints did, as counted by the worker that gave them; a count that was not taken is None."""

from dataclasses import dataclass, fields

from pagetier.analysis.counters import number
from pagetier.analysis.results import Pass

__all__ = ["Hints"]


@dataclass(frozen=True, slots=True)
class Hints:
    """What the prefetch worker did in a pass.

    Counts are of hints, one for each record that has some; bytes are of whole pages.  `brought`:
    absent before a hint and there after it, where no read of the same expert ran meanwhile
    (`raced`: where one did, which may have brought them itself).  Of what was brought, `used` was
    there at the expert's next read, `evicted` was not, `lost` was gone before it was hinted again,
    `unused` was never read in this pass.
    """

    submitted: int | None
    overwritten: int | None
    completed: int | None
    failed: int | None
    hinted_bytes: int | None
    resident_before_bytes: int | None
    resident_after_bytes: int | None
    brought_bytes: int | None
    raced_bytes: int | None
    used_bytes: int | None
    evicted_bytes: int | None
    lost_bytes: int | None
    unused_bytes: int | None
    busy_ns: int | None

    @classmethod
    def of(cls, replay: Pass) -> "Hints | None":
        """None of a pass without an advisor."""
        if not replay.result.get("hints"):
            return None
        return cls(*(number(replay.result, "hints", field.name) for field in fields(cls)))

    @property
    def used_share(self) -> float | None:
        """Of the bytes that hints brought, those that were still there at the next read."""
        if self.used_bytes is None or not self.brought_bytes:
            return None
        return self.used_bytes / self.brought_bytes

    @property
    def resident_share(self) -> float | None:
        """Bytes resident just after the hint per byte hinted: below 1 a hint was cut."""
        if self.resident_after_bytes is None or not self.hinted_bytes:
            return None
        return self.resident_after_bytes / self.hinted_bytes
