# SPDX-License-Identifier: Apache-2.0
"""The readahead window: set, read back, restored on every exit and after kill -9."""

import json
from pathlib import Path

import pytest

from pagetier.analysis.errors import CapabilityError
from pagetier.bench.journal import Journal, recover
from pagetier.bench.readahead import is_settable, read_ahead, restore_read_ahead, safe_chunk_bytes
from pagetier.cgroups.roots import Roots


@pytest.fixture
def window(tmp_path: Path) -> Path:
    path = tmp_path / "sys/class/bdi/254:0/read_ahead_kb"
    path.parent.mkdir(parents=True)
    path.write_text("8192\n")
    return path


def roots(tmp_path: Path) -> Roots:
    return Roots(sys=tmp_path / "sys")


def test_it_is_set_for_the_block_and_then_as_before(tmp_path: Path, window: Path) -> None:
    with read_ahead("254:0", 128, roots(tmp_path)) as found_kb:
        assert (found_kb, window.read_text()) == (128, "128\n")
    assert window.read_text() == "8192\n"


def test_it_is_restored_after_an_error(tmp_path: Path, window: Path) -> None:
    with pytest.raises(KeyboardInterrupt), read_ahead("254:0", 128, roots(tmp_path)):
        raise KeyboardInterrupt
    assert window.read_text() == "8192\n"


def test_a_device_without_a_window_is_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(CapabilityError, match="leave read_ahead_kb out"),
        read_ahead("9:9", 128, roots(tmp_path)),
    ):
        pass
    assert not is_settable("9:9", roots(tmp_path))


def test_a_dead_harness_is_undone_by_its_journal(tmp_path: Path, window: Path) -> None:
    state = tmp_path / "state"
    with Journal(state, Roots()) as journal, journal.entry(kind="read_ahead", bdi="254:0", kb=8192):
        window.write_text("128\n")
        (written,) = state.glob("*.json")
        document = json.loads(written.read_text())
    document["owner"]["start_ticks"] += 1  # its pid lives on as another process
    (state / "dead.json").write_text(json.dumps(document))
    proc = Roots(sys=tmp_path / "sys")
    assert recover(state, proc) == ["put read_ahead_kb 8192 of 254:0 before a dead harness back"]
    assert window.read_text() == "8192\n"
    assert not restore_read_ahead("254:0", 8192, proc)
    assert not restore_read_ahead("9:9", 8192, proc)  # the device is gone


@pytest.mark.parametrize(
    ("max_sectors_kb", "chunk"),
    [(None, 128 << 10), (64, 128 << 10), (1280, 1280 << 10), (4096, 2 << 20)],
)
def test_a_safe_chunk_is_one_that_no_kernel_cuts(max_sectors_kb: int | None, chunk: int) -> None:
    assert safe_chunk_bytes(max_sectors_kb) == chunk
