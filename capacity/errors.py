# SPDX-License-Identifier: Apache-2.0
"""Errors of this room; every message is one sentence: what, where, what to do."""

__all__ = ["CapacityError"]


class CapacityError(Exception):
    """A capacity cannot be enforced here, or not without harm to the host."""
