# SPDX-License-Identifier: Apache-2.0
"""Transparent huge pages: the host's policy for anonymous memory (always, madvise, never)."""

from pathlib import Path

from pagetier.bench.kernel.text import parse_selected, read_text

__all__ = ["read_thp"]


def read_thp(sys: Path) -> str | None:
    """The policy in force; None on a kernel without them."""
    path = sys / "kernel/mm/transparent_hugepage/enabled"
    text = read_text(path)
    return None if text is None else parse_selected(text, str(path))
