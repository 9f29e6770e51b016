# SPDX-License-Identifier: Apache-2.0
"""The process that decodes, and the run before it whose routing is captured: on a small model."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagetier.analysis.errors import CapabilityError
from pagetier.bench.driver import Driver, WorkerFailure
from pagetier.bench.engine.campaign import EngineOptions
from pagetier.bench.engine.cell import MODULE, extents_by_file
from pagetier.bench.engine.llama import Loading
from pagetier.bench.engine.prompts import Prompt
from pagetier.bench.engine.reference import (
    Reference,
    load_references,
    make_references,
    sampling_of,
)
from pagetier.bench.engine.worker import DecodeJob, write_decode_job
from pagetier.tiers.models.map import map_model
from tests.capture.models import SMALL, domain_tokens

pytestmark = [pytest.mark.capture, pytest.mark.usefixtures("engine")]

PROMPTS = [Prompt(at, name, tuple(domain_tokens(SMALL, at, 6))) for at, name in enumerate("ab")]


def options_of(model: Path, **keys: Any) -> EngineOptions:
    given = {"tokens": 10, "temperature": 1.0, "seed": 5, "context": 64, **keys}
    return EngineOptions(model=str(model), prompts="p.jsonl", **given)


@pytest.fixture
def references(small: Path, tmp_path: Path) -> dict[int, Reference]:
    made = (tmp_path / "routing", options_of(small), PROMPTS, "digest")
    make_references(*made)
    found = load_references(*made)
    assert found is not None
    return found


@contextmanager
def decoding(folder: Path, job: DecodeJob) -> Iterator[tuple[Driver, dict[str, Any]]]:
    folder.mkdir()
    write_decode_job(folder, job)
    with Driver(folder, None, MODULE, "decoding") as worker:
        yield worker, worker.wait_ready()


@pytest.fixture
def job(small: Path, references: dict[int, Reference]) -> Callable[..., DecodeJob]:
    def made(prompt: int = 0, dropped: bool = False, **loading: Any) -> DecodeJob:
        options = options_of(small)
        pool = map_model(small, small.parent / "pool")
        return DecodeJob(
            model=str(small),
            loading=Loading(context_tokens=64, **loading),
            prompt=references[prompt].prompt,
            count=10,
            sampling=sampling_of(options, PROMPTS[prompt]),
            dropped=extents_by_file(pool) if dropped else {},
        )

    return made


def decode(worker: Driver) -> tuple[dict[str, Any], list[int]]:
    """One request, and how many tokens were done at each sign of life."""
    steps: list[int] = []
    worker.ask({"do": "prompt"}, "prompted")
    event = worker.ask({"do": "decode"}, "pass", lambda event: steps.append(event["iterations"]))
    return event, steps


@pytest.mark.parametrize("prompt", [0, 1])
@pytest.mark.parametrize("how", [{}, {"mmap": False}, {"threads": 2}, {"dropped": True}])
def test_every_way_of_holding_weights_decodes_what_was_captured(
    job: Callable[..., DecodeJob],
    references: dict[int, Reference],
    tmp_path: Path,
    prompt: int,
    how: dict[str, Any],
) -> None:
    """The capture listens to the routers, which changes nothing of what they compute."""
    with decoding(tmp_path / "job", job(prompt, **how)) as (worker, ready):
        assert ready["backend"] == "CPU" and ready["load_ns"] > 0
        for _ in range(2):
            event, steps = decode(worker)
            assert event["tokens"] == references[prompt].tokens
            assert steps == list(range(1, 11))


def test_times_are_of_decoding_alone(job: Callable[..., DecodeJob], tmp_path: Path) -> None:
    with decoding(tmp_path / "job", job(dropped=True)) as (worker, _):
        event, _ = decode(worker)
    ends = event["end_ns"]
    assert len(ends) == len(event["wall_ns"]) == 10 and ends == sorted(ends)
    assert event["start_ns"] < ends[0] and event["prompt_ns"] > 0 and event["drop_ns"] > 0
    # Decoding, dropping and telling share the time between the first token and the last.
    assert sum(event["wall_ns"]) < ends[-1] - event["start_ns"]


def test_a_model_that_cannot_be_loaded_is_one_sentence(
    job: Callable[..., DecodeJob], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    folder = tmp_path / "job"
    folder.mkdir()
    good = job()
    write_decode_job(
        folder,
        DecodeJob(str(broken), good.loading, good.prompt, 4, good.sampling, {}),
    )
    with Driver(folder, None, MODULE, "decoding") as worker:
        with pytest.raises(WorkerFailure, match=f"the decoding failed: {broken}") as caught:
            worker.wait_ready()
        assert "\n" not in str(caught.value)


# ---- the run before ------------------------------------------------------------------------------


def test_the_plans_are_of_the_tokens_and_of_the_prompt(references: dict[int, Reference]) -> None:
    for reference in references.values():
        plan, prompt = reference.plan, reference.prompt_plan
        assert plan.num_iterations == 10 == len(reference.tokens) - 1
        assert plan.num_reads == 10 * SMALL.layers * SMALL.top_k
        assert (prompt.num_iterations, prompt.num_records) == (1, SMALL.layers)
        layers = prompt.experts // SMALL.experts
        assert (np.diff(layers.astype(int)) >= 0).all()
        widths = np.diff(prompt.record_start.astype(int))
        assert (widths >= SMALL.top_k).all() and (widths <= SMALL.experts).all()
        # Six tokens choose more than one does; the last layer computes the last token alone.
        assert widths[:-1].mean() > SMALL.top_k
        assert widths[-1] == SMALL.top_k
        for layer in range(SMALL.layers):
            asked = prompt.experts[layers == layer]
            assert len(set(asked.tolist())) == len(asked)


def test_a_capture_of_something_else_is_not_taken(small: Path, tmp_path: Path) -> None:
    """Its tokens would reject every cell, or worse, fit."""
    folder, options = tmp_path / "routing", options_of(small, tokens=4)
    assert load_references(folder, options, PROMPTS, "digest") is None
    make_references(folder, options, PROMPTS, "digest")
    assert load_references(folder, options, PROMPTS, "digest") is not None
    others: list[tuple[EngineOptions, list[Prompt], str]] = [
        (options_of(small, tokens=4, seed=6), PROMPTS, "digest"),
        (options, PROMPTS[:1], "digest"),
        (options, PROMPTS, "other"),
    ]
    assert [load_references(folder, *other) for other in others] == [None] * 3
    assert sorted(path.name for path in folder.iterdir()) == [
        "prompt-0.jsonl.gz",
        "prompt-0.prompt.npz",
        "prompt-1.jsonl.gz",
        "prompt-1.prompt.npz",
        "tokens.jsonl",
    ]


def test_a_prompt_that_does_not_fit_is_one_sentence(small: Path, tmp_path: Path) -> None:
    options = options_of(small, context=8)
    with pytest.raises(CapabilityError, match="do not fit in a context of 8") as caught:
        make_references(tmp_path / "routing", options, PROMPTS, "digest")
    assert "\n" not in str(caught.value)
    assert json.loads(json.dumps(sorted(p.name for p in (tmp_path / "routing").iterdir()))) == []
