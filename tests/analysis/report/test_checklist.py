# SPDX-License-Identifier: Apache-2.0
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.analysis.errors import InputError
from pagetier.analysis.generate import default_trace
from pagetier.analysis.plans import Plan, build_plan
from pagetier.analysis.report.beside import Beside, parse_rates, plan_of, read_simulation
from pagetier.analysis.report.block import block_fields, block_text
from pagetier.analysis.report.checklist import checklist_section
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.workload import unions
from pagetier.analysis.results import Cell
from pagetier.analysis.traces import write_trace

MakeCell = Callable[..., Cell]
MakeStudy = Callable[..., Study]
GB = 10**9

# Appendix B.1 of the second paper, in its order.
FIELDS = """event unit
retention decision
intra-event order (if immediate)
conformance trace
templates per category
distinct prompt heads / finals
chat template applied
decode steps recorded
position-locked cohorts
unique generated sequences
positional token agreement
expert Jaccard | low-text-overlap
effect stable across position bands
experts N, top-k, layers
residency fraction rho
cache scope
union per layer-step
capacity per layer
r(s,l) = union / capacity
concurrency
service discipline
miss denominator
dedup credited to policy
static fit source
static quota rule
initial pinned load counted
offline bound reported
forced-admission decomposition
absolute bytes per output token
bandwidth budget assumed""".splitlines()

GENERATED: dict[str, Any] = {
    "layers": 2,
    "experts": 10,
    "top_k": 3,
    "iterations": 2,
    "seed": 1,
    "zipf": 1.0,
    "reuse": 0.4,
}


@pytest.fixture
def study(make_cell: MakeCell, make_study: MakeStudy) -> Study:
    """Two capacities of 10 and 4 experts of 1000 B in a pool of 20."""
    return make_study([make_cell(capacity_bytes=c, device=8192) for c in (10_000, 4_000)])


def values(study: Study, beside: Beside) -> dict[str, str]:
    return {field.name: field.value for field in block_fields(study, beside)}


def test_every_field_of_the_block_is_there(study: Study) -> None:
    assert [field.name for field in block_fields(study, Beside())] == FIELDS
    assert all(field.value for field in block_fields(study, Beside()))


def test_the_regime_is_of_the_trace_and_the_capacities(study: Study) -> None:
    found = values(study, Beside())
    assert found["experts N, top-k, layers"] == "10 / 3 / 2"
    assert found["residency fraction rho"] == "10.0 KB: 0.50; 4.00 KB: 0.20"
    assert found["capacity per layer"] == "10.0 KB: 5.0; 4.00 KB: 2.0"
    assert found["union per layer-step"] == "mean 3.00, p95 needs the trace"
    assert found["absolute bytes per output token"].startswith("8.19 KB to 8.19 KB")


def test_experts_of_different_sizes_have_a_pool_and_no_number_per_layer(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    facts = {"expert_bytes": None, "pool_bytes": 40_000}
    mixed = make_study([make_cell(capacity_bytes=c, facts=facts) for c in (10_000, 4_000)])
    found = values(mixed, Beside())
    assert found["residency fraction rho"] == "10.0 KB: 0.25; 4.00 KB: 0.10"
    assert found["capacity per layer"] == "n/a: the experts differ in size"
    assert found["r(s,l) = union / capacity"] == "n/a: the experts differ in size"


def test_the_trace_answers_what_the_results_cannot(study: Study) -> None:
    plan = build_plan(default_trace(**GENERATED))
    found = values(study, Beside(plan=plan))
    assert found["union per layer-step"] == "mean 3.00, p95 3"
    assert found["r(s,l) = union / capacity"] == (
        "10.0 KB: mean 0.600, p95 0.600, above 1 0.00%;"
        " 4.00 KB: mean 1.500, p95 1.500, above 1 100.00%"
    )


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=8), min_size=1, max_size=6))
def test_unions_by_hand(records: list[list[int]]) -> None:
    plan = Plan(
        experts=np.array([e for record in records for e in record], dtype=np.uint32),
        record_start=np.cumsum([0, *map(len, records)]).astype(np.uint64),
        iteration_start=np.array([0, len(records)], dtype=np.uint64),
        num_layers=2,
        num_experts=3,
    )
    assert unions(plan).tolist() == [len(set(record)) for record in records]


