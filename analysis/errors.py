# SPDX-License-Identifier: Apache-2.0
"""What a user is told: one sentence with what is wrong, where, and what to do about it."""

__all__ = ["CapabilityError", "InputError", "PagetierError"]


class PagetierError(Exception):
    """A message for the user: the command line prints it without a traceback and exits 2."""


class InputError(PagetierError):
    """Something the user gave is wrong: a trace, a campaign, a pool, results, a flag."""


class CapabilityError(PagetierError):
    """This host cannot do what was asked for; the message has the remedy."""
