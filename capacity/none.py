# SPDX-License-Identifier: Apache-2.0
"""No mechanism: the host's memory as it is, for a reference beside the enforced cells."""

from collections.abc import Iterator
from contextlib import contextmanager

from pagetier.capacity.base import Enforced
from pagetier.cgroups.scope import Scope

__all__ = ["Unlimited", "UnlimitedEnforcement"]


class UnlimitedEnforcement:
    """Holds always, for it holds nothing."""

    def __init__(self, capacity_bytes: int | None) -> None:
        self._enforced = Enforced("none", capacity_bytes, None, None, None, None, {})

    @property
    def enforced(self) -> Enforced:
        """The target alone."""
        return self._enforced

    def problems(self) -> list[str]:
        """Nothing can break."""
        return []


class Unlimited:
    """Enforces nothing and touches nothing."""

    name = "none"

    @contextmanager
    def enforce(
        self, capacity_bytes: int | None, scope: Scope | None
    ) -> Iterator[UnlimitedEnforcement]:
        """The host as it is; the scope, if any, is left without a limit."""
        yield UnlimitedEnforcement(capacity_bytes)