def test_a_simulation_fills_the_oracle(study: Study) -> None:
    rows = tuple(
        {
            "policy": policy,
            "scope": "global",
            "replay": "access",
            "budget_bytes": 4000,
            "miss_bytes_per_iteration": value,
        }
        for policy, value in (("lru", 20.0), ("belady", 10.0), ("belady-forced", 12.0))
    )
    found = values(study, Beside(simulation=rows))
    assert found["offline bound reported"] == "yes"
    assert found["forced-admission decomposition"] == (
        "10.0 KB: 20.00% / 80.00%; 4.00 KB: 20.00% / 80.00%"
    )


def test_the_block_is_dotted_to_one_column(study: Study) -> None:
    text = block_text(block_fields(study, Beside()))
    assert text.startswith("Execution model\n  event unit ......................... per-access")
    lines = [line for line in text.splitlines() if line.startswith("  ")]
    assert len(lines) == len(FIELDS)
    assert [line for line in text.splitlines() if line and not line.startswith(" ")] == [
        "Execution model",
        "Workload",
        "Regime",
        "Oracle",
    ]


def test_every_item_has_one_of_three_states(study: Study) -> None:
    section = checklist_section(study, Beside())
    items = [row[0] for row in section.tables[0].rows]
    groups = (("A", 4), ("B", 8), ("C", 7), ("D", 4))
    assert items == [f"{group}{n}" for group, last in groups for n in range(1, last + 1)]
    states = Counter(row[2] for row in section.tables[0].rows)
    assert set(states) == {"stated", "not applicable", "missing"}
    assert section.prose[0].endswith("Missing: B1, B2, B5, B6, C1, D1, D2.")


def test_a_static_table_makes_its_item_apply(make_cell: MakeCell, make_study: MakeStudy) -> None:
    arena = {"table": "oracle", "fraction": 1.0}
    study = make_study([make_cell(tier="arena", arena=arena)])
    items = {row[0]: row for row in checklist_section(study, Beside()).tables[0].rows}
    assert items["C6"][2] == "stated"
    assert items["C6"][3].startswith("same trace (oracle)")


# ---- what is given beside -----------------------------------------------------------------------


def test_the_plan_of_a_generated_trace_is_made_again(
    make_cell: MakeCell, make_study: MakeStudy
) -> None:
    plan = build_plan(default_trace(**GENERATED))
    campaign = {"trace": {"generate": GENERATED, "path": None, "steps": None}}
    same = make_study([make_cell()], campaign=campaign, plan_sha256=plan.sha256)
    other = make_study([make_cell()], campaign=campaign, plan_sha256="other")
    found = plan_of(same, None)
    assert found is not None and found.sha256 == plan.sha256
    assert plan_of(other, None) is None


def test_a_trace_that_was_cut_is_cut_again(
    make_cell: MakeCell, make_study: MakeStudy, tmp_path: Path
) -> None:
    trace = default_trace(**GENERATED)
    write_trace(trace, tmp_path / "trace.jsonl")
    cut = build_plan(trace.first_steps(1))
    campaign = {"trace": {"path": "gone.jsonl", "steps": 1}}
    study = make_study([make_cell()], campaign=campaign, plan_sha256=cut.sha256)
    found = plan_of(study, tmp_path / "trace.jsonl")
    assert found is not None and found.sha256 == cut.sha256
    whole = make_study([make_cell()], plan_sha256=cut.sha256)
    with pytest.raises(InputError, match="its reads are others"):
        plan_of(whole, tmp_path / "trace.jsonl")


def test_rates_are_sizes_per_second() -> None:
    found = parse_rates("device=27 GB, hbm = 2938 GB,hbm_bytes=80 GiB")
    assert (found.device, found.host, found.hbm) == (27 * GB, None, 2938 * GB)
    assert found.hbm_bytes == 80 * 2**30


@pytest.mark.parametrize("text", ["fast=1 GB", "device", "device=", "device=0", "device=27 G"])
def test_bad_rates_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_rates(text)


@pytest.mark.parametrize("content", ["[]", '{"rows": 3}', '{"rows": [3]}', "no JSON", "\xff"])
def test_what_is_no_simulation_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "simulation.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(InputError, match="pagetier simulate --json"):
        read_simulation(path)


def test_a_simulation_is_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "simulation.json"
    document: dict[str, Any] = {"rows": [{"policy": "lru"}]}
    path.write_text(json.dumps(document))
    assert read_simulation(path) == ({"policy": "lru"},)
