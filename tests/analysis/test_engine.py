# SPDX-License-Identifier: Apache-2.0
"""What an engine's cell must show to be kept, and which pairs count."""

import copy
import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from pagetier.analysis.derive import judge
from pagetier.analysis.engine import degenerate, engine_reasons, output_sha256, pairs_of
from pagetier.analysis.results import Cell

Amend = Callable[..., Cell]
MB = 10**6
TOKENS = [5, 9, 5, 7, 11, 2, 9, 4, 13]


@pytest.fixture
def decoded(cell: Cell) -> Cell:
    """The cell as one in which an engine decoded from its mapping: kept."""
    changed = copy.deepcopy(cell)
    facts = {
        "backend": "CPU",
        "tokens": TOKENS,
        "weights_bytes": 900 * MB,
        "experts_bytes": 800 * MB,
        "anon_bytes": 30 * MB,
        "load_device_bytes": 900 * MB,
    }
    result = {"tokens": TOKENS}
    return dataclasses.replace(
        changed,
        spec={
            **changed.spec,
            "arm": "mmap",
            "prompt": 0,
            "domain": "prose",
            "engine": {"backend": "CPU"},
        },
        facts={**changed.facts, "engine": facts},
        passes={
            name: dataclasses.replace(
                replay,
                result={**replay.result, **result, "verified_reads": 0},
                iterations=tuple(
                    dataclasses.replace(row, first_bytes=None, repeat_bytes=None)
                    for row in replay.iterations
                ),
            )
            for name, replay in changed.passes.items()
        },
    )


def test_a_sound_cell_is_kept_without_a_remark(decoded: Cell) -> None:
    """No read is verified, no residency known: what was computed from the weights is compared."""
    verdict = judge(decoded)
    assert (verdict.state, verdict.reasons, verdict.labels) == ("kept", (), ())


def test_an_engine_may_have_read_everything_while_it_loaded(decoded: Cell, amend: Amend) -> None:
    """The device is then silent in the warm-up, which rejects a replay."""
    after = decoded.passes["warm-up"].before["device"]["sectors_read"]
    silent = amend(("warm-up", "after", "device", "sectors_read"), after, decoded)
    assert not any("the device counted 0 B" in reason for reason in judge(silent).reasons)
    unread = amend(("facts", "engine", "load_device_bytes"), 0, decoded)
    assert any("loaded a cold model is 0 B" in reason for reason in judge(unread).reasons)
    unknown = amend(("facts", "engine", "load_device_bytes"), None, decoded)
    assert any("loaded a cold model is unknown" in reason for reason in judge(unknown).reasons)


REJECTING: list[tuple[tuple[str, ...], Any, str]] = [
    (("facts", "engine", "backend"), "CUDA0", "backend is CUDA0, CPU was expected"),
    (
        ("measured", "result", "tokens"),
        [5, 9, 6, 7, 11, 2, 9, 4, 13],
        "the measured pass decoded token 6 at place 2, where the captured run has 5",
    ),
    (
        ("warm-up", "result", "tokens"),
        TOKENS[:-1],
        "the warm-up pass decoded 8 tokens, the captured run 9",
    ),
    (("measured", "result", "tokens"), None, "decoded tokens that were not recorded"),
    (
        ("facts", "engine", "anon_bytes"),
        800 * MB,
        "800 MB of anonymous memory beside a mapping with 800 MB of experts",
    ),
]


@pytest.mark.parametrize(("path", "value", "reason"), REJECTING)
def test_what_rejects(
    decoded: Cell, amend: Amend, path: tuple[str, ...], value: Any, reason: str
) -> None:
    verdict = judge(amend(path, value, decoded))
    assert verdict.state == "rejected"
    assert [text for text in verdict.reasons if reason in text], verdict.reasons


def test_weights_in_anonymous_memory_are_what_no_mmap_is(decoded: Cell, amend: Amend) -> None:
    copied = amend(("facts", "engine", "anon_bytes"), 800 * MB, decoded)
    assert list(engine_reasons(amend(("spec", "arm"), "no-mmap", copied))) == []


def test_a_degenerate_output_is_rejected(decoded: Cell, amend: Amend) -> None:
    frozen = [7] * 9
    for path in (("measured", "result"), ("warm-up", "result"), ("facts", "engine")):
        decoded = amend((*path, "tokens"), frozen, decoded)
    reasons = list(engine_reasons(decoded))
    assert reasons == ["the output is degenerate: one token fills 9 of 9 places in a row"]


