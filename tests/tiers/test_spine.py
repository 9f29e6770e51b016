# SPDX-License-Identifier: Apache-2.0
"""The spine: locked to the page while it is held, gone afterwards, an error when not whole."""

import mmap
import os
from pathlib import Path

import pytest

from pagetier.native.errors import ArenaError
from pagetier.tiers.spine import locked_spine

SIZE = 16 * mmap.PAGESIZE


def locked_bytes() -> int | None:
    for line in Path(f"/proc/{os.getpid()}/status").read_text().splitlines():
        if line.startswith("VmLck:"):
            return int(line.split()[1]) * 1024
    return None


def test_it_is_locked_while_it_is_held() -> None:
    before = locked_bytes()
    assert before is not None
    with locked_spine(SIZE, locked_bytes):
        assert locked_bytes() == before + SIZE
    assert locked_bytes() == before


def test_no_spine_locks_nothing() -> None:
    before = locked_bytes()
    with locked_spine(0, locked_bytes):
        assert locked_bytes() == before


def test_an_error_inside_unlocks() -> None:
    before = locked_bytes()
    with pytest.raises(KeyboardInterrupt), locked_spine(SIZE, locked_bytes):
        raise KeyboardInterrupt
    assert locked_bytes() == before


def test_another_count_than_asked_for_is_an_error_and_leaves_nothing() -> None:
    before = locked_bytes()
    counts = iter([0, SIZE - mmap.PAGESIZE])
    with (
        pytest.raises(ArenaError, match=rf"VmLck went from 0 to \d+ bytes when {SIZE} were locked"),
        locked_spine(SIZE, lambda: next(counts)),
    ):
        pytest.fail("a partial lock is no lock")
    assert locked_bytes() == before
