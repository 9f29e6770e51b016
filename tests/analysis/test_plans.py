# SPDX-License-Identifier: Apache-2.0
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagetier.analysis.errors import InputError
from pagetier.analysis.plans import Plan, build_plan, load_plan, save_plan
from pagetier.analysis.traces import read_trace

WriteTrace = Callable[..., Path]


@pytest.fixture
def plan(write_lines: WriteTrace, records: list[dict[str, Any]]) -> Plan:
    return build_plan(read_trace(write_lines(records)))


def test_global_ids_in_recorded_order(plan: Plan) -> None:
    # Layer 1 starts at id 5.
    assert plan.experts.tolist() == [4, 1, 5, 7, 1, 3, 7, 5, 1, 0, 9, 8]
    assert plan.experts.dtype == np.uint32
    assert plan.record_start.tolist() == [0, 2, 4, 6, 8, 10, 12]
    assert plan.iteration_start.tolist() == [0, 2, 4, 6]
    assert (plan.num_reads, plan.num_records, plan.num_iterations) == (12, 6, 3)
    assert (plan.num_layers, plan.num_experts, plan.distinct_experts) == (2, 5, 8)


def test_demand_of_one_size_and_of_many(plan: Plan) -> None:
    assert plan.demand_bytes(13_236_480).tolist() == [4 * 13_236_480] * 3
    sizes = np.arange(10, dtype=np.int64) * 10
    assert plan.demand_bytes(sizes).tolist() == [170, 160, 180]


def test_demand_does_not_overflow_32_bits(plan: Plan) -> None:
    assert plan.demand_bytes(2**40).tolist() == [2**42] * 3


def test_digest_tells_plans_apart(plan: Plan) -> None:
    same = dataclasses.replace(plan, experts=plan.experts.copy())
    assert same.sha256 == plan.sha256
    swapped = plan.experts.copy()
    swapped[:2] = swapped[1::-1]
    others = [
        dataclasses.replace(plan, experts=swapped),
        dataclasses.replace(plan, num_layers=5, num_experts=2),
        dataclasses.replace(plan, iteration_start=np.array([0, 1, 4, 6], np.uint64)),
        dataclasses.replace(plan, record_start=np.array([0, 1, 4, 6, 8, 10, 12], np.uint64)),
    ]
    assert len({plan.sha256, *(other.sha256 for other in others)}) == 5
    assert plan.sha256 == "e117ce09548c9031a43c8c07c4d0c31ffcb4f27bf6b5953f60f9ec77790eac42"


def test_saved_plan_loads_the_same(plan: Plan, tmp_path: Path) -> None:
    save_plan(plan, tmp_path / "plan.npz")
    loaded = load_plan(tmp_path / "plan.npz")
    assert loaded.sha256 == plan.sha256
    assert (loaded.num_layers, loaded.num_experts) == (2, 5)
    dtypes = [loaded.experts.dtype, loaded.record_start.dtype, loaded.iteration_start.dtype]
    assert dtypes == [np.uint32, np.uint64, np.uint64]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def _arrays(plan: Plan) -> dict[str, Any]:
    return {
        "experts": plan.experts,
        "record_start": plan.record_start,
        "iteration_start": plan.iteration_start,
        "geometry": np.array([2, 5]),
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("experts", np.arange(12)),
        ("experts", np.array([[1]], np.uint32)),
        ("experts", np.full(12, 10, np.uint32)),
        ("experts", np.array([{}] * 12, dtype=object)),
        ("record_start", np.array([0, 2, 4, 6, 8, 10, 13], np.uint64)),
        ("record_start", np.array([0, 4, 2, 6, 8, 10, 12], np.uint64)),
        ("record_start", np.array([], np.uint64)),
        ("record_start", np.array([0, 2**63 + 5, 12], np.uint64)),
        ("iteration_start", np.array([1, 6], np.uint64)),
        ("geometry", np.array([2])),
        ("geometry", np.array([0, 5])),
        ("geometry", np.array([2.0, 5.0])),
    ],
)
def test_a_damaged_plan_is_refused(plan: Plan, tmp_path: Path, name: str, value: Any) -> None:
    path = tmp_path / "plan.npz"
    np.savez(path, allow_pickle=True, **{**_arrays(plan), name: value})
    with pytest.raises(InputError, match=r"plan\.npz: .* again"):
        load_plan(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nothing", b"\x93NUMPY", b"text"])
def test_what_is_no_plan_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"plan\.npz: not a plan"):
        load_plan(path)


def test_an_array_alone_is_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.npz"
    with open(path, "wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(InputError, match=r"plan\.npz: not a plan"):
        load_plan(path)


def test_a_missing_plan(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load_plan(tmp_path / "absent")


def test_every_cut_of_a_plan_is_refused(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.npz"
    save_plan(plan, path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError):
            load_plan(path)
