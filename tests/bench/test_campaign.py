# SPDX-License-Identifier: Apache-2.0
"""Campaign files: what is accepted, and that every mistake names file, line and field."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pagetier.analysis.errors import InputError
from pagetier.bench.campaign_file import load_campaign
from pagetier.bench.cells import ArenaSpec, CellSpec, plan_cells

MINIMAL = """\
trace: traces/a.jsonl
pool: pools/a
mechanisms: [none]
"""


def load(tmp_path: Path, text: str, **overrides: str) -> "list[CellSpec]":
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return plan_cells(load_campaign(path, **overrides))


def error_of(tmp_path: Path, text: str) -> str:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_campaign(path)
    return str(caught.value).removeprefix(f"{tmp_path}/")


def test_minimal_campaign_is_one_cell(tmp_path: Path) -> None:
    (cell,) = load(tmp_path, MINIMAL)
    assert (cell.tier, cell.mechanism, cell.capacity_bytes) == ("page-cache", "none", None)
    assert (cell.read, cell.advice, cell.threads, cell.barrier) == ("pread", "default", 8, "record")


def test_sizes_are_decimal_or_binary(tmp_path: Path) -> None:
    text = "trace: t\npool: p\nmechanisms: [wall]\ncapacities: [7.5 GB, 500 MiB, 123]\n"
    capacities = {cell.capacity_bytes for cell in load(tmp_path, text)}
    assert capacities == {7_500_000_000, 524_288_000, 123}


def test_cells_are_the_product_and_none_has_no_capacity(tmp_path: Path) -> None:
    text = (
        "trace: t\npool: [p, q]\nmechanisms: [none, wall]\ncapacities: [1 MB, 2 MB, 3 MB]\n"
        "advice: [default, random]\nrepetitions: 2\n"
    )
    cells = load(tmp_path, text)
    assert len({cell.id for cell in cells}) == len(cells) == 2 * 2 * 2 * (1 + 3)
    assert {cell.capacity_bytes for cell in cells if cell.mechanism == "none"} == {None}


def test_order_is_seeded_and_repetitions_come_in_turn(tmp_path: Path) -> None:
    text = "trace: t\npool: p\nmechanisms: [wall]\ncapacities: [1, 2, 3, 4, 5, 6]\nrepetitions: 3\n"
    first, again = load(tmp_path, text), load(tmp_path, text)
    assert first == again
    assert [cell.repetition for cell in first] == [1] * 6 + [2] * 6 + [3] * 6
    assert first != load(tmp_path, text + "seed: 1\n")
    blocks = [[c.capacity_bytes for c in first[at : at + 6]] for at in (0, 6, 12)]
    assert len({tuple(block) for block in blocks}) > 1
    assert all(Counter(block) == Counter(blocks[0]) for block in blocks)


def test_variations_change_one_factor_and_repeat_no_cell(tmp_path: Path) -> None:
    text = (
        "trace: t\npool: p\nmechanisms: [balloon]\ncapacities: [1 MB]\nrepetitions: 2\n"
        "variations:\n"
        "  - {read: mmap}\n"
        "  - {capacities: [1 MB, 2 MB]}\n"
        "  - {balloon: {huge_pages: on}}\n"
        "  - {mechanisms: [wall]}\n"
    )
    cells = load(tmp_path, text)
    first = {replace(cell, repetition=1) for cell in cells}
    assert len(cells) == 2 * len(first) == 2 * 5
    (base,) = (
        cell
        for cell in first
        if (cell.mechanism, cell.read, cell.capacity_bytes, cell.balloon_huge_pages)
        == ("balloon", "pread", 1_000_000, "off")
    )
    assert first == {
        base,
        replace(base, read="mmap"),
        replace(base, capacity_bytes=2_000_000),
        replace(base, balloon_huge_pages="on"),
        replace(base, mechanism="wall", balloon_order=None, balloon_huge_pages=None),
    }


def test_command_line_replaces_trace_but_keeps_its_cut(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("trace: {path: a, steps: 10}\npool: p\nmechanisms: [none]\n")
    campaign = load_campaign(path, trace="b", pool="q")
    assert (campaign.trace.path, campaign.trace.steps) == ("b", 10)
    assert [pool.path for pool in campaign.pool] == ["q"]


def test_command_line_replaces_the_chunk_of_hints(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(MINIMAL + "prefetch: {plan: oracle, chunk: [safe, whole]}\n")
    assert load_campaign(path, hint_chunk="4 MiB").prefetch.chunk == [4 << 20]
    path.write_text(MINIMAL)
    assert load_campaign(path, hint_chunk="whole").prefetch.chunk == ["whole"]
    with pytest.raises(InputError, match=r"c\.yaml:1: prefetch: "):
        load_campaign(path, hint_chunk="much")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "c.yaml: expected a mapping"),
        ("- a\n", "c.yaml: expected a mapping"),
        ("trace: [\n", "c.yaml:2: not valid YAML"),
        ("pool: p\n", "c.yaml:1: key 'trace' is missing"),
        (
            MINIMAL + "capacites: [1]\n",
            "c.yaml:4: unknown key 'capacites'; did you mean 'capacities'?",
        ),
        (MINIMAL + "tiers: [arean]\n", "c.yaml:4: tiers.0: Input should be 'page-cache', 'arena'"),
        (
            MINIMAL + "arena:\n  tabel: x\n",
            "c.yaml:5: unknown key 'arena.tabel'; did you mean 'table'",
        ),
        (
            MINIMAL + "arena: {fraction: [0.5, 1.5]}\n",
            "c.yaml:4: arena.fraction.1: Input should be le",
        ),
        (MINIMAL + "spine: -1\n", "c.yaml:4: spine: -1 is negative"),
        (MINIMAL + "read_ahead_kb: many\n", "c.yaml:4: read_ahead_kb: Input should be a valid int"),
        (
            MINIMAL + "prefetch: {plan: [orakle]}\n",
            "c.yaml:4: prefetch.plan.0: Input should be 'none'",
        ),
        (MINIMAL + "prefetch: {chunk: 3 XB}\n", "c.yaml:4: prefetch.chunk"),
        (MINIMAL + "prefetch: {plan: recorded}\n", "c.yaml:4: prefetch: plan 'recorded' needs"),
        (
            MINIMAL + "prefetch:\n  delivry: advice\n",
            "c.yaml:5: unknown key 'prefetch.delivry'; did",
        ),
        (
            MINIMAL + "variations:\n  - prefetch: {plan: recorded}\n",
            "c.yaml:5: variations.0.prefetch: plan 'recorded' needs",
        ),
        (MINIMAL + "zzz: 1\n", "c.yaml:4: unknown key 'zzz'; known keys: trace, pool"),
        (MINIMAL + "threads: 0\n", "c.yaml:4: threads: Input should be greater than 0"),
        (MINIMAL + "threads: many\n", "c.yaml:4: threads: Input should be a valid integer"),
        (MINIMAL + "capacities:\n  - 1 MB\n  - 5 XB\n", "c.yaml:6: capacities.1: "),
        (MINIMAL + "capacities: [0]\n", "c.yaml:4: capacities.0: Input should be greater than 0"),
        (MINIMAL + "read: aio\n", "c.yaml:4: read: Input should be 'pread', 'mmap' or"),
        (MINIMAL + "advice: [fast]\n", "c.yaml:4: advice.0: "),
        (MINIMAL + "headroom: lots\n", "c.yaml:4: headroom: "),
        (
            MINIMAL + "limits:\n  foreign: 0.1\n",
            "c.yaml:5: unknown key 'limits.foreign'; did you mean",
        ),
        (MINIMAL + "trace: b\n", "c.yaml:4: key 'trace' stands twice"),
        ("trace: {steps: 3}\npool: p\n", "c.yaml:1: trace: name either 'path' or 'generate'"),
        ("trace: t\npool: p\n", "c.yaml:1: 'capacities' is needed by"),
        ("trace: t\npool: p\nmechanisms: []\n", "c.yaml:3: mechanisms: "),
        ("trace: t\npool: []\nmechanisms: [none]\n", "c.yaml:2: pool: "),
        (
            MINIMAL + "variations:\n  - {reed: mmap}\n",
            "c.yaml:5: unknown key 'variations.0.reed'; did",
        ),
        (
            "trace: t\npool:\n  path: p\n  create: {layers: 2, experts: 2}\nmechanisms: [none]\n",
            "c.yaml:4: key 'pool.0.create.expert_bytes' is missing",
        ),
    ],
)
def test_mistakes_name_file_line_and_field(tmp_path: Path, text: str, message: str) -> None:
    assert error_of(tmp_path, text).startswith(message)


def test_missing_and_binary_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load_campaign(tmp_path / "absent.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="it is not UTF-8 text"):
        load_campaign(tmp_path / "b.yaml")


@pytest.mark.parametrize(
    "name",
    ["quick", "gpt-oss-20b", "matrix", "amplification", "admission", "equal-memory", "prefetch"],
)
def test_shipped_examples_are_valid_and_survive_being_written_out(
    tmp_path: Path, name: str
) -> None:
    path = Path(__file__).resolve().parents[2] / "examples" / f"{name}.yaml"
    campaign = load_campaign(path)
    assert plan_cells(campaign)
    as_run = tmp_path / "campaign.yaml"
    as_run.write_text(yaml.safe_dump(campaign.model_dump(), sort_keys=False))
    again = load_campaign(as_run)
    assert (again.sha256, plan_cells(again)) == (campaign.sha256, plan_cells(campaign))


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("[keep, on, off]", ["keep", "on", "off"]),  # a bare on is a truth value in YAML 1.1
        ('["off", true]', ["off", "on"]),
        ("off", ["off"]),
    ],
)
def test_mglru_states_are_words(tmp_path: Path, text: str, states: list[str]) -> None:
    cells = load(tmp_path, f"{MINIMAL}mglru: {text}\n")
    assert {cell.mglru for cell in cells} == set(states)
    assert len(cells) == len(states) == len({cell.describe() for cell in cells})


def test_an_unknown_mglru_state_is_named(tmp_path: Path) -> None:
    assert error_of(tmp_path, f"{MINIMAL}mglru: [on, maybe]\n").startswith("c.yaml:4: mglru.1: ")


def test_huge_pages_are_a_word(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"{MINIMAL}balloon: {{huge_pages: on}}\n")
    assert load_campaign(path).balloon.huge_pages == "on"


def test_a_boot_needs_capacities(tmp_path: Path) -> None:
    text = "trace: t\npool: p\nmechanisms: [boot]\n"
    assert "'capacities' is needed by every mechanism but 'none'" in error_of(tmp_path, text)


def test_fractions_are_of_hybrids_alone(tmp_path: Path) -> None:
    text = (
        "trace: t\npool: p\nmechanisms: [wall]\ncapacities: [1 MB]\n"
        "tiers: [page-cache, arena, hybrid, direct]\narena: {table: u.csv, fraction: [0.25, 0.5]}\n"
    )
    found = [(cell.tier, cell.arena) for cell in load(tmp_path, text)]
    assert sorted(found, key=str) == [
        ("arena", ArenaSpec("u.csv", 1.0)),
        ("direct", None),
        ("hybrid", ArenaSpec("u.csv", 0.25)),
        ("hybrid", ArenaSpec("u.csv", 0.5)),
        ("page-cache", None),
    ]


def test_advice_to_direct_reads_makes_no_second_cell(tmp_path: Path) -> None:
    cells = load(tmp_path, MINIMAL + "tiers: [page-cache, direct]\nadvice: [default, random]\n")
    found = sorted((cell.tier, cell.advice) for cell in cells)
    assert found == [("direct", "default"), ("page-cache", "default"), ("page-cache", "random")]


def test_the_factors_of_prefetch(tmp_path: Path) -> None:
    text = MINIMAL + (
        "prefetch: {plan: [none, oracle, degraded], delivery: [advice, blocking],"
        " chunk: [safe, whole, 1 MiB], recall: 0.4, seed: 3}\n"
    )
    plans = [cell.prefetch for cell in load(tmp_path, text)]
    # Without hints one cell; else three chunks of advice, and blocking reads without chunks.
    assert len(plans) == len(set(plans)) == 1 + 2 * (3 + 1)
    assert {plan.chunk for plan in plans if plan and plan.delivery == "advice"} == {
        "safe",
        "whole",
        1 << 20,
    }
    assert {plan.recall for plan in plans if plan and plan.plan == "oracle"} == {None}
    assert {(plan.recall, plan.seed) for plan in plans if plan and plan.plan == "degraded"} == {
        (0.4, 3)
    }


def test_tier_keys_may_vary_and_cells_are_told_apart(tmp_path: Path) -> None:
    text = (
        "trace: t\npool: p\nmechanisms: [wall]\ncapacities: [1 MB]\nvariations:\n"
        "  - {tiers: [hybrid], arena: {fraction: 0.5}}\n"
        "  - {spine: 4 KiB}\n"
        "  - {read_ahead_kb: 128}\n"
        "  - {read: populate}\n"
        "  - {prefetch: {plan: oracle}}\n"
    )
    cells = load(tmp_path, text)
    assert len(cells) == len({cell.describe() for cell in cells}) == 6
    assert {cell.spine_bytes for cell in cells} == {0, 4096}
    assert {cell.read_ahead_kb for cell in cells} == {None, 128}
