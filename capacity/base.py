# SPDX-License-Identifier: Apache-2.0
"""What a mechanism is: it takes a target capacity, enforces it, and says what really holds.

All sizes are bytes.  A fact that does not apply to a mechanism, or that the kernel does not tell,
is None.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from pagetier.cgroups.scope import Scope

__all__ = ["Enforced", "Enforcement", "Mechanism"]


@dataclass(frozen=True, slots=True)
class Enforced:
    """Read back from the kernel after enforcing; `capacity_bytes` alone is the target."""

    mechanism: str
    capacity_bytes: int | None
    headroom_bytes: int | None
    limit_bytes: int | None
    swap_limit_bytes: int | None
    locked_bytes: int | None
    facts: dict[str, int | str | None]


class Enforcement(Protocol):
    """A mechanism in force."""

    @property
    def enforced(self) -> Enforced:
        """What the kernel enforced at the start."""
        ...

    def problems(self) -> list[str]:
        """Everything that no longer holds, one sentence each; asked after the measured pass."""
        ...


class Mechanism(Protocol):
    """A way to leave a program a given amount of memory."""

    @property
    def name(self) -> str:
        """`none`, `wall` or `balloon`."""
        ...

    def enforce(
        self, capacity_bytes: int | None, scope: Scope | None
    ) -> AbstractContextManager[Enforcement]:
        """Enforce now, undo on exit; raises CapacityError when that is impossible or harmful.

        Called when the program inside `scope` has touched all of its buffers.
        """
        ...