def test_mlock_needs_all_of_its_weights_locked_all_the_time(decoded: Cell, amend: Amend) -> None:
    for name in ("warm-up", "measured"):
        for when in ("before", "after"):
            decoded = amend((name, when, "process", "vm_lck_bytes"), 900 * MB, decoded)
    locked = amend(("spec", "arm"), "mlock", decoded)
    assert list(engine_reasons(locked)) == []
    locked.passes["measured"].samples[0].data["process"]["vm_lck_bytes"] = 899 * MB
    assert list(engine_reasons(locked)) == [
        "VmLck of the engine is 899 MB in the measured pass, its weights are 900 MB"
    ]


def test_mlock_without_a_count_is_not_locked(decoded: Cell, amend: Amend) -> None:
    found = list(engine_reasons(amend(("spec", "arm"), "mlock", decoded)))
    assert [text.split(" in ")[0] for text in found] == ["VmLck of the engine is unknown"] * 2


def test_no_admission_must_read_what_its_tokens_ask_for(decoded: Cell, amend: Amend) -> None:
    """250 MB were read of the 1000 MB asked for."""
    admitted = list(engine_reasons(amend(("spec", "arm"), "no-admission", decoded)))
    assert admitted == [
        "250 MB were read of the 1.00 GB that the tokens asked for: what was dropped after each"
        " token was in memory again"
    ]
    start = decoded.passes["measured"].before["process"]["read_bytes"]
    path = ("measured", "after", "process", "read_bytes")
    enough = amend(("spec", "arm"), "no-admission", amend(path, start + 900 * MB, decoded))
    assert list(engine_reasons(enough)) == []


def test_a_replay_and_a_plain_cell_have_no_such_rules(cell: Cell, amend: Amend) -> None:
    assert list(engine_reasons(cell)) == []
    assert list(engine_reasons(amend(("spec", "arm"), "replay"))) == []


# ---- outputs ------------------------------------------------------------------------------------


def test_the_digest_is_of_the_ids_in_order() -> None:
    assert output_sha256([3, 14, 15]) == hashlib.sha256(b"3 14 15").hexdigest()
    assert output_sha256([31, 4]) != output_sha256([3, 14])


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        ([1, 1, 1, 1, 1, 2, 3, 4], "one token fills 5 of 8 places in a row"),
        ([1, 1, 1, 1, 5, 2, 3, 4], None),
        ([1, 2] * 10 + [3], None),
        ([1, 2] * 10 + [1], "its 21 tokens are 2 different ones"),
        ([7] * 7, None),
        ([], None),
    ],
)
def test_what_is_degenerate(tokens: list[int], why: str | None) -> None:
    assert degenerate(tokens) == why


# ---- pairs --------------------------------------------------------------------------------------


@pytest.fixture
def make(decoded: Cell, amend: Amend) -> Callable[..., Cell]:
    def made(arm: str, round_number: int = 1, tokens: Any = TOKENS, **fields: Any) -> Cell:
        made = amend(("measured", "result", "tokens"), tokens, decoded)
        spec = {**made.spec, "arm": arm, "repetition": round_number, **fields.pop("spec", {})}
        identity = json.dumps([arm, round_number, spec], sort_keys=True)
        return dataclasses.replace(made, id=identity, spec=spec, **fields)

    return made


def test_each_arm_is_paired_with_the_first_of_its_round(make: Callable[..., Cell]) -> None:
    cells = [
        make("no-admission", 2),
        make("mmap", 1),
        make("mlock", 1),
        make("no-admission", 1),
        make("mmap", 2),
        make("replay", 1),
        make("no-admission", 1, spec={"prompt": 1}),
    ]
    pairs = pairs_of(cells, "mmap")
    assert [
        (pair.arm, pair.first and pair.first.spec["repetition"], pair.problems) for pair in pairs
    ] == [
        ("no-admission", 2, ()),
        ("mlock", 1, ()),
        ("no-admission", 1, ()),
        ("no-admission", None, ("its partner was not measured",)),
    ]
    assert [pair.identical for pair in pairs] == [True, True, True, None]


def test_a_pair_of_different_outputs_does_not_count(make: Callable[..., Cell]) -> None:
    (pair,) = pairs_of([make("mmap"), make("no-admission", tokens=TOKENS[::-1])], "mmap")
    assert (pair.identical, pair.problems) == (False, ("the outputs differ",))


def test_a_pair_with_a_rejected_cell_does_not_count(make: Callable[..., Cell]) -> None:
    cells = [make("mmap", state="rejected"), make("no-admission", passes={})]
    (pair,) = pairs_of(cells, "mmap")
    assert pair.identical is None
    assert pair.problems == ("the cell of mmap is rejected", "an output is missing")


def test_a_pair_of_two_backends_does_not_count(make: Callable[..., Cell], amend: Amend) -> None:
    other = amend(("facts", "engine", "backend"), "CUDA0", make("no-admission"))
    (pair,) = pairs_of([make("mmap"), other], "mmap")
    assert pair.problems == ("the backends are CPU and CUDA0",)
