# SPDX-License-Identifier: Apache-2.0
"""A replay in parts is the replay in one, and looks where it is told to."""

from pathlib import Path

import numpy as np
import pytest

from pagetier.analysis.generate import default_trace
from pagetier.analysis.plans import build_plan
from pagetier.bench.audited import audited_replay
from pagetier.bench.pass_event import pass_event
from pagetier.bench.tracing import instance_path, remove_instance, tracefs
from pagetier.cgroups.roots import Roots
from pagetier.native.reader import Progress, Reader
from pagetier.tiers.create import create_pool
from pagetier.tiers.evict import evict_pool

EXPERT_BYTES = 50_001


@pytest.mark.parametrize("stops", [(9,), (2, 5, 9), tuple(range(10))])
def test_parts_add_up_to_the_whole(tmp_path: Path, stops: tuple[int, ...]) -> None:
    plan = build_plan(default_trace(layers=2, experts=8, top_k=2, iterations=10, seed=1))
    pool = create_pool(
        tmp_path / "pool", layers=2, experts=8, expert_bytes=EXPERT_BYTES, layout="flat"
    )
    table = pool.extent_table()
    heard: list[Progress] = []
    events = []
    for way in ("whole", "parts"):
        evict_pool(pool, Path("/proc"))
        with Reader(table, threads=2, advice="random") as reader:
            if way == "whole":
                events.append(pass_event(reader.replay(plan)))
            else:
                events.append(audited_replay(reader, table, plan, None, stops, heard.append))
    whole, parts = events
    for name in ("bytes", "reads", "first_bytes", "repeat_bytes"):
        assert parts[name] == whole[name], name
    assert sum(count for _, count in parts["latency_histogram"]) == plan.num_reads
    assert heard[-1] == Progress(plan.num_reads, plan.num_reads * EXPERT_BYTES, 10)
    assert parts["end_ns"] == sorted(parts["end_ns"])
    audit = parts["audit"]
    assert audit["iterations"] == list(stops)
    assert len(audit["resident_pages"]) == len(stops)
    # Nothing is evicted here: after the last iteration all that the plan reads is there.
    last = np.array(audit["resident_pages"][-1])
    assert np.all(last[np.unique(plan.experts)] >= EXPERT_BYTES // 4096)


def test_an_instance_is_found_and_removed_by_its_own_name_alone(tmp_path: Path) -> None:
    roots = Roots(proc=tmp_path / "proc", sys=tmp_path / "sys", cgroup=tmp_path / "cgroup")
    assert tracefs(roots) is None
    instances = tmp_path / "sys/kernel/tracing/instances"
    instances.mkdir(parents=True)
    root = tracefs(roots)
    assert root == instances.parent
    path = instance_path(root, "abcd")
    path.mkdir()
    other = instances / "mine"
    other.mkdir()
    assert not remove_instance(other, "abcd")
    assert not remove_instance(path, "dcba")
    assert remove_instance(path, "abcd")
    assert not remove_instance(path, "abcd")
    assert [entry.name for entry in instances.iterdir()] == ["mine"]
