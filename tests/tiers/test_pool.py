# SPDX-License-Identifier: Apache-2.0
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.errors import InputError
from pagetier.native.reader import EXTENT_DTYPE, ExtentTable
from pagetier.tiers.manifest import encode_manifest, make_manifest, manifest_digest
from pagetier.tiers.pages import extent_pages
from pagetier.tiers.pool import UniformPool, open_pool, storage_problems

MakePool = Callable[..., UniformPool]


def virtual_pool(layers: int, experts: int, expert_bytes: int, layout: str) -> UniformPool:
    manifest = make_manifest(layers, experts, expert_bytes, layout, 0)
    return UniformPool(Path("/pool"), manifest_digest(encode_manifest(manifest)), manifest)


@pytest.mark.parametrize("layout", ["files", "flat"])
def test_a_pool_opens_with_what_it_was_made_from(make: MakePool, layout: str) -> None:
    made = make(layout, layers=2, experts=3, expert_bytes=4099, seed=5)
    pool = open_pool(made.root)
    assert pool == made
    assert (pool.num_layers, pool.num_experts, pool.total_experts) == (2, 3, 6)
    assert (pool.expert_bytes, pool.total_bytes) == (4099, 6 * 4099)
    assert (pool.layout, pool.seed) == (layout, 5)
    assert pool.digest == manifest_digest((made.root / "pool.json").read_bytes())
    assert storage_problems(pool) == []


def test_one_file_per_expert_is_named_by_layer_and_expert() -> None:
    pool = virtual_pool(2, 3, 10, "files")
    assert pool.files() == (
        "layer-000/expert-0000.bin",
        "layer-000/expert-0001.bin",
        "layer-000/expert-0002.bin",
        "layer-001/expert-0000.bin",
        "layer-001/expert-0001.bin",
        "layer-001/expert-0002.bin",
    )
    assert virtual_pool(2, 3, 10, "flat").files() == ("experts.bin",)


@given(
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 70_000),
    st.sampled_from(["files", "flat"]),
)
def test_extents_cover_the_pool_once_and_in_order(
    layers: int, experts: int, expert_bytes: int, layout: str
) -> None:
    pool = virtual_pool(layers, experts, expert_bytes, layout)
    table = pool.extent_table()
    assert table.expert_start.tolist() == list(range(pool.total_experts + 1))
    seen: dict[str, int] = {}
    for expert in range(pool.total_experts):
        extent = table.extents[expert]
        path = table.paths[int(extent["file"])]
        assert (path, int(extent["offset"])) == (
            f"/pool/{pool.locate(expert)[0]}",
            pool.locate(expert)[1],
        )
        assert int(extent["offset"]) == seen.get(path, 0)
        assert int(extent["length"]) == expert_bytes
        seen[path] = seen.get(path, 0) + expert_bytes
    assert sum(seen.values()) == pool.total_bytes
    assert set(seen.values()) == {pool.file_bytes}


@given(st.integers(1, 12), st.integers(1, 200_000), st.sampled_from([4096, 16384, 65536]))
def test_pages_of_an_expert_match_a_count_by_hand(
    experts: int, expert_bytes: int, page_bytes: int
) -> None:
    pages = extent_pages(virtual_pool(1, experts, expert_bytes, "flat").extent_table(), page_bytes)
    for expert in range(experts):
        first, last = expert * expert_bytes, (expert + 1) * expert_bytes - 1
        assert pages[expert] == last // page_bytes - first // page_bytes + 1


@pytest.mark.parametrize("page_bytes", [4096, 16384, 65536])
def test_two_unaligned_neighbours_share_a_page(page_bytes: int) -> None:
    expert_bytes = page_bytes + 32
    flat = virtual_pool(1, 2, expert_bytes, "flat").extent_table()
    assert extent_pages(flat, page_bytes).tolist() == [2, 2]  # of only 3 in the file
    apart = virtual_pool(1, 2, page_bytes, "flat").extent_table()
    assert extent_pages(apart, page_bytes).tolist() == [1, 1]


