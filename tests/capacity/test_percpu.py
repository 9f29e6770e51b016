# SPDX-License-Identifier: Apache-2.0
"""Free memory in per-CPU lists: the text, and a drain on made files that give back by rounds."""

import mmap
from pathlib import Path

import pytest

from pagetier.capacity import percpu
from pagetier.capacity.percpu import drain_per_cpu_lists, parse_per_cpu_pages, read_per_cpu_bytes
from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.roots import Roots

# Linux 6.18, shortened; `count`, `high` and `batch` of a CPU stand in one place alone.
ZONE = """\
Node 0, zone   Normal
  pages free     4340222
        boost    0
      nr_free_pages 4340222
  pagesets
    cpu: 0
              count:    {0}
              high:     1444
              batch:    63
              high_min: 1444
  vm stats threshold: 36
    cpu: 1
              count:    {1}
              high:     21042
              batch:    63
  vm stats threshold: 36
  node_unreclaimable:  0
"""


def made_roots(folder: Path, text: str) -> Roots:
    (folder / "sys/vm").mkdir(parents=True)
    (folder / "sys/vm/stat_refresh").touch()
    (folder / "zoneinfo").write_text(text)
    return Roots(proc=folder)


def test_the_lists_of_all_cpus_and_zones_are_added() -> None:
    assert parse_per_cpu_pages(ZONE.format(395, 114) + ZONE.format(7, 360_000)) == 360_516


@pytest.mark.parametrize(
    "text", ["", "Node 0, zone DMA\n", "    cpu: 0\n              high:    3\n"]
)
def test_a_text_without_counts_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match=r"/proc/zoneinfo: has no `count:`"):
        parse_per_cpu_pages(text)


def test_one_cpu_without_a_count_is_refused() -> None:
    with pytest.raises(ParseError):
        parse_per_cpu_pages(ZONE.format(395, 114).replace("count:    114", "tally:    114"))


def test_what_is_out_of_sight_is_unknown(tmp_path: Path) -> None:
    assert read_per_cpu_bytes(Roots(proc=tmp_path)) is None
    assert drain_per_cpu_lists(Roots(proc=tmp_path)) is None


def test_without_the_right_to_refresh_it_only_looks(tmp_path: Path) -> None:
    roots = made_roots(tmp_path, ZONE.format(300_000, 1))
    (tmp_path / "sys/vm/stat_refresh").unlink()
    assert drain_per_cpu_lists(roots) == 300_001 * mmap.PAGESIZE


def test_it_drains_until_a_round_brings_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = made_roots(tmp_path, ZONE.format(300_000, 0))
    left = [300_000]
    refreshed = percpu._refreshed

    def round_of(roots: Roots) -> bool:
        left[0] = max(left[0] - 100_000, 70)
        (tmp_path / "zoneinfo").write_text(ZONE.format(left[0], 0))
        return refreshed(roots)

    monkeypatch.setattr(percpu, "_refreshed", round_of)
    assert drain_per_cpu_lists(roots) == 70 * mmap.PAGESIZE


def test_it_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = made_roots(tmp_path, ZONE.format(300_000, 0))
    rounds = iter(range(10**6))

    def round_of(roots: Roots) -> bool:
        (tmp_path / "zoneinfo").write_text(ZONE.format(10**9 - 1000 * next(rounds), 0))
        return True

    monkeypatch.setattr(percpu, "_refreshed", round_of)
    assert drain_per_cpu_lists(roots, patience_s=0) == 10**9 * mmap.PAGESIZE
