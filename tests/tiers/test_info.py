# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pagetier.native.residency import page_bytes
from pagetier.tiers import evict
from pagetier.tiers.evict import evict_pool
from pagetier.tiers.info import pool_info
from pagetier.tiers.pool import UniformPool

MakePool = Callable[..., UniformPool]


def test_facts_of_one_file_per_expert(make: MakePool, empty_proc: Path) -> None:
    pool = make("files", layers=2, experts=3, expert_bytes=4099, seed=5)
    evict_pool(pool, empty_proc)
    (pool.root / pool.files()[1]).read_bytes()
    assert pool_info(pool) == {
        "num_layers": 2,
        "num_experts": 3,
        "experts": 6,
        "expert_bytes": {"min": 4099, "max": 4099, "mean": 4099.0},
        "pool_bytes": 24594,
        "files": 6,
        "alignment": page_bytes(),
        "layout": "files",
        "digest": pool.digest,
        "extents": 6,
        "extents_per_expert": {"min": 1, "max": 1},
        "aligned_extents": {"512": 0, "4096": 0, "page": 0},
        "page_bytes": page_bytes(),
        "page_rounded_bytes": 6 * -(-4099 // page_bytes()) * page_bytes(),
        "pages": 6 * -(-4099 // page_bytes()),
        "shared_pages": 0,
        "spine_bytes": None,
        "seed": 5,
        "resident_bytes": -(-4099 // page_bytes()) * page_bytes(),
    }
    assert json.loads(json.dumps(pool_info(pool))) == pool_info(pool)


@pytest.mark.parametrize(
    ("experts", "expert_bytes", "alignment"),
    [(3, 4099, 1), (3, 13_236, 4), (2, 96, 32), (3, 8192, 8192), (5, 24576, 8192)],
)
def test_alignment_of_a_flat_pool(
    make: MakePool, experts: int, expert_bytes: int, alignment: int
) -> None:
    pool = make("flat", layers=1, experts=experts, expert_bytes=expert_bytes)
    info = pool_info(pool)
    assert (info["alignment"], info["files"]) == (alignment, 1)


def test_a_single_expert_is_aligned_to_the_page(make: MakePool) -> None:
    assert pool_info(make("flat", layers=1, experts=1))["alignment"] == page_bytes()


def test_unknown_residency_is_none(make: MakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make()
    monkeypatch.setattr(evict, "resident_pages", lambda fd, offset, length: None)
    assert pool_info(pool)["resident_bytes"] is None