def test_pages_of_an_expert_with_several_extents_or_none() -> None:
    extents = np.array([(0, 4095, 2), (1, 0, 1), (0, 0, 0)], dtype=EXTENT_DTYPE)
    table = ExtentTable(("a", "b"), extents, np.array([0, 2, 2, 3], dtype=np.uint64))
    assert extent_pages(table, 4096).tolist() == [3, 0, 0]


def test_a_folder_that_is_no_pool(disk: Path) -> None:
    with pytest.raises(InputError, match=r"is no pool \(no pool\.json in it\)"):
        open_pool(disk)
    with pytest.raises(InputError, match=r"is no pool \(No such file or directory\)"):
        open_pool(disk / "absent")
    (disk / "file").write_text("")
    with pytest.raises(InputError, match=r"is no pool \(Not a directory\)"):
        open_pool(disk / "file")
    (disk / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="is no pool"):
        open_pool(disk / "loop")


def test_a_link_to_a_pool_opens_the_pool(make: MakePool, disk: Path) -> None:
    pool = make()
    (disk / "link").symlink_to(pool.root)
    assert open_pool(disk / "link") == pool


@pytest.mark.parametrize("layout", ["files", "flat"])
@pytest.mark.parametrize("change_bytes", [-1, 1])
def test_a_file_of_another_size_is_seen_at_once(
    make: MakePool, layout: str, change_bytes: int
) -> None:
    pool = make(layout)
    last = pool.root / pool.files()[-1]
    os.truncate(last, pool.file_bytes + change_bytes)
    with pytest.raises(InputError) as caught:
        open_pool(pool.root)
    assert str(caught.value).startswith(f"{last}: has {pool.file_bytes + change_bytes} bytes")


def test_a_missing_file_is_named(make: MakePool) -> None:
    pool = make()
    first = pool.root / pool.files()[0]
    first.unlink()
    with pytest.raises(InputError) as caught:
        open_pool(pool.root)
    assert str(caught.value) == f"{first}: is missing; make the pool again"


def test_a_link_in_place_of_an_expert_is_refused(make: MakePool, disk: Path) -> None:
    pool = make()
    first = pool.root / pool.files()[0]
    first.rename(disk / "outside.bin")
    first.symlink_to(disk / "outside.bin")
    with pytest.raises(InputError, match=r"expert-0000\.bin: is a symbolic link"):
        open_pool(pool.root)


def test_a_link_in_place_of_a_layer_is_refused(make: MakePool, disk: Path) -> None:
    pool = make()
    (pool.root / "layer-000").rename(disk / "outside")
    (pool.root / "layer-000").symlink_to(disk / "outside")
    with pytest.raises(InputError, match="lies beneath a symbolic link"):
        open_pool(pool.root)


def test_a_link_in_place_of_the_manifest_is_refused(make: MakePool, disk: Path) -> None:
    pool = make()
    shutil.move(pool.root / "pool.json", disk / "pool.json")
    (pool.root / "pool.json").symlink_to(disk / "pool.json")
    with pytest.raises(InputError, match=r"pool\.json: is a symbolic link"):
        open_pool(pool.root)


def test_a_pipe_in_place_of_an_expert_does_not_hang(make: MakePool) -> None:
    pool = make()
    first = pool.root / pool.files()[0]
    first.unlink()
    os.mkfifo(first)
    with pytest.raises(InputError, match="not a regular file"):
        open_pool(pool.root)


def test_holes_are_a_problem(make: MakePool) -> None:
    pool = make(expert_bytes=65536)
    for name in pool.files()[3:5]:
        os.truncate(pool.root / name, 0)
        os.truncate(pool.root / name, pool.file_bytes)
    (problem,) = storage_problems(pool)
    assert problem.startswith(f"{pool.root / pool.files()[3]}: is not fully allocated")
    assert "2 of 15 files" in problem


def test_a_file_that_is_half_a_hole_is_a_problem(make: MakePool) -> None:
    pool = make(expert_bytes=65536)
    os.truncate(pool.root / pool.files()[14], 32768)
    os.truncate(pool.root / pool.files()[14], 65536)
    (problem,) = storage_problems(pool)
    assert "1 of 15 files" in problem


def test_a_pool_that_is_gone_is_an_input_error(make: MakePool) -> None:
    pool = make()
    shutil.rmtree(pool.root)
    with pytest.raises(InputError, match="is missing"):
        storage_problems(pool)
